#!/usr/bin/env bash
# weft data and weft train on data that is odd, hostile or changes while it is read: a clear error or the right numbers, never
# an empty result, a signal or a stray escape sequence.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

printf 'a,b\n1,2\n3,4\n' >plain.csv

# Pipes can be read only once: an error that says what to do, not an empty table. A FIFO without a writer must not be waited for.
mkfifo fifo
for sub in inspect stats; do
    want 3 "write it to a file first" timeout 20 "$WEFT" data $sub <(cat plain.csv)
    want 3 "write it to a file first" timeout 20 "$WEFT" data $sub fifo
done
want 3 "write it to a file first" timeout 20 "$WEFT" data convert <(cat plain.csv) out.npz
for format in tfrecord csv libsvm lines idx npy npz bytes; do
    want 3 "write it to a file first" timeout 20 "$WEFT" data inspect fifo --format $format
done
cat plain.csv | want 3 "write it to a file first" timeout 20 "$WEFT" data inspect /dev/stdin
want 3 "write it to a file first" timeout 20 "$WEFT" data inspect /dev/null
want 0 "csv, 2 records" "$WEFT" data inspect /dev/stdin <plain.csv
cat >pipe.yaml <<'Y'
data:
  train: {path: fifo, format: csv, label: b}
  batch: 2
model:
  - Dense: {units: 1}
train:
  loss: mean_squared_error
  epochs: 1
Y
want 3 "write it to a file first" timeout 20 "$WEFT" train pipe.yaml

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

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
# shellcheck disable=SC2002,SC2016
want 3 "write it to a file first" bash -c 'cat plain.csv | timeout 20 "$0" data inspect /dev/stdin; exit "${PIPESTATUS[1]}"' "$WEFT"
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

# Line ends of old Macs would make one row of everything; those of DOS are fine, and so is one within quotes.
printf 'a,b\r1,2\r3,4\r' >mac.csv
printf 'a,b\r\n1,2\r\n3,4\r\n' >dos.csv
printf 'a,"b\rc",d' >quoted.csv
printf 'first\rsecond\r' >mac.txt
printf '1 1:0.5\r0 2:1\r' >mac.svm
want 3 "lines end in a carriage return alone" "$WEFT" data inspect mac.csv
want 3 "lines end in a carriage return alone" "$WEFT" data stats mac.csv
want 3 "lines end in a carriage return alone" "$WEFT" data convert mac.csv out.npz
want 3 "lines end in a carriage return alone" "$WEFT" data inspect mac.txt --format lines
want 3 "lines end in a carriage return alone" "$WEFT" data inspect mac.svm --format libsvm
want 0 "csv, 2 records" "$WEFT" data inspect dos.csv
want 0 "csv, 0 records" "$WEFT" data inspect quoted.csv

# Tables of any name and kind, in the order of their rows.
if command -v sqlite3 >/dev/null; then
    long=$(printf 'x%.0s' $(seq 600))
    for name in 'my""table' 'a; DROP TABLE b' "it's" 'order' "$long" 'sqlites'; do
        rm -f t.db
        sqlite3 t.db "CREATE TABLE \"$name\"(id INTEGER, size REAL); INSERT INTO \"$name\" VALUES (3, 0.5), (1, 0.25);"
        want 0 "sqlite, 2 records" "$WEFT" data inspect t.db
        want 0 "0: id=3" "$WEFT" data inspect t.db
    done
    rm -f t.db
    sqlite3 t.db 'CREATE TABLE t("the ""key""" TEXT, n INTEGER, PRIMARY KEY(n, "the ""key""")) WITHOUT ROWID;
        INSERT INTO t VALUES ("b", 2), ("a", 2), ("c", 1);'
    want 0 "sqlite, 3 records" "$WEFT" data inspect t.db
    want 0 '0: the "key"="c" n=1' "$WEFT" data inspect t.db
    want 0 '1: the "key"="a" n=2' "$WEFT" data inspect t.db
    rm -f t.db
    sqlite3 t.db 'CREATE TABLE t(RowId TEXT, n INTEGER); INSERT INTO t VALUES ("b", 1), ("a", 2);'
    want 0 '0: RowId="b" n=1' "$WEFT" data inspect t.db
    sqlite3 t.db 'CREATE TABLE u(a)'
    want 1 "has 2 tables (t, u): give a query" "$WEFT" data inspect t.db
fi

# Nothing of a file speaks to the terminal: names, values, paths, errors.
esc=$(printf '\033')
printf 'a\033[31m,b\302\233m\n1,x\0332J\n2,y\n' >esc.csv
printf 'a\n1\nx\033[2J\n' >"bad$esc[1m.csv"
{
    "$WEFT" data inspect esc.csv --format csv
    "$WEFT" data stats esc.csv --format csv
    "$WEFT" data inspect esc.csv --format csv --columns "none$esc[5m"
    "$WEFT" data inspect "bad$esc[1m.csv" --types a:i64
    "$WEFT" data inspect "missing$esc[1m.csv"
    "$WEFT" data stats "bad$esc[1m.csv" --types a:i64 --skip-bad
} >esc.out 2>&1
if LC_ALL=C grep -q "$(printf '[\001-\010\013-\037\177]')" esc.out || LC_ALL=C grep -q "$(printf '\302\233')" esc.out; then
    echo "FAILED: control characters of the data reach the terminal"
    bad=$((bad + 1))
fi
want 0 'a\x1b[31m' "$WEFT" data inspect esc.csv --format csv
want 0 'b\xc2\x9bm' "$WEFT" data inspect esc.csv --format csv
want 0 'x\x1b2J' "$WEFT" data inspect esc.csv --format csv

# Records that training leaves out are counted where people look.
{
    echo "x,y"
    for i in $(seq 40); do echo "$i,$((2 * i))"; done
    echo "oops,1"
    echo "4,also bad"
} >some.csv
printf 'x,y\n1,2\nbad,2\n2,4\n' >val.csv
cat >skip.yaml <<'Y'
data:
  train: {path: some.csv, format: csv, label: y, on_error: skip, types: "x:f32,y:f32"}
  validation: {path: val.csv, format: csv, label: y, on_error: skip, types: "x:f32,y:f32"}
  batch: 8
model:
  - Reshape: {target_shape: [1]}
  - Dense: {units: 1}
train:
  optimizer: sgd learning_rate=0.0001
  loss: mean_squared_error
  epochs: 2
log: {dir: skiplog}
Y
want 0 "skipped_records: 2 - val_skipped_records: 1" "$WEFT" train skip.yaml
want 0 "4 training and 2 validation records could not be read" cat skiplog/report.html
rm -rf skiplog
want 0 '"skipped_records": 2, "val_skipped_records": 1' "$WEFT" train skip.yaml --log json
rm -rf skiplog
want 0 "epoch 1: 2 training and 1 validation records could not be read and were skipped" "$WEFT" train skip.yaml --log json
sed -i 's/, on_error: skip//' skip.yaml
want 3 "some.csv: record 40" "$WEFT" train skip.yaml

# text labels: an empty one is an error, or skipped; it is not a class
printf 'a,b,kind\n1,2,x\n2,2,\n3,1,y\n4,1,x\n' >gaps.csv
cat >gaps.yaml <<'YAML'
data: {train: {path: gaps.csv, label: kind}, pipeline: [{lookup: {columns: kind, unknown: 0}}, {join: {columns: [a, b], to: x}}], batch: 2}
model: [{Dense: {units: 2}}]
train: {loss: sparse_categorical_crossentropy from_logits=true}
YAML
want 3 "column 'kind': the label is missing: give a default, or skip such records" "$WEFT" train gaps.yaml --log lines
want 0 "1 training and 0 validation records could not be read and were skipped" "$WEFT" train gaps.yaml --log lines --set data.train.on_error=skip

# lists of columns as YAML lists: the same weights as with text
for columns in '[a, b]' '"a, b"'; do
    "$WEFT" train gaps.yaml --log lines --set data.train.on_error=skip --set "data.pipeline=[{standardize: {columns: $columns}}, {lookup: {columns: [kind], unknown: 0}}, {join: {columns: $columns, to: x}}]" 2>/dev/null | grep -o 'loss: .*'
done >losses.txt
check "columns as a list and as text" test "$(sort -u losses.txt | wc -l)" = 1 -a "$(wc -l <losses.txt)" = 2
want 3 "attribute 'buckets': expected an integer" "$WEFT" train gaps.yaml --set 'data.pipeline=[{hash: {columns: a, buckets: [1, 2]}}]'

# a comma in the name of a column
printf '"income, monthly",b,y\n1,2,0\n3,4,1\n2,2,0\n3,1,1\n' >comma.csv
want 0 "income_monthly" "$WEFT" data inspect comma.csv
want 0 'columns: "income_monthly, b"' "$WEFT" init comma.csv --label y --out -

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

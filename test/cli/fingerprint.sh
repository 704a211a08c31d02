#!/usr/bin/env bash
# Fingerprints of a job's checkpoints: shown; silent when nothing has changed; a difference is named once.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

awk 'BEGIN { srand(5); print "a,b,y"; for (i = 0; i < 120; i++) printf "%.3f,%.3f,%d\n", rand(), rand(), i % 2 }' >data.csv
cat >job.yaml <<'YAML'
seed: 4
data:
  train: {path: data.csv, label: y}
  pipeline:
    - join: {columns: "a, b", to: features}
  batch: 16
model:
  - Dense: {units: 4, activation: relu}
  - Dense: {units: 1, activation: sigmoid}
train: {loss: binary_crossentropy, epochs: 1}
checkpoint: {dir: ckpt}
resources: {simd: portable, threads: 1}
YAML

# again EPOCHS [FLAGS]: resumes a copy of the first epoch; the warnings are in out.txt
again() {
    rm -rf ckpt
    cp -r first ckpt
    "$WEFT" train job.yaml --log none --set train.epochs=2 "$@" >out.txt 2>&1 || { cat out.txt; bad=$((bad + 1)); }
}
says() { grep -q -- "$1" out.txt || { echo "not said: $1"; cat out.txt; bad=$((bad + 1)); }; }
silent() { if grep -q " in ckpt" out.txt; then echo "said: $(cat out.txt)"; bad=$((bad + 1)); fi; }

"$WEFT" train job.yaml --log none >out.txt 2>&1 || { cat out.txt; bad=$((bad + 1)); }
mv ckpt first
for part in training graph segments data kernels; do
    want 0 "fingerprint.$part = " "$WEFT" ckpt show first
done
want 0 'fingerprint.txt' "$WEFT" ckpt show first

again
silent
again --set resources.threads=2
silent
mkdir -p sub && mv data.csv sub/ # another directory, the same file
again --set data.train.path=sub/data.csv
if grep -q "content" out.txt; then echo "a moved file: $(cat out.txt)"; bad=$((bad + 1)); fi
mv sub/data.csv .

# what a key says is said by the key
again --set train.loss=mse
says "train.loss changed from"
silent
# the same key, another machine
if "$WEFT" doctor | grep -q "simd level *avx"; then
    again --set resources.simd=auto
    says "the SIMD level is avx.* here and portable in .*ckpt.*: the last bits of results may differ"
    check "one difference, one line" [ "$(grep -c " in ckpt" out.txt)" -eq 1 ]
fi
[ "$bad" -eq 0 ]

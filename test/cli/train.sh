#!/usr/bin/env bash
# weft train, eval, predict: a job is trained, evaluated and used; mistakes in the file; a run killed at any time resumes and
# ends with identical weights.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

# Flowers of three kinds: two measures, a color that helps.
awk 'BEGIN { srand(3); print "length,width,color,kind"
    for (i = 0; i < 600; i++) { k = i % 3; printf "%.3f,%.3f,%s,%d\n", 1 + k + rand(), 3 - k + rand(), \
        rand() < 0.8 ? substr("redblufir", 3 * k + 1, 3) : "red", k } }' >flowers.csv
cat >job.yaml <<'YAML'
# a small job
seed: 4
data:
  train: {path: flowers.csv, label: kind, index: true}
  test: {path: flowers.csv, label: kind}
  pipeline:
    - lookup: {columns: color}
    - one_hot: {columns: color, depth: 4}
    - standardize: {columns: "length, width"}
    - join: {columns: "length, width, color", to: features}
  batch: 16
  validation_split: 0.2
model:
  - Dense: {units: 16, activation: relu}
  - Dropout: {rate: 0.2}
  - Dense: {units: 3}
train:
  optimizer: adam learning_rate=0.01
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy
  epochs: 6
checkpoint: {dir: ckpt, steps: 5}
YAML

# train, evaluate, predict
want 0 "Epoch 6/6" "$WEFT" train job.yaml --log lines
want 0 "accuracy" "$WEFT" eval job.yaml
want 0 '"accuracy"' "$WEFT" eval job.yaml --json --part train
want 0 "index,prediction,p0,p1,p2" "$WEFT" predict job.yaml
"$WEFT" predict job.yaml --out whole.csv
want 0 "600 records" "$WEFT" data inspect whole.csv
want 0 "" "$WEFT" predict job.yaml --out p.npy
want 0 "npy, 600 records" "$WEFT" data inspect p.npy
want 0 "Total params: 163" "$WEFT" summary job.yaml
want 0 "train.epochs" "$WEFT" keys
rm -rf ckpt
"$WEFT" train job.yaml --log json >log.json
[ "$(grep -c '"epoch"' log.json)" = 6 ] || { echo "FAILED: six JSON lines"; bad=$((bad + 1)); }

# killed at any time and resumed: identical weights
"$WEFT" predict job.yaml --out again.csv
same whole.csv again.csv
rm -rf ckpt
for t in 0.05 0.08 0.03 0.12 0.06 0.2; do
    "$WEFT" train job.yaml --log none >/dev/null 2>&1 &
    sleep $t
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
want 0 "" "$WEFT" train job.yaml --log none
"$WEFT" predict job.yaml --out killed.csv
same whole.csv killed.csv

# Ctrl-C: the step ends, a checkpoint is written, the same command resumes
rm -rf ckpt
# interrupted: Ctrl-C after it has reached its first epoch
interrupted()
{
    : >out.txt
    "$WEFT" train job.yaml --log lines --set train.epochs=400000 >>out.txt 2>&1 &
    for _ in {1..600}; do grep -q Epoch out.txt && break; sleep 0.1; done
    kill -INT $!
    wait $!
}
interrupted
[ $? -eq 130 ] || { echo "FAILED: exit code after SIGINT"; bad=$((bad + 1)); }
want 0 "the same command resumes from here" cat out.txt
interrupted
want 0 "resuming from" cat out.txt
rm -rf ckpt

# a starter job
want 0 "label 'kind' (a class of 3)" "$WEFT" init flowers.csv --out start.yaml
want 0 "Epoch 2/2" "$WEFT" train start.yaml --log lines --set train.epochs=2
want 3 "already exists" "$WEFT" init flowers.csv --out start.yaml
want 2 "did you mean 'width'" "$WEFT" init flowers.csv --label widht --out -
want 0 "mean_squared_error" "$WEFT" init flowers.csv --label width --out -
rm -rf ckpt

# mistakes
sed 's/  epochs: 6/  epoch: 6/' job.yaml >typo.yaml
want 3 "typo.yaml:21:3: no key 'epoch' in 'train', did you mean 'epochs'?" "$WEFT" train typo.yaml
want 3 "did you mean 'Dense'" "$WEFT" train job.yaml --set model.0=Dens
want 3 "takes a whole number, not 'many'" "$WEFT" train job.yaml --set data.batch=many
want 3 "no key 'optimzer'" "$WEFT" train job.yaml --set train.optimzer=sgd
want 3 "is text: add \`lookup\`" "$WEFT" train job.yaml --set data.pipeline=
want 3 "no column 'knd', did you mean 'kind'" "$WEFT" train job.yaml --set data.train.label=knd
want 3 "no column 'lenght', did you mean 'length'" "$WEFT" train job.yaml --set 'data.pipeline.0={lookup: {columns: "color, lenght"}}'
want 3 "no key 'tak' in 'data.train', did you mean 'take'" "$WEFT" train job.yaml --set data.train.tak=3
want 3 "data.train.channels is 4294967299, not in 1..1e+06" "$WEFT" train job.yaml --set data.train.channels=4294967299
want 3 "there is nothing to cut" "$WEFT" train job.yaml --set 'data.pipeline.0={slice: {columns: length}}'
want 0 "take " "$WEFT" keys
want 3 "cannot open" "$WEFT" train nothing.yaml
want 2 "needs a job file" "$WEFT" train
want 2 "did you mean --set" "$WEFT" train job.yaml --sett a=b
printf 'data: [\n' >broken.yaml
want 3 "broken.yaml:2:1" "$WEFT" train broken.yaml
want 3 "is given twice" bash -c "printf 'seed: 1\nseed: 2\n' >twice.yaml; $WEFT train twice.yaml"

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

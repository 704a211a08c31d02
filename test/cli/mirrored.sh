#!/usr/bin/env bash
# A job with several replicas: the bits of one replica with as many shards, also through kill -9; mistakes in the devices.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

awk 'BEGIN { srand(5); print "a,b,c,word,y"
    for (i = 0; i < 500; i++) { k = i % 3; printf "%.3f,%.3f,%.3f,w%d,%d\n", k + rand(), rand(), 2 - k + rand(), int(40 * rand()), k } }' >data.csv
cat >job.yaml <<'YAML'
seed: 4
data:
  train: {path: data.csv, label: y, index: true}
  test: {path: data.csv, label: y}
  pipeline:
    - lookup: {columns: word}
    - one_hot: {columns: word}
    - join: {columns: "a, b, c, word", to: features}
  batch: 16
  validation_split: 0.2
model:
  - Dense: {units: 24, activation: relu, kernel_regularizer: l2(0.001)}
  - BatchNormalization: {}
  - Dropout: {rate: 0.2}
  - Dense: {units: 3}
train:
  optimizer: adam learning_rate=0.01 global_clipnorm=1
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy
  epochs: 5
checkpoint: {dir: ckpt, steps: 4}
YAML

"$WEFT" train job.yaml --log none --set train.shards=2 >out.txt 2>&1 || { cat out.txt; bad=$((bad + 1)); }
"$WEFT" predict job.yaml --out local.csv
rm -rf ckpt
want 0 "Epoch 5/5" "$WEFT" train job.yaml --log lines --set train.strategy=mirrored --devices cpu:0,cpu:1
"$WEFT" predict job.yaml --out mirrored.csv
same local.csv mirrored.csv

# killed at any time and resumed
rm -rf ckpt
for t in 0.05 0.08 0.03 0.12 0.06 0.2; do
    "$WEFT" train job.yaml --log none --set train.strategy=mirrored --devices cpu:0,cpu:1 >/dev/null 2>&1 &
    sleep $t
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
"$WEFT" train job.yaml --log none --set train.strategy=mirrored --devices cpu:0,cpu:1
"$WEFT" predict job.yaml --out killed.csv
same local.csv killed.csv

# three replicas compute four shards
rm -rf ckpt
"$WEFT" train job.yaml --log none --set train.shards=4
"$WEFT" predict job.yaml --out four.csv
rm -rf ckpt
"$WEFT" train job.yaml --log none --set train.shards=4 --set train.strategy=mirrored --devices cpu:0,cpu:1,cpu:2
"$WEFT" predict job.yaml --out three.csv
same four.csv three.csv

want 3 "'cpu:1' is listed twice" "$WEFT" train job.yaml --devices cpu:1,cpu:1
want 3 "2 groups of cores are cpu:0 to cpu:1" "$WEFT" train job.yaml --devices cpu:0,cpu:2
want 3 "no device 'cpu:x'" "$WEFT" train job.yaml --devices cpu:x
want 3 "did you mean 'mirrored'" "$WEFT" train job.yaml --set train.strategy=mirored

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

#!/usr/bin/env bash
# What a job measures and how it weighs: lists of metrics, weights in some of the data, classes, f16 and tables.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

awk 'BEGIN { srand(5); print "a,b,w,kind"
    for (i = 0; i < 240; i++) { k = i % 3; printf "%.3f,%.3f,%.2f,%d\n", k + rand(), 2 - k + rand(), rand(), k } }' >weighed.csv
cut -d, -f1,2,4 weighed.csv >plain.csv
cat >job.yaml <<'YAML'
seed: 4
data:
  train: {path: weighed.csv, label: kind, weight: w, index: true}
  validation: {path: plain.csv, label: kind}
  test: {path: plain.csv, label: kind}
  pipeline:
    - one_hot: {columns: kind, depth: 3}
    - join: {columns: "a, b", to: features}
  batch: 16
model:
  - Dense: {units: 8, activation: relu}
  - Dense: {units: 3, activation: softmax}
train:
  loss: categorical_crossentropy
  metrics: Precision thresholds=[0.3,0.6], F1Score, AUC, AUC curve=PR
  class_weights: [1, 2]
  epochs: 3
checkpoint: {dir: ckpt}
log: {dir: logs, report: false, tensorboard: false}
YAML

# trained with weights, validated and measured without
want 0 "Epoch 3/3" "$WEFT" train job.yaml --log lines
want 0 "auc_1" "$WEFT" eval job.yaml
want 0 "f1_score_2" "$WEFT" eval job.yaml --part train
want 0 "epoch,auc,auc_1,f1_score_0,f1_score_1,f1_score_2,loss,precision_0.3,precision_0.6,val_auc" head -1 logs/history.csv
[ "$(wc -l <logs/history.csv)" = 4 ] || { echo "FAILED: three epochs in history.csv"; bad=$((bad + 1)); }
rm -rf ckpt logs

# mistakes, before any data is read
sed 's/AUC curve/ACU curve/' job.yaml >typo.yaml
want 3 "typo.yaml:15:12: no metric 'ACU', did you mean 'AUC'?" "$WEFT" train typo.yaml
want 3 "did you mean 'Precision'" "$WEFT" train job.yaml --set 'train.metrics="accuracy, Precisoin"'
want 3 "thresholds=2: must be in [0, 1]" "$WEFT" train job.yaml --set 'train.metrics="Precision thresholds=[0.1,2]"'
want 3 "weigh samples instead" "$WEFT" train job.yaml --set train.loss=mse
want 3 "no output 'kid'" "$WEFT" train job.yaml --set train.class_weights_output=kid
want 3 "not a power of 2" "$WEFT" train job.yaml --set train.precision=f16 --set train.loss_scale=100

# f16: a scale that is too large at first, killed and started again
f16=(--set train.precision=f16 --set train.loss_scale=1073741824 --set train.loss_scale_steps=7 --set checkpoint.steps=2)
want 0 "skipped_steps: " "$WEFT" train job.yaml --log lines "${f16[@]}"
want 0 "loss,loss_scale,precision_0.3,precision_0.6,skipped_steps,val_auc" head -1 logs/history.csv
"$WEFT" predict job.yaml "${f16[@]}" --out whole.csv
rm -rf ckpt logs
for t in 0.03 0.05 0.04 0.08 0.06; do
    "$WEFT" train job.yaml --log none "${f16[@]}" >/dev/null 2>&1 &
    sleep $t
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
want 0 "" "$WEFT" train job.yaml --log none "${f16[@]}"
"$WEFT" predict job.yaml "${f16[@]}" --out again.csv
same whole.csv again.csv
rm -rf ckpt logs

# tables: all rows, by the job or by the layer
cat >table.yaml <<'YAML'
seed: 4
data:
  train: {path: plain.csv, label: kind, columns: "a, kind", index: true}
  pipeline:
    - bucketize: {columns: a, boundaries: [0.5, 1, 1.5, 2]}
model:
  - Embedding: {input_dim: 50, output_dim: 4}
  - Flatten
  - Dense: {units: 3}
train:
  optimizer: adam learning_rate=0.01 weight_decay=0.1
  loss: sparse_categorical_crossentropy from_logits=true
  epochs: 2
YAML
"$WEFT" train table.yaml --log none --set save=rows.safetensors
"$WEFT" train table.yaml --log none --set save=all.safetensors --set train.sparse=false
"$WEFT" train table.yaml --log none --set save=layer.safetensors --set 'model.0={Embedding: {input_dim: 50, output_dim: 4, sparse: false}}'
check "train.sparse makes a difference" bash -c '! cmp -s rows.safetensors all.safetensors'
want 0 "sparse" "$WEFT" keys
for f in all layer; do tail -c 800 $f.safetensors >$f.end; done
same all.end layer.end

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

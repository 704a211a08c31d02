#!/usr/bin/env bash
# Models whose tables of embeddings servers hold: `save`, ModelCheckpoint and `model.file` have the bytes and the bits of one process; asynchronous ones
# are saved, too.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
awk 'BEGIN { print "id,y"; for (i = 0; i < 300; i++) print i * 7 % 500 "," i % 3 }' >data.csv
job() # MODEL SAVE
{
    cat <<YAML
data:
  train: {path: data.csv, label: y, index: true}
  batch: 20
model:
$1
train:
  optimizer: adam learning_rate=0.05
  loss: sparse_categorical_crossentropy from_logits=true
  epochs: 6
  shards: 2
  callbacks: ["ModelCheckpoint filepath=each-{epoch:02d}.safetensors"]
save: $2
log: {dir: logs, report: false, tensorboard: false}
YAML
}
job "  - Embedding: {input_dim: 500, output_dim: 8}
  - Flatten: {}
  - Dense: {units: 3}" first.safetensors >first.yaml
job "  file: first.safetensors" second.safetensors >second.yaml

# the files of one process, and of servers
for name in first second; do
    want 0 "Epoch 6/6" "$WEFT" train $name.yaml
    mv $name.safetensors wanted
    mv each-04.safetensors wanted-4
    rm -rf logs each-*
    want 0 "Epoch 6/6" "$WEFT" launch $name.yaml --ps 2 --workers 2
    same $name.safetensors wanted
    same each-04.safetensors wanted-4
    rm -rf logs each-*
done

# a checkpoint replaces the rows that were read
"$WEFT" train second.yaml >out.txt 2>&1
mv second.safetensors wanted
for epochs in 3 6; do
    want 0 "Epoch $epochs/$epochs" "$WEFT" launch second.yaml --ps 1 --workers 2 --set checkpoint.dir=ckpt --set train.epochs=$epochs
done
same second.safetensors wanted

# best weights of tables are restored by the last run; the same command after it has nothing to do
for epochs in 2 40; do
    rm -rf ckpt logs each-*
    early=(--set checkpoint.dir=ckpt --set train.epochs=$epochs --set
        'train.callbacks=[{EarlyStopping: {monitor: loss, patience: 1, min_delta: 0.01, restore_best_weights: true}}]')
    want 0 "Restoring model weights" "$WEFT" launch first.yaml --ps 2 --workers 2 "${early[@]}"
    cp first.safetensors best
    want 0 "this run" "$WEFT" launch first.yaml --ps 1 --workers 1 "${early[@]}"
    same first.safetensors best
done
rm -rf ckpt logs

want 0 "Epoch 6/6" "$WEFT" launch second.yaml --ps 2 --workers 2 --consistency async
cmp -s second.safetensors wanted && { echo "FAILED: asynchronous training has the bits of synchronous training"; bad=$((bad + 1)); }
check "a whole table" test "$(wc -c <second.safetensors)" = "$(wc -c <wanted)"
[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

#!/usr/bin/env bash
# train.update: worker. weft launch gives the bits of weft train, whatever is killed; a killed run resumes; settings that cannot be.
# ctest-timeout: 300
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
cat >job.yaml <<YAML
data:
  train: {path: data.csv, label: kind, index: true}
  test: {path: data.csv, label: kind}
  pipeline: [{join: {columns: "a, b", to: features}}]
  batch: 16
  validation_split: 0.2
model:
  - Dense: {units: 16, activation: relu}
  - BatchNormalization: {}
  - Dropout: {rate: 0.1}
  - Dense: {units: 3}
train:
  optimizer: adam learning_rate=0.01
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy
  epochs: 80
  update: worker
  every: 4
  shards: 2
checkpoint: {dir: ckpt, steps: 100}
save: model.safetensors
log: {dir: logs}
YAML

until_trains()
{
    local i
    for i in $(seq 400); do
        [ "$(grep -sc '^Epoch' out.txt)" -ge "${1:-2}" ] 2>/dev/null && return
        sleep 0.05
    done
    echo "FAILED: the job did not begin"
    cat err.txt
    bad=$((bad + 1))
}

again()
{
    rm -rf ckpt logs model.safetensors out.txt err.txt
}

task()
{
    pgrep -P "$launcher" -f -- "--task $1 "
}

# 480 samples in batches of 16: 30 batches an epoch, 8 rounds, the last of 2
want 0 "Epoch 80/80" "$WEFT" train job.yaml
check "it learns" awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == "val_accuracy") k = i } END { exit !($k > 0.7) }' logs/history.csv
check "the last checkpoint counts batches" test -d ckpt/ckpt-000002400
mv model.safetensors wanted
mv logs/history.csv wanted.csv
again

# the bits of one process
for flags in "--ps 2 --workers 2" "--ps 1 --workers 3 --transport tcp" "--ps 2 --workers 1 --transport uds"; do
    # shellcheck disable=SC2086
    want 0 "Epoch 80/80" "$WEFT" launch job.yaml $flags
    same model.safetensors wanted
    same logs/history.csv wanted.csv
    again
done

# killed tasks
for victim in worker/1 worker/0 ps/0 chief/0; do
    "$WEFT" launch job.yaml --ps 2 --workers 2 >out.txt 2>err.txt &
    launcher=$!
    until_trains
    kill -9 "$(task $victim)"
    wait $launcher || { echo "FAILED: $victim was killed, and the job failed"; cat err.txt; bad=$((bad + 1)); }
    same model.safetensors wanted
    same logs/history.csv wanted.csv
    again
done

# the only server: back to the last checkpoint
"$WEFT" launch job.yaml --ps 1 --workers 2 >out.txt 2>err.txt &
launcher=$!
until_trains
kill -9 "$(task ps/0)"
wait $launcher || { echo "FAILED: the only server was killed, and the job failed"; cat err.txt; bad=$((bad + 1)); }
same model.safetensors wanted
again

# the launcher; then one process resumes, and is stopped by Ctrl-C, and servers resume
"$WEFT" launch job.yaml --ps 2 --workers 2 >out.txt 2>err.txt &
launcher=$!
until_trains 8
kill -9 $launcher
wait $launcher 2>/dev/null
for _ in $(seq 50); do # its tasks die with it, in a moment
    pgrep -f -- "$TMPDIR" >/dev/null || break
    sleep 0.1
done
"$WEFT" train job.yaml --set train.epochs=40 >out.txt 2>err.txt || { echo "FAILED: resuming in one process"; cat err.txt; bad=$((bad + 1)); }
check "it resumed" grep -q "resuming from" out.txt err.txt
want 0 "Epoch 80/80" "$WEFT" launch job.yaml --ps 1 --workers 2
same model.safetensors wanted
same logs/history.csv wanted.csv

# a resumed run with other rounds is another run
want 0 "train.every changed from '4' to '5'" "$WEFT" train job.yaml --set train.every=5 --set train.epochs=81
again

# what cannot be
want 3 "need update=worker" "$WEFT" train job.yaml --set train.update=server
want 3 "use every" "$WEFT" train job.yaml --set train.accumulate=2
want 3 "did you mean" "$WEFT" train job.yaml --set train.update=workers
want 3 "train.every" "$WEFT" train job.yaml --set train.every=0
exit $((bad > 0))

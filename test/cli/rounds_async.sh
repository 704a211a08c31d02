#!/usr/bin/env bash
# train.update: worker with cluster.consistency async and stale(S). It learns as well as in rounds that wait, whatever is killed; one worker has the bits of those; a stopped run resumes between two rounds.
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
cluster: {consistency: async}
checkpoint: {dir: ckpt, steps: 100}
save: model.safetensors
log: {dir: logs}
YAML

until_trains()
{
    for _ in $(seq 400); do
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

# the mean of a column over the last ten epochs
last()
{
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) k = i; next }
        { v[NR] = $k } END { for (i = NR - 9; i <= NR; i++) s += v[i]; print s / 10 }' logs/history.csv
}

# 480 samples in batches of 16: 30 batches an epoch, 8 rounds, the last of 2
learned()
{
    check "$1: all epochs" test "$(wc -l <logs/history.csv)" = 81
    check "$1: the last checkpoint counts batches" test -d ckpt/ckpt-000002400
    check "$1: it learns, $(last val_accuracy) of $accuracy, loss $(last loss) of $loss" awk -v a="$(last val_accuracy)" -v b="$accuracy" -v x="$(last loss)" -v y="$loss" \
        'BEGIN { exit !(a > b - 0.1 && x < 1.3 * y) }'
}

# rounds that wait for each other
want 0 "Epoch 80/80" "$WEFT" launch job.yaml --ps 1 --workers 2 --set cluster.consistency=sync
accuracy=$(last val_accuracy)
loss=$(last loss)
check "it learns, $accuracy" awk -v a="$accuracy" 'BEGIN { exit !(a > 0.75) }'
again

# one worker that reads what it wrote: merges of one logical worker are those of rounds that wait
for merge in mean models; do
    want 0 "Epoch 80/80" "$WEFT" train job.yaml --set cluster.consistency=sync --set train.shards=1 --set train.merge=$merge
    mv model.safetensors wanted
    mv logs/history.csv wanted.csv
    again
    want 0 "Epoch 80/80" "$WEFT" launch job.yaml --ps 2 --workers 1 --set train.shards=1 --set train.merge=$merge --consistency "stale(1)"
    same model.safetensors wanted
    same logs/history.csv wanted.csv
    again
done

for flags in "--ps 1 --workers 3" "--ps 2 --workers 2 --transport tcp --set train.merge=models" "--ps 2 --workers 3 --consistency stale(2)" "--ps 1 --workers 2 --set train.merge=sum --set train.optimizer=adam --set train.every=2"; do
    # shellcheck disable=SC2086
    want 0 "Epoch 80/80" "$WEFT" launch job.yaml $flags
    learned "$flags"
    again
done

# killed tasks, the only server among them
for victim in worker/1 worker/0 ps/0 chief/0 only; do
    servers=2
    [ $victim = only ] && servers=1
    "$WEFT" launch job.yaml --ps $servers --workers 2 >out.txt 2>err.txt &
    launcher=$!
    until_trains
    kill -9 "$(task ${victim/only/ps/0})"
    wait $launcher || { echo "FAILED: $victim was killed, and the job failed"; cat err.txt; bad=$((bad + 1)); }
    learned "$victim"
    again
done

# Ctrl-C; it continues in rounds that wait, and then in leases again
"$WEFT" launch job.yaml --ps 2 --workers 2 >out.txt 2>err.txt &
launcher=$!
until_trains 8
kill -INT $launcher
wait $launcher
"$WEFT" launch job.yaml --ps 1 --workers 2 --set cluster.consistency=sync --set train.epochs=40 >out.txt 2>err.txt || { echo "FAILED: resuming in rounds that wait"; cat err.txt; bad=$((bad + 1)); }
check "it resumed" grep -q "resuming from" out.txt err.txt
want 0 "Epoch 80/80" "$WEFT" launch job.yaml --ps 1 --workers 3
learned "resumed"
again

# what cannot be
want 3 "needs strategy: ps" "$WEFT" train job.yaml --set train.strategy=mirrored
exit $((bad > 0))

#!/usr/bin/env bash
# What a person sees on a terminal: a bar that fits it, with and without colors; messages on lines of their own.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
script -qec true /dev/null </dev/null >/dev/null 2>&1 || { echo "no pseudo-terminals here"; exit 0; }

awk 'BEGIN { srand(3); print "a,b,kind"
    for (i = 0; i < 600; i++) { k = i % 3; printf "%.3f,%.3f,%d\n", 1 + k + 2 * rand(), 3 - k + 2 * rand(), k } }' >data.csv
cat >job.yaml <<'YAML'
data:
  train: {path: data.csv, label: kind, index: true}
  pipeline: [{join: {columns: "a, b", to: features}}]
  validation_split: 0.2
  batch: 1
model: [{Dense: {units: 20000, activation: relu}}, {Dense: {units: 3}}]
train:
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy, sparse_top_k_categorical_accuracy k=2
  epochs: 2
YAML
esc=$(printf '\033')
# on COLUMNS VARIABLE=VALUE... -- flags...: the lines as the screen has them one after the other, without escape sequences
on()
{
    local columns=$1 settings=()
    shift
    while [ "$1" != -- ]; do settings+=("$1"); shift; done
    shift
    env TERM=xterm "${settings[@]}" script -qec "stty cols $columns; '$WEFT' train job.yaml $*" /dev/null </dev/null >raw.txt
    tr '\r' '\n' <raw.txt | sed "s/$esc\\[[0-9;]*[a-zA-Z]//g; s/━/=/g; s/─/-/g" >seen.txt
}

for columns in 40 80 100; do
    on $columns NO_COLOR= --
    check "lines fit $columns columns" awk -v w=$columns '/loss:/ && length($0) >= w { bad = 1 } END { exit bad || !NR }' seen.txt
    check "loss of validation at $columns columns" grep -q "val_loss" seen.txt
done
{ head -1 data.csv; for _ in 1 2 3 4 5 6 7 8 9 10; do tail -n +2 data.csv; done; } >more.csv # the bar is painted every 50 ms
on 80 NO_COLOR=1 -- --set data.train.path=more.csv
check "no colors" bash -c "! grep -qF '$esc[32m' raw.txt"
check "a bar that is not full" grep -qE '[0-9] =*--+ ' seen.txt

# Ctrl-C in the middle of a line: the message has a line of its own
on 80 NO_COLOR= -- --set train.epochs=100000 --set checkpoint.dir=ckpt '& sleep 2; kill -INT $!; wait $!'
check "a message of its own line" grep -q '^weft: stopped after step' seen.txt

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

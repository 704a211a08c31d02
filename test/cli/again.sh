#!/usr/bin/env bash
# Runs one after the other: --fresh keeps what was there under a number, compare and report set runs side by side; keys and help.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

awk 'BEGIN { srand(3); print "a,b,kind"
    for (i = 0; i < 300; i++) { k = i % 3; printf "%.3f,%.3f,%d\n", 1 + k + 2 * rand(), 3 - k + 2 * rand(), k } }' >data.csv
cat >job.yaml <<'YAML'
data:
  train: {path: data.csv, label: kind, index: true}
  pipeline: [{join: {columns: "a, b", to: features}}]
  validation_split: 0.2
model: [{Dense: {units: 8, activation: relu}}, {Dense: {units: 3}}]
train: {optimizer: adam learning_rate=0.01, loss: sparse_categorical_crossentropy from_logits=true, metrics: accuracy, epochs: 4}
checkpoint: {dir: ckpt}
log: {dir: logs}
save: model.safetensors
YAML
want 0 "accuracy" "$WEFT" train job.yaml --fresh --log lines # the first run: nothing to move
check "nothing was moved" test ! -e ckpt.1
cp model.safetensors first.safetensors
echo mine >logs/notes.txt
want 0 "checkpoint.dir of the previous run: now ckpt.1" "$WEFT" train job.yaml --fresh --log none --set "train.optimizer=adam learning_rate=0.1" --set train.epochs=6
check "the old model is kept" cmp first.safetensors model.1.safetensors
check "the old log is kept" grep -q "^3," logs.1/history.csv
check "files of others stay" grep -q mine logs/notes.txt
check "no note in the old log" test ! -e logs.1/notes.txt
want 0 "ckpt-" ls ckpt.1
want 0 "" "$WEFT" eval job.yaml data.csv --model ckpt.1
"$WEFT" train job.yaml --fresh --log none 2>/dev/null # the third with the settings of the first: the same bits
check "the same bits as the first time" cmp first.safetensors model.safetensors
check "the next number" test -d ckpt.2 -a -d logs.2 -a -e model.2.safetensors
want 2 "--log takes one of" "$WEFT" train job.yaml --fresh --log jsno
check "a mistake moves nothing" test -d ckpt -a ! -e ckpt.3

# a running job is not moved away
"$WEFT" train job.yaml --log lines --set train.epochs=1000000 --set checkpoint.steps=1 >out.txt 2>&1 &
for _ in $(seq 100); do grep -q "Epoch 6" out.txt && break; sleep 0.1; done
want 1 "another process is training in" "$WEFT" train job.yaml --fresh --log none
kill -INT $!
wait $! 2>/dev/null
check "it is where it was" test ! -e ckpt.3
# a folder that holds other things than the run's
mkdir -p mixed/train
echo picture >mixed/train/cat.png
want 0 "" "$WEFT" train job.yaml --log none --set checkpoint.dir=mixed --set log.dir=mixed --set save=
want 0 "" "$WEFT" train job.yaml --log none --fresh --set checkpoint.dir=mixed --set log.dir=mixed --set save=
check "pictures stay" test -s mixed/train/cat.png

# side by side
want 0 "train.optimizer" "$WEFT" compare job.yaml ckpt.1 ckpt.2 logs.1
want 0 "best of val_accuracy" "$WEFT" compare ckpt.1 ckpt.2
"$WEFT" compare ckpt.1 ckpt.2 >table.txt
check "epochs of both" grep -qE '^epochs +4 +6' table.txt
check "what is the same is not shown" bash -c "! grep -q 'data.batch\|train.loss' table.txt"
want 0 '"train.epochs": "6"' "$WEFT" compare ckpt.1 ckpt.2 --json
want 3 "nothing" "$WEFT" compare nothing
want 2 "needs 1 to 12 runs" "$WEFT" compare
want 0 "" "$WEFT" report ckpt.1 ckpt.2 logs.1 --out page.html
for text in "Runs compared" "ckpt.1" "logs.1" "learning_rate=0.1" "val_accuracy" 'class="curve run1"' "Settings that differ"; do
    check "'$text' in the page" grep -qF -- "$text" page.html
done
check "nothing from elsewhere" bash -c "! grep -qE 'https?://|<script|<link|src=' page.html"
want 0 "" "$WEFT" report ckpt.1 --out one.html
check "a page of one folder" grep -qF "Runs compared" one.html
want 0 "" "$WEFT" report job.yaml --out job.html
check "times are those of the checkpoint" grep -qF "waiting for data" job.html

# words
want 0 "units                        int      (required)" "$WEFT" keys Dense
want 0 "train.optimizer: adam learning_rate=0.001" "$WEFT" keys adam
want 0 "MeanSquaredError: a metric" "$WEFT" keys mse
want 0 "MeanSquaredError: a loss" "$WEFT" keys mean_squared_error
want 0 "restore_best_weights         bool     false" "$WEFT" keys EarlyStopping
want 0 "warmup_steps" "$WEFT" keys cosine_decay
want 0 "type: int, default: 1" "$WEFT" keys train.epochs
want 0 "train.shards" "$WEFT" keys train
want 0 "depth" "$WEFT" keys one_hot
want 2 "did you mean 'Dense'?" "$WEFT" keys Densee
for text in "kernel_initializer=glorot_uniform" "patience=0" "beta_1=0.9" "curve=ROC" "delta=1" "to=features"; do
    want 0 "$text" "$WEFT" keys
done
check "keys fit 100 columns" bash -c "! '$WEFT' keys | sed 's/[^ -~]/x/g' | grep -qE '^.{101}'"
for table in losses metrics stages layers; do
    "$WEFT" keys $table >table.txt
    check "keys $table: texts start in one column" awk '/^  [^ ]/ { match($0, /^  [^ ]+ +/); if (w && RLENGTH != w) bad = 1; w = RLENGTH }
        END { exit bad || !w }' table.txt
done
"$WEFT" keys train >table.txt
check "keys train: texts start in one column" awk '/^  [^ ]/ { match($0, /^  [^ ]+ +/); if (w && RLENGTH != w) bad = 1; w = RLENGTH }
    END { exit bad || !w }' table.txt

# help and completion
want 0 "data stats" "$WEFT" data --help
want 0 "data stats" "$WEFT" help data
want 0 "usage: weft train JOB.yaml" "$WEFT" help train
want 0 "usage: weft data stats" "$WEFT" help data stats
want 2 "did you mean \`weft train\`" "$WEFT" help trian
want 2 "needs a subcommand" "$WEFT" bench
want 2 "bench data" "$WEFT" bench
want 0 "lines" "$WEFT" --complete train job.yaml --log
PATH=$(dirname "$WEFT"):$PATH
want 0 "lines" bash -c 'source <(weft completion bash); COMP_WORDS=(weft train job.yaml --log li); COMP_CWORD=4; _weft; echo "${COMPREPLY[@]}"'
want 0 "json" bash -c 'source <(weft completion bash); COMP_WORDS=(weft train --log = j); COMP_CWORD=4; _weft; echo "${COMPREPLY[@]}"'
command -v fish >/dev/null && want 0 "json" fish -c 'weft completion fish | source; complete -C "weft train --log j"'

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

#!/usr/bin/env bash
# What a run leaves behind: log.dir with history, event files and a page; weft history and weft report; the same after kills.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

awk 'BEGIN { srand(3); print "a,b,kind"
    for (i = 0; i < 300; i++) { k = i % 3; printf "%.3f,%.3f,%d\n", 1 + k + 2 * rand(), 3 - k + 2 * rand(), k } }' >data.csv
mkdir jobs
cat >jobs/job.yaml <<'YAML'
name: a <small> job
data:
  train: {path: ../data.csv, label: kind, index: true}
  pipeline: [{join: {columns: "a, b", to: features}}]
  validation_split: 0.2
model:
  - Dense: {units: 16, activation: relu}
  - Dense: {units: 3}
train:
  optimizer: adam learning_rate=0.02
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy
  epochs: 5
  callbacks:
    - ModelCheckpoint: {filepath: "best/{epoch}.safetensors", save_best_only: true}
checkpoint: {dir: ckpt, steps: 3}
log: {dir: logs, classes: [setosa, "x&y", third], steps: 2}
YAML
job=jobs/job.yaml
want 0 "report: jobs/logs/report.html" "$WEFT" train $job --log lines
check "model files next to the job" test -f jobs/best/1.safetensors
cp jobs/logs/history.csv whole.csv
for f in jobs/logs/events.* jobs/logs/train/events.* jobs/logs/validation/events.*; do
    check "event file $f" test -s "$f"
done
page=jobs/logs/report.html
for text in "a &lt;small&gt; job" "5 of 5 epochs" "<svg" "Confusion matrix" "x&amp;y" "validation data" "Worst mistakes" \
    "waiting for data" "Total params" "save_best_only" "processor"; do
    check "'$text' in the page" grep -qF -- "$text" $page
done
check "nothing from elsewhere" bash -c "! grep -qE 'https?://|<script|<link|src=\"[^d]' $page"

# the table: by folder, by job, from checkpoints
want 0 "val_accuracy" "$WEFT" history jobs/logs
[ "$("$WEFT" history $job | wc -l)" = 6 ] || { echo "FAILED: five epochs"; bad=$((bad + 1)); }
[ "$("$WEFT" history jobs/ckpt --json | wc -l)" = 5 ] || { echo "FAILED: five epochs of checkpoints"; bad=$((bad + 1)); }
want 0 '"epoch": 5' "$WEFT" history jobs/ckpt --json
want 3 "No such file" "$WEFT" history nothing
want 2 "needs a directory" "$WEFT" history
echo "a,b" >odd.csv
want 3 "its first column is not 'epoch'" "$WEFT" history odd.csv
want 0 "" "$WEFT" report $job --out page.html
check "a page from the checkpoint" grep -qF "Confusion matrix" page.html

# killed at any time and started again: the same history, every epoch once
rm -rf jobs/ckpt jobs/logs
for t in 0.05 0.08 0.03 0.12 0.06 0.1; do
    "$WEFT" train $job --log none >/dev/null 2>&1 &
    sleep $t
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
want 0 "" "$WEFT" train $job --log none
check "the same history after kills" cmp whole.csv jobs/logs/history.csv
check "all epochs in the page" grep -qF "5 of 5 epochs" $page

# logging can be switched off and on between runs of one job
rm -rf jobs/ckpt jobs/logs
want 0 "" "$WEFT" train $job --log none --set train.epochs=2
want 0 "" "$WEFT" train $job --log json --set log.tensorboard=false --set log.csv=false
want 0 "" "$WEFT" train $job --log none --set log.dir= --set train.epochs=6
want 3 "no key 'reports' in 'log', did you mean 'report'?" "$WEFT" train $job --set log.reports=1

# quantities instead of classes: predicted against true, errors, the largest ones
awk 'BEGIN { srand(5); print "x,y,price"
    for (i = 0; i < 300; i++) { x = rand(); y = rand(); printf "%.3f,%.3f,%.3f\n", x, y, 10 * x - 2 * y + rand() } }' >price.csv
cat >price.yaml <<'YAML'
data:
  train: {path: price.csv, label: price, index: true}
  pipeline: [{join: {columns: "x, y", to: features}}]
  validation_split: 0.2
model: [{Dense: {units: 1}}]
train: {optimizer: adam learning_rate=0.1, loss: mean_squared_error, metrics: mean_absolute_error, epochs: 3,
        callbacks: [{ReduceLROnPlateau: {monitor: loss, patience: 1, min_delta: 1000}}]}
checkpoint: {dir: ckpt2}
log: {dir: logs2}
YAML
want 0 "report: logs2/report.html" "$WEFT" train price.yaml --log lines
page=logs2/report.html
for text in "predicted against true" "predicted minus true" "60 values of the validation data" "validation, R²" "Largest errors" \
    'class="bar"' 'class="even"' "learning_rate" "Training waited for checkpoints for"; do
    check "'$text' in the page" grep -qF -- "$text" $page
done
check "no matrix of quantities" bash -c "! grep -q 'Confusion matrix' $page"
[ "$(grep -o 'class="dot"' $page | wc -l)" = 60 ] || { echo "FAILED: sixty points"; bad=$((bad + 1)); }
[ "$(grep -o '<td>#[0-9]*</td>' $page | wc -l)" = 12 ] || { echo "FAILED: twelve errors"; bad=$((bad + 1)); }
mae=$("$WEFT" history logs2 --json | tail -1 | sed 's/.*"val_mean_absolute_error": \([0-9.]*\).*/\1/')
check "the page's mean absolute error is the run's" grep -qF "mean absolute error $(printf %.4g "$mae")" $page
# a truth that does not vary has no R²
awk 'BEGIN { print "x,y,price"; for (i = 0; i < 40; i++) printf "%d,%d,5\n", i, i % 7 }' >price.csv
want 0 "report: logs3/report.html" "$WEFT" train price.yaml --log lines --set checkpoint.dir= --set log.dir=logs3
check "errors of it" grep -qF "root mean square error" logs3/report.html
check "no number that is none" bash -c "! grep -qi '\bnan\b' logs3/report.html"

# weights that EarlyStopping restored: the page shows their epoch, now and when it is written again
cat >best.yaml <<'YAML'
data:
  train: {path: two.csv, label: sick, index: true}
  pipeline: [{lookup: {columns: sick, unknown: 0}}, {join: {columns: "a, b", to: features}}, {select: {columns: "features, sick"}}]
  validation_split: 0.3
  validation_by: random
model: [{Dense: {units: 64, activation: relu}}, {Dense: {units: 1, activation: sigmoid}}]
train:
  optimizer: adam learning_rate=0.2
  loss: binary_crossentropy
  metrics: accuracy, AUC
  epochs: 30
  callbacks: [{EarlyStopping: {monitor: val_loss, patience: 4, restore_best_weights: true}}]
checkpoint: {dir: ckpt4}
log: {dir: logs4}
YAML
awk 'BEGIN { srand(8); print "a,b,sick"
    for (i = 0; i < 300; i++) { s = rand() < 0.3; printf "%.3f,%.3f,%s\n", s + 1.5 * rand(), rand(), s ? "yes" : "no" } }' >two.csv
want 0 "Restoring model weights from the end of the best epoch" "$WEFT" train best.yaml --log lines
epoch=$("$WEFT" history ckpt4 --json | awk -F'"val_loss": ' '{ split($2, v, ","); if (NR == 1 || v[1] + 0 < best) { best = v[1] + 0; at = NR } } END { print at }')
loss=$("$WEFT" history ckpt4 --json | sed -n "${epoch}p" | sed 's/.*"val_loss": \([0-9.e-]*\).*/\1/')
want 0 "" "$WEFT" report best.yaml --out again.html
for page in logs4/report.html again.html; do
    check "$page: weights of epoch $epoch" grep -qF "The saved weights are those of the best epoch, $epoch;" $page
    check "$page: its loss of validation, $loss" grep -qF "<span class=\"soft\">val_<wbr>loss</span><b>$(printf %.4g "$loss")</b>" $page
    for text in "ROC and precision-recall" "yes: AUC 0." "false positive rate" "true: yes<br>" "predicted: no"; do
        check "'$text' in $page" grep -qF -- "$text" $page
    done
done
measured=$("$WEFT" eval best.yaml --part validation --json | sed 's/.*"auc": \([0-9.]*\).*/\1/')
shown=$(grep -o 'yes: AUC [0-9.]*' again.html | sed 's/.* //')
check "the area under the curve is the metric's ($shown, $measured)" awk "BEGIN { d = $shown - $measured; exit !(d * d < 0.0004) }"

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

#!/usr/bin/env bash
# What a run meets in its life: closed streams, signals while it reads data, limits, and settings that change between commands.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

three_kinds 240 >data.csv
{ small_job 3 yes; printf '%s\n' 'checkpoint: {dir: ckpt}' 'log: {dir: log}' 'save: model.safetensors'; } >job.yaml
fresh() { rm -rf ckpt log model.safetensors; }
rows() { awk 'END { print NR }' log/history.csv; }

# ---- streams and signals
# closed streams: no file takes their numbers
fresh
"$WEFT" train job.yaml --log lines >&- 2>&- <&-
[ $? -eq 0 ] || { echo "FAILED: exit code with closed streams"; bad=$((bad + 1)); }
check "no text in files" bash -c '! grep -rqa -e "Epoch 1" -e "weft:" log ckpt'
check "the history of all epochs" test "$(rows)" = 4
check "every event file reads" bash -c 'for f in log/train/* log/validation/*; do '"'$WEFT'"' data inspect --format tfrecord "$f" || exit 1; done'

# SIGUSR1 before there is anything to save
fresh
mkfifo job.fifo
"$WEFT" train job.fifo --log none >out.txt 2>&1 &
pid=$!
# until it is weft itself, and has said that it catches the signal (bit 9); or long enough
for _ in {1..100}; do
    [ "$(cat "/proc/$pid/comm")" = "$(basename "$WEFT")" ] && (((0x$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$pid/status") & 0x200) != 0)) && break
    sleep 0.05
done
kill -USR1 $pid
sleep 0.2
check "alive after SIGUSR1" kill -0 $pid
# a reader that died must not keep us waiting
timeout 20 bash -c 'cat job.yaml >job.fifo'
wait $pid
[ $? -lt 128 ] || { echo "FAILED: exit code after an early SIGUSR1"; cat out.txt; bad=$((bad + 1)); }

# a limit on the size of files is an error with a message
fresh
want 3 "save: model.safetensors: cannot write: File too large" bash -c "ulimit -f 1; '$WEFT' train job.yaml --log none --set model.0.Dense.units=4000 --set checkpoint.dir= --set log.dir="

# the learning rate that an epoch used
fresh
"$WEFT" train job.yaml --log json --set 'train.callbacks=[{ReduceLROnPlateau: {monitor: loss, patience: 1, min_delta: 9, factor: 0.5}}]' >out.txt 2>/dev/null
check "rates as used" test "$(sed -n 's/.*"learning_rate": \([0-9.e-]*\),.*/\1/p' out.txt | head -3 | cut -c1-6 | tr '\n' ' ')" = "0.0099 0.0099 0.0049 "

# ---- folders and files
# names of job folders are names, whatever is in them
for name in 'back\slash' $'new\nline' 'br{a}ce' 'a\5cb'; do
    mkdir "$name"
    cp data.csv "$name"
    sed 's/^  epochs: 3/  epochs: 1\n  callbacks: [{CSVLogger: {filename: rows.csv}}, {ModelCheckpoint: {filepath: "m-{epoch}.safetensors"}}]/' \
        job.yaml >"$name/job.yaml"
    want 0 "test: loss" "$WEFT" train "$name/job.yaml" --log lines
    for f in rows.csv m-1.safetensors log/history.csv log/report.html; do check "$f of $name" test -s "$name/$f"; done
done

# a checkpoint that was renamed is not the newest
fresh
want 0 "" "$WEFT" train job.yaml --log none --set train.epochs=2
mv ckpt/ckpt-000000012 ckpt/ckpt-000000999
want 0 "says step 999, its manifest says step 12" "$WEFT" ckpt ls ckpt
want 3 "says step 999, its manifest says step 12" "$WEFT" ckpt verify ckpt
"$WEFT" train job.yaml --log lines --set train.epochs=2 >out.txt 2>&1
want 0 "ckpt-000000999 is damaged; skipping it" cat out.txt
want 0 "this run is complete, 2 epochs of 2" cat out.txt

# history.csv may go, the run resumes; more epochs keep the earlier rows
fresh
"$WEFT" train job.yaml --log none --set train.epochs=5 >/dev/null 2>&1
cp log/history.csv all.csv
for harm in true "rm log/history.csv" "mv log/history.csv elsewhere.csv" "truncate -s 20 log/history.csv"; do
    fresh
    want 0 "" "$WEFT" train job.yaml --log none
    $harm
    want 0 "Epoch 5/5" "$WEFT" train job.yaml --log lines --set train.epochs=5
    same log/history.csv all.csv
    check "all epochs in the report" grep -q "5 of 5 epochs" log/report.html
    check "events of all epochs, once" test "$(cat log/train/* | grep -ao epoch_loss | wc -l)" = 5
    check "times of all epochs in the report" test "$(grep -c '^<tr><td>[1-5]</td><td>12</td>' log/report.html)" = 5
done

# what is lost in the log is told from the checkpoints
printf 'epoch,accuracy,loss,val_accuracy,val_loss\n0,1,1,1,1\n' >log/history.csv
check "all epochs" test "$("$WEFT" history job.yaml | wc -l)" = 6
want 0 "" "$WEFT" report job.yaml --out again.html
want 0 "5 of 5 epochs" cat again.html
printf 'rubbish' >log/history.csv
want 0 "not a history" "$WEFT" history job.yaml
check "all epochs of a damaged log" test "$("$WEFT" history job.yaml 2>/dev/null | wc -l)" = 6

# a stateful model has its report, and its states are its own
awk 'BEGIN { print "s,k"; for (i = 0; i < 80; i++) printf "%.3f,%.3f\n", sin(i / 5), sin((i + 1) / 5) }' >waves.csv
cat >stateful.yaml <<'YAML'
data:
  train: {path: waves.csv, label: k, index: true}
  validation: {path: waves.csv, label: k, take: 40}
  batch: 8
  shuffle: false
model:
  - Reshape: {target_shape: [1, 1]}
  - LSTM: {units: 4, stateful: true, batch_size: 8}
  - Dense: {units: 1}
train: {loss: mse, epochs: 1}
log: {dir: slog}
YAML
"$WEFT" train stateful.yaml --log none --set save=a.safetensors >out.txt 2>&1
check "the page of a stateful model" grep -q "Predictions" slog/report.html
"$WEFT" train stateful.yaml --log none --set save=b.safetensors --set log.report=false >out.txt 2>&1
same a.safetensors b.safetensors

# ---- settings that change between commands
# a complete run: what is not taken up is named, and its files stay what was trained
fresh
want 0 "" "$WEFT" train job.yaml --log none
cp log/report.html page.html
"$WEFT" train job.yaml --log lines --set 'train.optimizer=sgd learning_rate=9' --set data.batch=8 --set log.steps=2 --set data.train.take=100 >out.txt 2>&1
[ $? -eq 0 ] || { echo "FAILED: exit code of a complete run"; bad=$((bad + 1)); }
for text in "train.optimizer changed from 'adam learning_rate=0.01' to 'sgd learning_rate=9': ignored, because this run is complete" \
    "data.batch changed from '16' to '8': ignored" "data.train.take changed from '' to '100': ignored"; do
    want 0 "$text" cat out.txt
done
check "no word of what may change at any time" bash -c '! grep -q "log.steps changed" out.txt'
same log/report.html page.html
check "the page has what was trained" bash -c 'grep -q "optimizer: adam learning_rate=0.01" log/report.html && ! grep -q "sgd" log/report.html'
cp model.safetensors kept.safetensors
want 3 "model.0.Dense.activation changed from 'relu' to 'tanh', but this run is complete" "$WEFT" train job.yaml --log none --set model.0.Dense.activation=tanh
same model.safetensors kept.safetensors
want 3 "train.loss changed from" "$WEFT" train job.yaml --log none --set train.loss=sparse_categorical_crossentropy
want 0 "train.optimizer changed from 'adam learning_rate=0.01' to 'sgd momentum=0.9': ignored" "$WEFT" train job.yaml --log none --set 'train.optimizer=sgd momentum=0.9'
want 0 "this run is complete" "$WEFT" train job.yaml --log lines --set 'train.optimizer=lamb'
want 0 "" "$WEFT" eval job.yaml
# the same values in other words are no change
want 0 "this run is complete" "$WEFT" train job.yaml --log lines --set 'train.optimizer={name: adam, learning_rate: 0.01}' --set data.validation_split=2e-1
check "no change is told" bash -c "! '$WEFT' train job.yaml --log lines --set 'train.optimizer={name: adam, learning_rate: 0.01}' --set data.validation_split=2e-1 2>&1 | grep changed"
(here=$PWD && cd / && "$WEFT" train "$here/job.yaml" --log lines) >out.txt 2>&1
check "nor from another folder" bash -c '! grep -q changed out.txt'

# a resumed run: used from there on, and the page says so for good
want 0 "train.optimizer changed from 'adam learning_rate=0.01' to 'adam learning_rate=0.02': used from step 36 on" \
    "$WEFT" train job.yaml --log none --set train.epochs=4 --set 'train.optimizer=adam learning_rate=0.02'
want 0 "" "$WEFT" train job.yaml --log none --set train.epochs=5 --set 'train.optimizer=adam learning_rate=0.02'
want 0 "# since step 36: train.optimizer = adam learning_rate=0.02 (it was adam learning_rate=0.01)" cat log/report.html
want 0 "" "$WEFT" report job.yaml --out again.html
want 0 "adam learning_rate=0.02 (it was" cat again.html

# weights whose meaning would be another one
want 0 "model.0.Dense.activation was 'relu' when ckpt/ckpt-000000060 was trained, but is 'tanh' here" \
    "$WEFT" eval job.yaml --set model.0.Dense.activation=tanh
want 3 "the report would not describe the run" "$WEFT" report job.yaml --out again.html --set model.0.Dense.activation=tanh

# ---- numbers
fresh
sed '5s/^[^,]*/nan/' data.csv >nan.csv
want 1 "column 'features' of the data is nan in sample 3; clean the data; no model was written to model.safetensors" \
    "$WEFT" train job.yaml --log none --set data.train.path=nan.csv
check "no model" test ! -e model.safetensors
fresh
want 1 "produced inf" "$WEFT" train job.yaml --log none --set 'train.optimizer=sgd learning_rate=1e38'
want 3 "returned no samples" "$WEFT" train job.yaml --log none --set data.test.skip=1000 --set checkpoint.dir=
want 0 "" "$WEFT" train job.yaml --log none
want 3 "evaluate: the dataset returned no samples" "$WEFT" eval job.yaml --set data.test.skip=1000

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

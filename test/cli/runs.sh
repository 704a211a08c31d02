#!/usr/bin/env bash
# How runs end: by themselves, by a callback, by a signal, by a loss that is not finite, by closed output; what the newest
# checkpoint then contains, and what the same command does next.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

# begun FILE: waits until the run that writes there has reached its first epoch
begun()
{
    for _ in {1..600}; do grep -q Epoch "$1" && return; sleep 0.1; done
    echo "FAILED: no epoch in a minute"
    bad=$((bad + 1))
}

three_kinds 480 >data.csv
{ small_job 4 yes; printf '%s\n' 'checkpoint: {dir: ckpt}'; } >job.yaml
test_of() { sed -n 's/^test: //p'; }

# the newest checkpoint contains the weights that training ended with, however often checkpoints are written
for steps in 7 24 1000; do
    rm -rf ckpt
    ended=$("$WEFT" train job.yaml --log lines --set checkpoint.steps=$steps 2>/dev/null | test_of)
    want 0 "$ended" "$WEFT" eval job.yaml
done
want 0 "this run is complete, 4 epochs of 4" "$WEFT" train job.yaml --log lines
want 0 "Epoch 5/5" "$WEFT" train job.yaml --log lines --set train.epochs=5

# a callback ends the run: a normal end, with the best weights in the checkpoint
rm -rf ckpt
early='train.callbacks=[{EarlyStopping: {monitor: val_loss, patience: 1, min_delta: 9, restore_best_weights: true}}]'
"$WEFT" train job.yaml --log lines --set "$early" --set train.epochs=9 >out.txt 2>&1
[ $? -eq 0 ] || { echo "FAILED: exit code after EarlyStopping"; bad=$((bad + 1)); }
want 0 "early stopping" cat out.txt
want 0 "$(test_of <out.txt | grep .)" "$WEFT" eval job.yaml
want 0 "a callback ended this run after epoch 2" "$WEFT" train job.yaml --log lines --set "$early" --set train.epochs=9
check "as many epochs as before" test "$("$WEFT" history ckpt | wc -l)" = 3
want 0 "Epoch 3/10" "$WEFT" train job.yaml --log lines --set "$early" --set train.epochs=10

# history.csv has the same columns, whether the first row of a run that resumes has validation or not
rm -rf ckpt
scaled=(--log none --set train.precision=f16 --set train.validation_freq=2 --set log.dir=logs --set log.report=false --set log.tensorboard=false)
want 0 "" "$WEFT" train job.yaml "${scaled[@]}"
mv logs/history.csv wanted.csv
rm -rf ckpt logs
for epochs in 1 3 4; do want 0 "" "$WEFT" train job.yaml "${scaled[@]}" --set train.epochs=$epochs; done
same logs/history.csv wanted.csv
rm -rf logs

# the best by validation are kept, and "best" knows its direction
rm -rf ckpt
want 0 "" "$WEFT" train job.yaml --log none --set train.epochs=8 --set checkpoint.keep_last=1 --set checkpoint.keep_best=2 \
    --set checkpoint.monitor=val_accuracy --set checkpoint.steps=5
kept=$("$WEFT" ckpt ls ckpt --monitor val_accuracy | awk 'NR > 1 { print $8 }' | sort -rg | head -1)
top=$("$WEFT" history ckpt --json | sed 's/.*"val_accuracy": \([0-9.]*\).*/\1/' | sort -rg | head -1)
check "the best of all epochs ($top) is among those kept ($kept)" awk "BEGIN { exit !($top - $kept < 1e-5) }"
want 3 "there is no 'val_acuracy' to monitor, did you mean 'val_accuracy'" "$WEFT" train job.yaml --set checkpoint.monitor=val_acuracy

want 3 "callback 'EarlyStopping': there is no 'val_lss' to monitor, did you mean 'val_loss'?" "$WEFT" train job.yaml --log none \
    --set 'train.callbacks=[{EarlyStopping: {monitor: val_lss}}]'

# a loss that is not finite: no good checkpoint is lost to it
rm -rf ckpt
want 0 "" "$WEFT" train job.yaml --log none --set train.epochs=2
before=$(ls ckpt)
want 1 "the loss is nan since epoch 3, batch 1: '" "$WEFT" train job.yaml --log lines --set train.epochs=9 \
    --set 'train.optimizer=adam learning_rate=1e38' --set 'train.callbacks=[TerminateOnNaN]'
rm -rf ckpt
want 0 "" "$WEFT" train job.yaml --log none --set train.epochs=2 --set 'train.optimizer=sgd'
want 1 "no checkpoint is written, the earlier ones are kept" "$WEFT" train job.yaml --log none --set train.epochs=9 \
    --set 'train.optimizer=sgd learning_rate=1e38'
want 1 "the learning rate is 1e+38 now; it was 0.01" "$WEFT" train job.yaml --log lines --set train.epochs=3 \
    --set 'train.optimizer=sgd learning_rate=1e38'
want 1 "val_loss: nan" "$WEFT" train job.yaml --log lines --set train.epochs=3 --set 'train.optimizer=sgd learning_rate=1e38'
want 1 "no model was written to bad.safetensors; the checkpoints are from before" "$WEFT" train job.yaml --log lines --set train.epochs=3 \
    --set 'train.optimizer=sgd learning_rate=1e38' --set save=bad.safetensors
check "no model of such a run" test ! -e bad.safetensors
check "the good checkpoints stay" test "$(ls ckpt)" = "$before"

# a changed job: the run is refused or resumes, and the difference is reported
want 3 "the checkpoint logs loss, accuracy, val_loss, val_accuracy; this run logs loss, val_loss" "$WEFT" train job.yaml --set train.metrics=
want 3 "another directory to start a new one" "$WEFT" train job.yaml --set model.0.Dense.units=8
want 3 "train.optimizer changed from 'sgd' to 'adam learning_rate=0.01': used from step 48 on" "$WEFT" train job.yaml --log none
cp -r ckpt two
# changed KEY WAS IS: from the second epoch on
changed()
{
    rm -rf ckpt
    cp -r two ckpt
    want 0 "$1 changed from '$2' to '$3': used from step 48 on" "$WEFT" train job.yaml --log none --set train.optimizer=sgd --set "$1=$3"
}
changed model.0.Dense.activation relu tanh
changed train.shards 1 2
changed train.accumulate 1 3
changed train.precision f32 bf16

# signals: SIGUSR1 requests a checkpoint, closing the terminal is like Ctrl-C
rm -rf ckpt
: >out.txt
"$WEFT" train job.yaml --log lines --set train.epochs=1000000 --set checkpoint.steps=1000000000 >>out.txt 2>&1 &
begun out.txt
kill -USR1 $!
for _ in {1..600}; do ls ckpt 2>/dev/null | grep -q ckpt- && break; sleep 0.1; done
check "a checkpoint when asked" test "$(ls ckpt | wc -l)" = 1
kill -HUP $!
wait $!
[ $? -eq 130 ] || { echo "FAILED: exit code after SIGHUP"; bad=$((bad + 1)); }
want 0 "the same command resumes from here" cat out.txt
check "one more when it stopped" test "$(ls ckpt | wc -l)" = 2
want 0 "checkpoint requested" cat out.txt

# closed output stops the run like Ctrl-C; a full disk does not
rm -rf ckpt
("$WEFT" train job.yaml --log lines --set train.epochs=1000000 2>err.txt; echo $? >rc.txt) | head -1 >/dev/null
want 0 "standard output was closed: stopped after step" cat err.txt
check "a checkpoint of it" test -n "$(ls ckpt)"
[ "$(cat rc.txt)" = 1 ] || { echo "FAILED: exit code without a reader"; bad=$((bad + 1)); }
rm -rf ckpt
"$WEFT" train job.yaml --log lines >/dev/full 2>err.txt
[ $? -eq 1 ] || { echo "FAILED: exit code of a full disk"; bad=$((bad + 1)); }
want 0 "training continues" cat err.txt
want 0 "this run is complete" "$WEFT" train job.yaml --log lines

# classes beyond the given weights have weight 1
rm -rf ckpt
for weights in "[2, 3]" "[2, 3, 1]"; do
    want 0 "test" "$WEFT" train job.yaml --log lines --set "train.class_weights=$weights" --set checkpoint.dir=
    "$WEFT" train job.yaml --log none --set "train.class_weights=$weights" --set checkpoint.dir= >"weights-${#weights}.txt"
done
check "the same with and without the 1" cmp weights-6.txt weights-9.txt

# a terminal: a bar that never wraps, colors unless NO_COLOR says otherwise, lines where TERM is dumb
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then # a machine may have no pseudo-terminals
    units=20000
    on_terminal() { env "$@" COLUMNS=40 script -qec "'$WEFT' train job.yaml --set checkpoint.dir= --set train.epochs=2 --set data.batch=1 --set model.0.Dense.units=$units" /dev/null </dev/null; }
    esc=$(printf '\033')
    for units in 20000 200000 2000000; do # a fast machine needs more to do before a bar is painted over
        on_terminal TERM=xterm >wide.txt
        tr '\r' '\n' <wide.txt | grep -F "$esc[K" | grep -v val_loss | sed "s/$esc\\[[0-9;]*[a-zA-Z]//g; s/━/=/g" >painted.txt
        [ -s painted.txt ] && break
    done
    check "bold and colors" grep -qF "$esc[1m" wide.txt
    check "lines that are painted over fit" awk 'length($0) > 39 { bad = 1 } END { exit bad || !NR }' painted.txt
    on_terminal TERM=xterm NO_COLOR=1 >plain.txt
    check "no bold and no colors" bash -c "! grep -qF '$esc[1m' plain.txt"
    on_terminal TERM=dumb >dumb.txt
    check "no bar" bash -c "! grep -qF '$esc' dumb.txt && grep -q 'Epoch 2/2' dumb.txt"
fi

# one run per directory
rm -rf ckpt
: >out.txt
"$WEFT" train job.yaml --log lines --set train.epochs=1000000 --set checkpoint.seconds=1000 >>out.txt 2>&1 &
begun out.txt
want 1 "ckpt" "$WEFT" train job.yaml --log none
kill -9 $!
wait $! 2>/dev/null || :

# words and resources
want 2 "--log takes one of auto bar lines json none, not 'jsno', did you mean 'json'?" "$WEFT" train job.yaml --log jsno
want 3 "no device 'npu:0' here; available: cpu" "$WEFT" train job.yaml --devices npu:0
want 3 "no device 'tpu' here" "$WEFT" train job.yaml --set resources.devices=cpu,tpu
want 1 "exceed the context's memory limit" "$WEFT" train job.yaml --memory 4 --set model.0.Dense.units=100000 --set checkpoint.dir=
want 3 "has a dot with no word next to it" "$WEFT" train job.yaml --set train..epochs=3
sed 's/metrics: accuracy/metrics: acuracy/' job.yaml >typo.yaml
want 3 "typo.yaml:13:12: no metric 'acuracy'" "$WEFT" train typo.yaml
rm -rf ckpt
want 0 '"data_wait_seconds"' "$WEFT" train job.yaml --log json --devices cpu --threads 1 --memory 1000
want 0 '% waiting for data' "$WEFT" train job.yaml --log lines --set train.epochs=5

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

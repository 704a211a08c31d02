#!/usr/bin/env bash
# What a launched job leaves while its processes die: evaluators measure checkpoints, and the curves have every epoch once.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 60 yes; printf '%s\n' "checkpoint: {dir: ckpt, keep_last: 1000}" "log: {dir: logs, report: false}" "save: model.safetensors"; } >job.yaml
"$WEFT" train job.yaml --set train.shards=2 --log none >/dev/null 2>&1
mv model.safetensors wanted
mv logs/history.csv wanted.csv
rm -rf ckpt logs

# An evaluator, killed once, and a first worker that is killed again and again: each time it finds a checkpoint while another worker
# writes the logs.
"$WEFT" launch job.yaml --ps 2 --workers 2 --evaluators 1 --set cluster.timeout=1 >out.txt 2>err.txt &
l=$!
for k in 1 2 3 4; do
    sleep 0.5
    pkill -9 -P $l -f -- '--task worker/0 '
    [ $k = 2 ] && pkill -9 -P $l -f -- '--task evaluator/0 '
done
wait $l || { echo "FAILED: exit code $?"; cat err.txt; bad=$((bad + 1)); }
same model.safetensors wanted
same logs/history.csv wanted.csv
for tag in epoch_loss epoch_accuracy epoch_learning_rate; do
    found=$(cat logs/train/events.out.* | grep -aoF "$tag" | wc -l)
    [ "$found" = 60 ] || { echo "FAILED: $tag is in the event files $found times, not 60"; bad=$((bad + 1)); }
done
for tag in task_bytes_per_second/ps-1 task_bytes_total/chief-0 task_waiting_share/worker-1 task_samples_per_second/worker-1 \
    task_waiting_share/ps-0 task_busy_share/ps-0 task_send_queue_messages/chief-0 task_send_queue_bytes/ps-1 task_receive_queue_messages/worker-1 task_receive_queue_bytes/ps-1; do
    check "$tag in TensorBoard" grep -qaF "$tag" logs/tasks/events.out.*
done
check "a lost task is named with the step that needed it" grep -qE 'worker/0 +ended \(killed by signal 9\) while step [0-9]+ needed its shards' logs/events.log
check "the evaluator's line" grep -qE '^\[evaluator/0\] validation at step 1800: loss: 0\.[0-9]+ - accuracy: 0\.[0-9]+$' out.txt
check "its event" grep -qE 'evaluator/0 +measured step 1800: loss 0\.[0-9]+ accuracy' logs/events.log
check "its event file" grep -qaF evaluation_accuracy_vs_iterations logs/evaluator/events.out.*
[ "$(sort -u -t, -k1,1 logs/evaluations.csv | wc -l)" = "$(wc -l <logs/evaluations.csv)" ] || { echo "FAILED: a step was measured twice"; bad=$((bad + 1)); }
# it measures what the workers validate with: the same numbers
[ "$(tail -1 logs/evaluations.csv | cut -d, -f3 | cut -c1-8)" = "$(tail -1 logs/history.csv | awk -F, -v c="$(head -1 logs/history.csv | tr , '\n' | grep -n '^val_loss$' | cut -d: -f1)" '{ print substr($c, 1, 8) }')" ] ||
    { echo "FAILED: the evaluator has another loss"; tail -1 logs/evaluations.csv logs/history.csv; bad=$((bad + 1)); }

# by hand, as TF_CONFIG says: the run is complete, and measured already
want 0 "cluster: TF_CONFIG" env TF_CONFIG='{"cluster": {"chief": ["h:1"], "ps": ["h:2"], "worker": ["h:3"]}, "task": {"type": "evaluator", "index": 0}}' \
    timeout 60 "$WEFT" node job.yaml
cp logs/evaluations.csv before.csv
want 0 "cluster" timeout 60 "$WEFT" node --role evaluator --cluster "chief=tls:h:1;ps=tls:h:2;worker=1;evaluator=1" job.yaml
same logs/evaluations.csv before.csv
rm -r logs
want 0 "test at step 1800: loss: 0." timeout 60 "$WEFT" node --task evaluator/0 --part test --cluster "chief=tls:h:1;ps=tls:h:2;worker=1;evaluator=1" job.yaml
# one that waits, and is told that training has ended
rm -rf ckpt logs
timeout 60 "$WEFT" node --task evaluator/0 --cluster "chief=tls:h:1;ps=tls:h:2;worker=1;evaluator=1" job.yaml >out.txt 2>&1 &
e=$!
sleep 0.3
kill -TERM $e # the evaluator, through timeout
wait $e
code=$?
[ $code = 0 ] || [ $code = 143 ] || { echo "FAILED: exit code $code of an evaluator after SIGTERM"; cat out.txt; bad=$((bad + 1)); }

# what does not fit together
want 3 "checkpoint.dir" "$WEFT" launch job.yaml --evaluators 1 --set checkpoint.dir=
want 0 "measures each checkpoint" "$WEFT" launch job.yaml --evaluators 1 --explain
grep -v validation_split job.yaml | grep -v '^  test:' >bare.yaml
"$WEFT" launch bare.yaml --ps 1 --workers 1 --evaluators 1 --set train.epochs=20 >out.txt 2>err.txt || { echo "FAILED: a job whose evaluator fails"; cat err.txt; bad=$((bad + 1)); }
check "an evaluator without data says so" grep -q "no validation or test data to evaluate with" err.txt
[ -z "$(ls -A tmp)" ] || { echo "FAILED: files are left"; bad=$((bad + 1)); }

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

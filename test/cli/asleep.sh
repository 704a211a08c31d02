#!/usr/bin/env bash
# Workers that are stopped (SIGSTOP): if one has the directory of checkpoints open until the job ends, the missing checkpoint is said, and the launcher ends
# the worker at once; one that wakes up when the job has ended says so soon.
# ctest-timeout: 120
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 300 yes; printf '%s\n' "checkpoint: {dir: ckpt, steps: 500}" "save: model.safetensors" "log: {dir: logs, report: false, tensorboard: false}"; } >job.yaml
"$WEFT" train job.yaml --set train.shards=1 --log none >/dev/null 2>&1
mv model.safetensors wanted

# until SECONDS command...: waits until it succeeds
until_true()
{
    local i n=$1
    shift
    for ((i = 0; i < n * 50; i++)); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.02
    done
    echo "FAILED: waited $n s for: $*"
    bad=$((bad + 1))
}

# stop_first: worker/0 of $launcher is stopped once it has the directory of checkpoints
stop_first()
{
    until_true 20 test -e ckpt/.lock
    stopped=$(pgrep -P "$launcher" -f -- "--task worker/0 ")
    kill -STOP "$stopped"
    until_true 20 grep -qs "worker/0 .*is gone" logs/events.log
}

# it does not wake up
rm -rf ckpt logs model.safetensors
"$WEFT" launch job.yaml --ps 1 --workers 2 --set train.shards=1 --set cluster.timeout=0.5 >out.txt 2>err.txt &
launcher=$!
stop_first
begin=$(date +%s)
wait $launcher || { echo "FAILED: worker/0 was stopped for good, and the job failed"; cat err.txt; bad=$((bad + 1)); }
same model.safetensors wanted
check "it says that the last checkpoint is missing" grep -q "no checkpoint of step 9000, with which this run ends" err.txt
check "and it is" test ! -d ckpt/ckpt-000009000
check "no one waits for the worker" test $(($(date +%s) - begin)) -lt 30
check "nothing is left" test -z "$(ls -A tmp)"

# a task by hand that wakes up when the job has ended
for consistency in sync async; do
    rm -rf ckpt logs model.safetensors ./*.out # what an earlier job has said does not count
    tasks="chief=uds:$dir/c;ps=uds:$dir/a;worker=2"
    common=(--cluster "$tasks" job.yaml --set train.shards=2 --set cluster.timeout=0.5 --set train.epochs=200 --set cluster.consistency=$consistency)
    declare -A pid=()
    for t in chief/0 ps/0 worker/0 worker/1; do
        "$WEFT" node --task $t "${common[@]}" >"${t/\//}.out" 2>&1 &
        pid[$t]=$!
    done
    until_true 20 grep -q "Epoch 2/" worker0.out
    kill -STOP "${pid[worker/1]}"
    for t in worker/0 ps/0 chief/0; do
        wait "${pid[$t]}" || { echo "FAILED: $t"; cat "${t/\//}.out"; bad=$((bad + 1)); }
    done
    kill -CONT "${pid[worker/1]}"
    begin=$(date +%s)
    wait "${pid[worker/1]}"
    rc=$?
    check "$consistency: exit code 75, and not $rc" test $rc = 75
    check "$consistency: soon" test $(($(date +%s) - begin)) -lt 8
    check "$consistency: it says what has happened" grep -q "the job has ended without 'worker/1', which was silent for too long: no chief and no server is there" worker1.out
    [ $bad -eq 0 ] || cat worker1.out
done
exit $((bad > 0))

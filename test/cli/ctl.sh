#!/usr/bin/env bash
# weft ctl: tasks are added to a running job and drained, a checkpoint is requested, the job is stopped and resumed: the bits of an
# undisturbed run. What may not be asked is refused.
# ctest-timeout: 300
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
# far more epochs than anybody waits for: the job is stopped, and its end is computed by `weft train`
{ small_job 100000 yes; echo "checkpoint: {dir: ckpt, steps: 200}"; echo "save: model.safetensors"; echo "log: {dir: logs}"; } >job.yaml

# start FLAGS...: a job in the background, until its chief says that steps are computed
start()
{
    rm -rf ckpt logs model.safetensors out.txt err.txt
    "$WEFT" launch job.yaml --ps 2 --workers 2 --set train.shards=4 "$@" >out.txt 2>err.txt &
    launcher=$!
    until_status '"step": [1-9]'
}

# until_status PATTERN: within 30 s the status as JSON matches
until_status()
{
    local i
    for i in $(seq 150); do
        "$WEFT" ctl ckpt status --json 2>/dev/null | grep -qE "$1" && return
        kill -0 "$launcher" 2>/dev/null || break
        sleep 0.2
    done
    echo "FAILED: the status never was $1"
    "$WEFT" ctl ckpt status
    cat err.txt
    bad=$((bad + 1))
}

# ended CODE: the launcher ends with it, and leaves nothing
ended()
{
    local rc
    wait "$launcher"
    rc=$?
    if [ $rc -ne "$1" ] || [ -n "$(ls -A tmp)" ] || [ -e ckpt/control ] || [ -e logs/control ]; then
        echo "FAILED: launch ended with $rc, not $1, or left files: $(ls -A tmp) $(ls -d ckpt/control logs/control 2>/dev/null)"
        cat err.txt
        bad=$((bad + 1))
    fi
}

# The run that was stopped is finished by one process; the model is that of a run that was never disturbed.
same_bits()
{
    local step epochs
    step=$(sed -n 's/.*stopped after step \([0-9]*\);.*/\1/p' err.txt | head -1)
    epochs=$((${step:-0} / 30 + 2))
    check "$1: the run resumes after step ${step:-?}" "$WEFT" train job.yaml --set train.shards=4 --set train.epochs=$epochs --log none
    mv model.safetensors got 2>/dev/null
    rm -rf ckpt logs
    check "the undisturbed run" "$WEFT" train job.yaml --set train.shards=4 --set train.epochs=$epochs --log none
    same got model.safetensors
}

# mistakes
want 2 "needs a job and what to do" "$WEFT" ctl
want 2 "did you mean 'status'" "$WEFT" ctl job.yaml statu
want 3 "no job runs in ckpt" "$WEFT" ctl job.yaml status
want 3 "neither the directory of a run" "$WEFT" ctl nowhere status
want 2 "tls needs --keys" "$WEFT" ctl localhost:1 status
want 2 "plain TCP" "$WEFT" ctl tcp:localhost:1 status

# over shared memory: everything once, while steps go on
start --standby 1
want 0 "worker/1     runs" "$WEFT" ctl ckpt status
want 0 " waits " "$WEFT" ctl logs status
# counters of servers, and queues of all
want 0 "samples/s  waiting    queued  has" "$WEFT" ctl ckpt status
until_status '"ps/1", "state": "runs".*"waited_seconds": [0-9.e-]*[1-9][0-9.e-]*, "busy_seconds": [0-9.e-]*[1-9]'
queues='"send_queue_messages": [0-9]+, "send_queue_bytes": [0-9]+, "receive_queue_messages": [0-9]+, "receive_queue_bytes": [0-9]+'
for task in chief/[01] ps/0 worker/1; do until_status "\"$task\", \"state\": \"(runs|leads)\".*$queues"; done
want 2 "add what" "$WEFT" ctl job.yaml add
want 3 "another \`weft launch\` runs in ckpt" timeout 30 "$WEFT" launch job.yaml
want 0 "worker/1     runs" "$WEFT" ctl ckpt status # of the first one, as before
want 0 "2 further tasks of role worker are started" "$WEFT" ctl job.yaml add --workers 2
want 0 "1 further task of role ps is started" "$WEFT" ctl job.yaml add --ps 1
until_status '"worker/3", "state": "runs", "added": true, "shards": 1, "step": [1-9]'
until_status '"ps/2", "state": "runs"'
want 1 "there is no task 'worker/9'" "$WEFT" ctl ckpt drain worker/9
want 1 "a chief holds nothing" "$WEFT" ctl ckpt drain chief/1
want 0 "worker/0 has gone" "$WEFT" ctl ckpt drain worker/0
want 0 "ps/1 has gone" "$WEFT" ctl ckpt drain ps/1
want 1 "could not hold two copies" "$WEFT" ctl ckpt drain ps/0
want 0 "worker/1 writes a checkpoint" "$WEFT" ctl ckpt checkpoint --no-wait
# one that is waited for: it is there, and later than those before
for job in ckpt logs job.yaml; do
    latest=$(find ckpt -maxdepth 1 -name 'ckpt-*' | sort | tail -1)
    said=$(timeout 60 "$WEFT" ctl $job checkpoint | tail -1)
    path=${said#step *: }
    [ -f "$path/manifest.json" ] || [ -n "$(find "$path" -name '*.json' 2>/dev/null)" ] || { echo "FAILED: ctl $job checkpoint: '$said', and nothing is there"; ls ckpt; bad=$((bad + 1)); }
    [[ ${path##*/} > ${latest##*/} ]] || { echo "FAILED: $said is not later than $latest"; bad=$((bad + 1)); }
done
grep -E '^(worker/0|ps/1) is gone' err.txt && { echo "FAILED: what was drained is reported as lost"; bad=$((bad + 1)); }
# the chief dies: the next one knows the tasks that were added, and their pieces
leads=$("$WEFT" ctl ckpt status --json | sed -n 's/^{"chief": "\([^"]*\)", "term": \([0-9]*\),.*/\1 \2/p')
kill -9 "$(pgrep -P "$launcher" -f -- "--task ${leads% *} ")"
until_status "\"term\": ($((${leads#* } + 1))|$((${leads#* } + 2)))"
until_status '"ps/2", "state": "runs", "added": true, "pieces": [12]'
until_status '"worker/2", "state": "runs"'
# and again, while a task is drained: that is in the store, and the next one continues it
"$WEFT" ctl ckpt add --ps 1 >/dev/null
until_status '"ps/3", "state": "runs", "added": true'
leads=$("$WEFT" ctl ckpt status --json | sed -n 's/^{"chief": "\([^"]*\)".*/\1/p')
victim=$(pgrep -P "$launcher" -f -- "--task $leads ")
want 0 "ps/2 is being drained" "$WEFT" ctl ckpt drain ps/2 --no-wait
until_status '"ps/2", "state": "(drains|drained|away)"'
kill -9 "$victim"
until_status '"ps/2", "state": "(drained|away)"'
grep -E '^ps/2 is gone' err.txt && { echo "FAILED: what was drained is reported as lost"; bad=$((bad + 1)); }
want 0 "worker/2 has gone" "$WEFT" ctl ckpt drain worker/2
want 0 "the job stops after this step" "$WEFT" ctl ckpt stop
ended 0
grep -q "worker/0 ended\|ps/1 ended" err.txt && { echo "FAILED: what was drained was started again"; bad=$((bad + 1)); }
same_bits "shm"

# directories below others that are not there yet
"$WEFT" launch job.yaml --ps 1 --workers 2 --set checkpoint.dir=deep/er/ckpt --set log.dir=deep/logs >out.txt 2>err.txt &
launcher=$!
for ((i = 0; i < 150; i++)); do "$WEFT" ctl deep/er/ckpt status --json 2>/dev/null | grep -q '"step": [1-9]' && break; sleep 0.2; done
want 0 "worker/1     runs" "$WEFT" ctl deep/logs status
want 3 "another \`weft launch\` runs in deep/er/ckpt" timeout 30 "$WEFT" launch job.yaml --set checkpoint.dir=deep/er/ckpt --set log.dir=other
want 0 "the job stops" "$WEFT" ctl deep/er/ckpt stop
wait $launcher || { echo "FAILED: exit code $?"; cat err.txt; bad=$((bad + 1)); }

# a drain that is waited for when the job ends
"$WEFT" launch job.yaml --ps 1 --workers 2 --set checkpoint.dir=short --set log.dir=short-logs --set train.epochs=1000 >out.txt 2>err.txt &
launcher=$!
for ((i = 0; i < 150; i++)); do "$WEFT" ctl short status --json 2>/dev/null | grep -q '"step": [1-9]' && break; sleep 0.1; done
"$WEFT" ctl short drain worker/1 >drain.txt 2>&1 &
drains=$!
for ((i = 0; i < 3000; i++)); do [ -s drain.txt ] && break; sleep 0.001; done
kill -STOP $drains 2>/dev/null # it may have seen that the worker has gone
wait $launcher || { echo "FAILED: exit code $?"; cat err.txt; bad=$((bad + 1)); }
kill -CONT $drains 2>/dev/null
begin=$(date +%s)
check "the drain ends with the job ($(cat drain.txt))" wait $drains
check "and soon" test $(($(date +%s) - begin)) -lt 20

# over tls: a server and a worker more, and less
start --transport tls --token-file token
want 0 "1 further task of role ps" "$WEFT" ctl ckpt add --ps 1 --workers 1
until_status '"worker/2", "state": "runs", "added": true, "shards": 1, "step": [1-9]'
until_status '"ps/2", "state": "runs"'
want 0 "ps/0 has gone" "$WEFT" ctl ckpt drain ps/0
want 0 "worker/1 has gone" "$WEFT" ctl ckpt drain worker/1
keys=$(sed -n 's/^keys //p' ckpt/control)
chief=$(sed -n 's/^chiefs tls://p' ckpt/control)
want 0 "ps/2         runs" "$WEFT" ctl "$chief" status --keys "$keys"
# a worker's certificate is none of the role control
mkdir -m 700 stolen
cp "$keys/authority.pem" stolen
cp "$keys/worker-0.pem" stolen/control-0.pem
cp "$keys/worker-0.key" stolen/control-0.key
want 1 "" "$WEFT" ctl "$chief" stop --keys stolen
"$WEFT" cert others >/dev/null
want 1 "" "$WEFT" ctl "$chief" stop --keys others
until_status '"worker/0", "state": "runs"'
# with a token, a worker joins beyond the list
"$WEFT" node --join "$(sed -n 's/.*weft node --join \([^ ]*\) .*/\1/p' err.txt | head -1)" --token-file token >joined.txt 2>&1 &
joined=$!
until_status '"worker/3", "state": "runs", "added": true, "shards": 1, "step": [1-9]'
want 0 "the job stops" "$WEFT" ctl ckpt stop
wait $joined || { echo "FAILED: who joined ended with $?"; cat joined.txt; bad=$((bad + 1)); }
ended 0
same_bits "tls"

exit $((bad > 0))

#!/usr/bin/env bash
# What somebody does who launches a job for the first time: mistakes in flags, Ctrl-C with a door and counters open, a second run in the same directory,
# words too many for weft ctl, the launcher killed by the words of its command. Nothing is ignored, nothing is damaged, nothing is left.
# ctest-timeout: 150
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 100000 yes; printf '%s\n' "checkpoint: {dir: ckpt, steps: 500}" "log: {dir: logs, report: false}"; } >job.yaml

# flags that would have no effect, or cannot be
want 3 "cluster.standby is 9, not in 0..8" "$WEFT" launch job.yaml --standby 9 --explain
want 2 "--metrics-host needs --metrics" "$WEFT" launch job.yaml --metrics-host 127.0.0.1
want 2 "--join-port needs --token-file" "$WEFT" launch job.yaml --join-port 7000
want 2 "--token-uses needs --token-file" "$WEFT" launch job.yaml --token-uses 2
want 2 "--token-minutes is at least 1" "$WEFT" launch job.yaml --token-file token --token-minutes 0
want 2 "--host is for --transport tls" "$WEFT" launch job.yaml --host 127.0.0.1
want 2 "192.0.2.1 is not an address of this machine" timeout 20 "$WEFT" launch job.yaml --transport tls --host 192.0.2.1
want 2 "--insecure is for" "$WEFT" launch job.yaml --set cluster.transport=tls --insecure --explain
want 0 "INSECURE" "$WEFT" launch job.yaml --set cluster.transport=tcp --insecure --explain
want 3 "data.csv is not a directory" timeout 20 "$WEFT" launch job.yaml --set checkpoint.dir=data.csv
want 3 "cannot make the directory data.csv/logs: Not a directory" timeout 20 "$WEFT" launch job.yaml --set log.dir=data.csv/logs
[ ! -e ckpt ] && [ ! -e logs ] || { echo "FAILED: a mistake left directories"; ls; bad=$((bad + 1)); }

# launch_it FLAGS...: a job in the background, until it trains
launch_it()
{
    rm -rf ckpt logs out.txt err.txt # what an earlier run has said does not count
    "$WEFT" launch "$dir/job.yaml" --ps 2 --workers 2 "$@" >out.txt 2>err.txt &
    launcher=$!
    for ((i = 0; i < 400; i++)); do [ "$(grep -sc '^Epoch' out.txt)" -ge 2 ] && break; sleep 0.05; done
    [ "$i" -lt 400 ] || { echo "FAILED: the job did not begin"; cat err.txt; bad=$((bad + 1)); }
}
nothing_left()
{
    for ((i = 0; i < 50; i++)); do [ -z "$(ls -A tmp)" ] && return; sleep 0.1; done
    echo "FAILED: $1 left $(ls tmp)"
    bad=$((bad + 1))
}

# the threads of the door and of the counters take no signal that is for the launcher
port=$((20000 + $$ % 12000)) # below those that the system gives to connections
for signal in INT TERM HUP; do
    launch_it --token-file token --metrics $port
    kill -$signal $launcher
    ( sleep 60; kill -9 $launcher ) >/dev/null 2>&1 & guard=$!
    wait $launcher
    rc=$?
    kill $guard 2>/dev/null
    [ $rc = 130 ] && grep -q "stopped after step .*resumes from here" err.txt || { echo "FAILED: SIG$signal: exit code $rc"; tail -5 err.txt; bad=$((bad + 1)); }
    [ ! -e token ] || { echo "FAILED: SIG$signal: the token is left"; bad=$((bad + 1)); }
    nothing_left "SIG$signal"
done

# workers of other machines may come late, and Ctrl-C does not wait for them
remote()
{
    rm -rf ckpt logs out.txt err.txt # what an earlier run has said does not count
    "$WEFT" launch "$dir/job.yaml" --ps 1 --workers 2 --remote 1 --token-file token --set train.epochs=20 "$@" >out.txt 2>err.txt &
    launcher=$!
    for ((i = 0; i < 400; i++)); do grep -qs 'weft node --join' err.txt && pgrep -P $launcher -f -- '--task worker/0 ' >/dev/null && break; sleep 0.05; done
}
remote
sleep 0.5
check "the plan in a line" grep -q '^plan: 1 server holds the parameters in 1 copy, 2 workers compute 2 shards of each step, over tls;' err.txt
kill -INT $launcher
( sleep 20; kill -9 $launcher ) >/dev/null 2>&1 & guard=$!
wait $launcher
rc=$?
kill $guard 2>/dev/null
[ $rc = 130 ] || { echo "FAILED: Ctrl-C before the job began: exit code $rc"; cat err.txt; bad=$((bad + 1)); }
remote --set cluster.timeout=0.4
for ((i = 0; i < 400; i++)); do grep -q 'has not begun after' err.txt && break; sleep 0.05; done
check "it says that tasks are missing" grep -q 'the job has not begun after [0-9]* s: other tasks are missing' err.txt
want 0 "joined the job" timeout 60 "$WEFT" node --join "$(grep -o '127.0.0.1:[0-9]*' err.txt | head -1)" --token-file token
wait $launcher || { echo "FAILED: a worker that came late: exit code $?"; cat err.txt; bad=$((bad + 1)); }
grep "started again" err.txt && { echo "FAILED: tasks that waited were started again"; bad=$((bad + 1)); }

# while one run trains, no other does in its directory, and its files stay whole
launch_it --metrics $port
want 1 "cannot listen on 127.0.0.1 port $port: Address already in use" timeout 30 "$WEFT" launch job.yaml --metrics $port --set checkpoint.dir=other --set log.dir=logs2
[ ! -e other ] && [ ! -e logs2 ] || { echo "FAILED: a launch that failed left directories"; bad=$((bad + 1)); }
for ((i = 0; i < 100; i++)); do [ -d ckpt/ckpt-000001000 ] && break; sleep 0.05; done
for ((i = 0; i < 3; i++)); do
    want 1 "is writing checkpoints here" timeout 60 "$WEFT" train job.yaml --set train.shards=2 --log none
done
want 2 "stop takes no further word, so 'now' is too much" "$WEFT" ctl ckpt stop now
want 2 "status takes no further word" "$WEFT" ctl ckpt status all
want 2 "drain takes one task, so 'worker/1' is too much" "$WEFT" ctl ckpt drain worker/0 worker/1
want 2 "--workers and --ps are for add" "$WEFT" ctl ckpt status --workers 1
want 0 "worker/0     runs" "$WEFT" ctl ckpt status

# the step that weft ctl tells is the trainer's: what validation takes does not count
for ((i = 0; i < 400; i++)); do [ "$(grep -c '^Epoch' out.txt)" -ge 60 ] && break; sleep 0.05; done
for ((i = 0; i < 100; i++)); do # tasks tell their steps with each heartbeat only
    "$WEFT" ctl ckpt status --json >status.json
    told=$(sed -n 's/.*"step": \([0-9]*\), "shards".*/\1/p' status.json | head -1)
    [ "${told:-0}" -gt 0 ] && break
    sleep 0.05
done
epochs=$(grep -c '^Epoch' out.txt)
[ "${told:-0}" -gt 0 ] && [ "${told:-0}" -le $((30 * epochs)) ] || { echo "FAILED: step $told in epoch $epochs of 30 steps"; bad=$((bad + 1)); }
want 0 "the job stops" "$WEFT" ctl ckpt stop
wait $launcher || { echo "FAILED: exit code $? after ctl stop"; cat err.txt; bad=$((bad + 1)); }
grep "shorter than when the run was saved" err.txt && { echo "FAILED: another run has cut this one's files"; bad=$((bad + 1)); }
nothing_left "a job that was stopped"

# the other way round: weft train is first
rm -rf ckpt logs out.txt err.txt
"$WEFT" train job.yaml --log lines >out.txt 2>err.txt &
first=$!
for ((i = 0; i < 400; i++)); do [ "$(grep -sc '^Epoch' out.txt)" -ge 2 ] && break; sleep 0.05; done
want 3 "another process is training in ckpt" timeout 60 "$WEFT" launch job.yaml
kill -INT $first
wait $first

# without a launcher: a directory that cannot be written ends the run at its begin, not silently at its end
tasks="chief=uds:$TMPDIR/c;ps=uds:$TMPDIR/p;worker=1"
for task in chief/0 ps/0; do timeout 60 "$WEFT" node --task $task --cluster "$tasks" job.yaml >/dev/null 2>&1 & done
want 3 "checkpoint: /proc/weft: cannot create the directory" timeout 60 "$WEFT" node --task worker/0 --cluster "$tasks" job.yaml --set checkpoint.dir=/proc/weft
jobs -p | xargs -r kill 2>/dev/null
wait
rm -f tmp/*

# a worker that has joined is killed: its keys vanish, too
launch_it --token-file token
"$WEFT" node --join "$(grep -o '127.0.0.1:[0-9]*' err.txt | head -1)" --token-file token >/dev/null 2>&1 &
joined=$!
for ((i = 0; i < 400; i++)); do grep -q "worker/2 joined" err.txt && break; sleep 0.05; done
check "its directory" ls -d tmp/weft-node-*
kill -9 $joined
wait $joined 2>/dev/null
for ((i = 0; i < 50; i++)); do ls -d tmp/weft-node-* >/dev/null 2>&1 || break; sleep 0.1; done
if ls -d tmp/weft-node-* 2>/dev/null; then echo "FAILED: a worker that was killed left its keys"; bad=$((bad + 1)); fi
check "the job stops" "$WEFT" ctl ckpt stop
wait $launcher

# the launcher is killed by the words of its command, as people do: its directory vanishes, and weft ctl says what there is
launch_it --evaluators 1
want 0 "evaluator/0  apart" "$WEFT" ctl ckpt status
want 1 "an evaluator has no work of the others" "$WEFT" ctl ckpt drain evaluator/0
pkill -9 -f -- "launch $dir/job.yaml "
wait $launcher 2>/dev/null
nothing_left "pkill -9 -f 'weft launch'"
want 3 "its launcher was killed; the same \`weft launch\` resumes it" "$WEFT" ctl ckpt status

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

#!/usr/bin/env bash
# weft launch: real processes give the bits of weft train; kill -9 of each role, Ctrl-C, kill -9 of the launcher; nothing is left.
# ctest-timeout: 400
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 100 yes; echo "checkpoint: {dir: ckpt, steps: 100}"; echo "save: model.safetensors"; echo "log: {dir: logs}"; } >job.yaml

# What a launch may leave: no directory, no socket, no process.
clean()
{
    local i
    for i in 1 2 3 4 5 6 7 8 9 10; do
        [ -z "$(ls -A tmp)" ] && ! pgrep -f -- "$TMPDIR" >/dev/null && return
        sleep 0.2
    done
    echo "FAILED: $1 left files or processes"
    ls -A tmp
    pgrep -af -- "$TMPDIR"
    bad=$((bad + 1))
}

# until_trains [N]: waits until a launcher has printed the begin of N epochs
until_trains()
{
    local i
    for i in $(seq 400); do
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

# task TASK: the process of a task of launcher $launcher
task()
{
    pgrep -P "$launcher" -f -- "--task $1 "
}

"$WEFT" train job.yaml --set train.shards=2 --log none >/dev/null 2>&1
mv model.safetensors wanted
mv logs/history.csv wanted.csv
again

# mistakes
want 2 "did you mean --workers" "$WEFT" launch job.yaml --worker 2
want 2 "needs a job file" "$WEFT" launch
want 2 "'other.yaml' is a second one" "$WEFT" launch job.yaml other.yaml
want 2 "did you mean 'shm'" "$WEFT" launch job.yaml --transport shn
want 2 "--insecure is for" "$WEFT" launch job.yaml --insecure
want 2 "2 replicas of each piece need 2 servers" "$WEFT" launch job.yaml --ps 1 --replicas 2
want 3 "cluster.servers" "$WEFT" launch job.yaml --set cluster.servers=0
want 3 "cluster.workers" "$WEFT" launch job.yaml --workers 0
want 3 "cluster.servers" "$WEFT" launch job.yaml --ps 0
want 3 "did you mean" "$WEFT" launch job.yaml --set cluster.server=2
want 3 "worker/0 failed" "$WEFT" launch job.yaml --set data.train.path=none.csv
want 2 "which task is this" "$WEFT" node job.yaml --cluster "chief=uds:a;ps=uds:b;worker=1"
want 2 "plain TCP" "$WEFT" node job.yaml --task ps/0 --cluster "chief=tcp:a:1;ps=tcp:a:2;worker=1"
want 2 "tls needs --keys" "$WEFT" node job.yaml --task ps/0 --cluster "chief=tls:a:1;ps=tls:a:2;worker=1"
clean "a mistake"

# the plan
want 0 "worker/3 " "$WEFT" launch job.yaml --ps 2 --workers 4 --explain
want 0 "1 chief, " "$WEFT" launch job.yaml --set cluster.standby=1 --standby 0 --explain
want 0 "computes 1 of 4 shards" "$WEFT" launch job.yaml --ps 2 --workers 4 --explain
want 0 "computes 1 of 1 shards at first; prints progress" "$WEFT" launch job.yaml --ps 1 --workers 3 --set train.shards=1 --explain
want 0 "INSECURE" "$WEFT" launch job.yaml --transport tcp --insecure --explain
want 0 "over tls" "$WEFT" launch job.yaml --transport tcp --explain
[ ! -e ckpt ] || { echo "FAILED: --explain starts nothing"; bad=$((bad + 1)); }

# the bits of one process
for flags in "--ps 2 --workers 2" "--ps 1 --workers 3 --set train.shards=2" "--ps 2 --workers 2 --transport tcp" \
    "--ps 2 --workers 1 --transport uds --standby 1 --set train.shards=2"; do
    # shellcheck disable=SC2086
    want 0 "Epoch 100/100" "$WEFT" launch job.yaml $flags
    same model.safetensors wanted
    again
done
clean "a job"

# killed tasks
for victim in worker/1 worker/0 ps/0 ps/1 chief/0; do
    "$WEFT" launch job.yaml --ps 2 --workers 2 >out.txt 2>err.txt &
    launcher=$!
    until_trains
    kill -9 "$(task $victim)"
    wait $launcher || { echo "FAILED: $victim was killed, and the job failed"; cat err.txt; bad=$((bad + 1)); }
    same model.safetensors wanted
    same logs/history.csv wanted.csv
    [ -d ckpt/ckpt-000003000 ] || { echo "FAILED: the last checkpoint, after $victim was killed"; ls ckpt; bad=$((bad + 1)); }
    check "the event log says that $victim ended" grep -q "Z $victim .*killed by signal 9" logs/events.log
    again
done
clean "a job with killed tasks"

# a worker without shards that is stopped for a moment, again and again: it misses records, and follows
"$WEFT" launch job.yaml --ps 1 --workers 3 --set train.shards=2 >out.txt 2>err.txt &
launcher=$!
until_trains
for ((i = 0; i < 6; i++)); do
    stopped=$(task worker/2)
    [ -n "$stopped" ] && kill -STOP "$stopped" && sleep 0.3 && kill -CONT "$stopped"
    sleep 0.03
done 2>/dev/null
wait $launcher || { echo "FAILED: worker/2 was stopped for moments, and the job failed"; cat err.txt; bad=$((bad + 1)); }
same model.safetensors wanted
again
clean "a job with a worker that was stopped"

# the only server, which no one has a copy of: from the last checkpoint
"$WEFT" launch job.yaml --ps 1 --workers 2 >out.txt 2>err.txt &
launcher=$!
until_trains
kill -9 "$(task ps/0)"
wait $launcher || { echo "FAILED: the only server was killed, and the job failed"; cat err.txt; bad=$((bad + 1)); }
same model.safetensors wanted
check "it says that parameters were lost" grep -q "Z chief/0 .*parameters were lost" logs/events.log
check "workers live on" [ "$(grep -c "Z worker/.* ended" logs/events.log)" = 0 ]
same logs/history.csv wanted.csv
again

# a limit
"$WEFT" launch job.yaml --ps 2 --workers 2 --set cluster.restarts=0 --set train.epochs=100000 >out.txt 2>err.txt &
launcher=$!
until_trains
kill -9 "$(task ps/0)"
wait $launcher
[ $? = 1 ] && grep -q "ps/0 ended (killed by signal 9).*limit" err.txt || { echo "FAILED: the limit"; cat err.txt; bad=$((bad + 1)); }
again
clean "a job that failed"

# Ctrl-C, and the same command resumes; another number of workers keeps the shards
"$WEFT" launch job.yaml --ps 2 --workers 2 >out.txt 2>err.txt &
launcher=$!
until_trains
kill -INT $launcher
wait $launcher
[ $? = 130 ] || { echo "FAILED: exit code of Ctrl-C"; cat err.txt; bad=$((bad + 1)); }
check "it says that it can resume" grep -q "stopped after step .*resumes from here" err.txt
clean "Ctrl-C"
want 0 "resuming from" "$WEFT" launch job.yaml --ps 1 --workers 3
same model.safetensors wanted
want 0 "" "$WEFT" launch job.yaml --ps 2 --workers 2
same model.safetensors wanted
again

# standard output is closed: like Ctrl-C. A hangup under nohup: nothing
"$WEFT" launch job.yaml --ps 1 --workers 2 --set train.epochs=100000 2>err.txt | head -3 >out.txt
[ "${PIPESTATUS[0]}" = 130 ] || { echo "FAILED: a closed standard output"; cat err.txt; bad=$((bad + 1)); }
clean "a closed standard output"
again
nohup "$WEFT" launch job.yaml --ps 1 --workers 2 >out.txt 2>err.txt &
launcher=$!
until_trains
kill -HUP $launcher
wait $launcher || { echo "FAILED: a hangup under nohup"; cat err.txt; bad=$((bad + 1)); }
again

# the launcher is killed: nobody remains, and the same command resumes
"$WEFT" launch job.yaml --ps 2 --workers 2 --transport tls >out.txt 2>err.txt &
launcher=$!
until_trains 6
kill -9 $launcher
wait $launcher 2>/dev/null
clean "kill -9 of the launcher"
want 0 "Epoch 100/100" "$WEFT" launch job.yaml --ps 2 --workers 2
same model.safetensors wanted
again

# tasks by hand
"$WEFT" node --task chief/0 --cluster cluster.yaml job.yaml >/dev/null 2>&1
[ $? = 3 ] || { echo "FAILED: a missing cluster file"; bad=$((bad + 1)); }
cat >cluster.yaml <<CLUSTER
# two servers
chief: [uds:$TMPDIR/c]
ps: [uds:$TMPDIR/a, uds:$TMPDIR/b]
worker: 2
CLUSTER
for t in chief/0 ps/0 ps/1 worker/1; do
    timeout 120 "$WEFT" node --task $t --cluster cluster.yaml job.yaml --set train.shards=2 >/dev/null 2>&1 &
done
want 0 "cluster.yaml" timeout 120 "$WEFT" node --role worker --task 0 --cluster cluster.yaml job.yaml \
    --set train.shards=2
same model.safetensors wanted
for p in $(jobs -p); do
    wait "$p" || { echo "FAILED: a task that was started by hand"; bad=$((bad + 1)); }
done

again

# the same over TLS with certificates, and as mpirun starts processes: the first is chief and server
want 0 "certificates of 4 tasks" "$WEFT" cert keys --ps 1 --workers 2
[ "$(stat -c %a keys keys/ps-0.key | tr '\n' ' ')" = "700 600 " ] || { echo "FAILED: modes of keys"; bad=$((bad + 1)); }
port=$((20000 + $$ % 12000)) # below those that the system gives to connections
rank()
{
    env OMPI_COMM_WORLD_RANK="$1" OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_LOCAL_RANK="$1" OMPI_COMM_WORLD_LOCAL_SIZE=3 \
        timeout 120 "$WEFT" node --ps 1 --hosts 127.0.0.1,127.0.0.1,127.0.0.1 --port $port --keys keys job.yaml --set train.shards=2
}
for r in 0 2; do
    rank $r >rank$r.txt 2>&1 &
done
want 0 "Open MPI" rank 1
same model.safetensors wanted
for p in $(jobs -p); do
    wait "$p" || { echo "FAILED: a process of mpirun"; cat rank*.txt; bad=$((bad + 1)); }
done
again

# workers of other machines, with a token; nothing of it in logs
mkdir away
cp data.csv away
"$WEFT" launch job.yaml --ps 2 --workers 2 --remote 1 --token-file token --token-uses 1 >out.txt 2>err.txt &
launcher=$!
for i in $(seq 400); do grep -qs "weft node --join" err.txt && break; sleep 0.05; done
door=$(grep -o '127.0.0.1:[0-9]*' err.txt | head -1)
[ "$(stat -c %a token)" = 600 ] || { echo "FAILED: the mode of a token"; bad=$((bad + 1)); }
cp token away
sed 's/\(.\)$/0/; s/.$/x/' token >away/broken
want 3 "hexadecimal" "$WEFT" node --join "$door" --token-file away/broken
want 2 "belong together" "$WEFT" node --join "$door"
want 2 "the door says" "$WEFT" node --join "$door" --token-file token --task worker/1
(cd away && TMPDIR=$dir/tmp "$WEFT" node --join "$door" --token-file token >o.txt 2>e.txt) &
joiner=$!
until_trains
want 1 "the door refuses" "$WEFT" node --join "$door" --token-file away/token
wait $launcher || { echo "FAILED: a job with a worker that joined"; cat err.txt; bad=$((bad + 1)); }
wait $joiner || { echo "FAILED: a worker that joined"; cat away/e.txt; bad=$((bad + 1)); }
same model.safetensors wanted
check "who joined" grep -q "Z door .*joins as worker/1" logs/events.log
check "who was refused" grep -q "Z door .*refused guest" logs/events.log
secret=$(awk '{ print $5 }' away/token)
grep -qF "$secret" out.txt err.txt logs/events.log away/o.txt away/e.txt && { echo "FAILED: a secret is in a log"; bad=$((bad + 1)); }
[ ! -e token ] || { echo "FAILED: the token is left"; bad=$((bad + 1)); }
again
clean "a job with a worker that joined"

# counters, which each task reports a few times a second
"$WEFT" launch job.yaml --ps 2 --workers 2 --set train.epochs=100000 --metrics $((port + 9)) >out.txt 2>err.txt &
launcher=$!
if command -v curl >/dev/null && ! grep -q "does not have" err.txt; then
    until_trains 20
    for i in $(seq 100); do
        curl -s "http://127.0.0.1:$((port + 9))/metrics" >metrics.txt
        [ "$(grep -cE '^weft_task_(waiting|busy)_seconds_total\{task="ps/0",role="ps"\} [0-9.e-]*[1-9]' metrics.txt)" = 2 ] && break
        sleep 0.05
    done
    if ! grep -q "libmicrohttpd" err.txt; then
        check "a worker's step" grep -qE '^weft_task_step\{task="worker/0",role="worker"\} [0-9]+$' metrics.txt
        check "a server's bytes" grep -qE '^weft_task_sent_bytes_total\{task="ps/1",role="ps"\} [0-9]' metrics.txt
        check "a server's waiting time" grep -qE '^weft_task_waiting_seconds_total\{task="ps/0",role="ps"\} [0-9.e-]*[1-9]' metrics.txt
        check "a server's busy time" grep -qE '^weft_task_busy_seconds_total\{task="ps/0",role="ps"\} [0-9.e-]*[1-9]' metrics.txt
        for task in chief/0 ps/1 worker/0; do
            for queue in send_queue_messages send_queue_bytes receive_queue_messages receive_queue_bytes; do
                check "$queue of $task" grep -qE "^weft_task_$queue\{task=\"$task\",role=\"${task%/*}\"\} [0-9]" metrics.txt
            done
        done
        grep -qE '^weft_task_busy_seconds_total\{task="(worker|chief)' metrics.txt && { echo "FAILED: only servers have a busy time"; bad=$((bad + 1)); }
        check "every metric has a type" awk '/^# TYPE/ { t[$3] = 1 } /^[a-z]/ { sub(/[{ ].*/, ""); if (!t[$0]) bad = 1 } END { exit bad || NR < 20 }' \
            metrics.txt
    fi
fi
check "the job stops" "$WEFT" ctl ckpt stop
wait $launcher

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

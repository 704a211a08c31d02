#!/bin/bash
# The example programs on parameter servers: they learn, ten workers give the bits of one process, and
# a worker or a server that is killed changes no bit; asynchronous sessions end at their step, whoever is
# killed, and resume.
# ctest-timeout: 300
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
bin=$BUILD/bin/examples
fail() { echo "programs: $*" >&2; exit 1; }
[ -x "$bin/slices" ] || { echo "programs: no examples were built"; exit 0; }

# task PARENT NAME: the process of a task.
task() {
    local pid
    for pid in $(pgrep -P "$1"); do
        if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "WEFT_TASK=$2"; then
            echo "$pid"
            return
        fi
    done
}
# kill_task PARENT NAME LOG TEXT: kill -9, once the log has the text.
kill_task() {
    local pid i
    for ((i = 0; i < 3000; i++)); do
        grep -qs "$4" "$3" && break
        sleep 0.02
    done
    pid=$(task "$1" "$2")
    [ -n "$pid" ] || fail "no process of $2"
    kill -9 "$pid"
}

"$bin/push_pull" 400 >push || fail "push_pull"
grep -Eq '^accuracy 0\.[7-9]' push || fail "push_pull did not learn: $(cat push)"

"$bin/slices" 16000 10 local >one || fail "slices in one process"
"$bin/slices" 16000 10 >many || fail "slices"
grep -Eq 'accuracy 0\.[89]' one || fail "slices did not learn: $(cat one)"
cmp one many || fail "ten workers have other bits than one process"

"$bin/slices" 640000 10 local >one || fail "slices in one process"
stdbuf -oL "$bin/slices" 640000 10 >killed &
parent=$!
kill_task $parent worker/3 killed 'merge 50:'
kill_task $parent worker/7 killed 'merge 100:'
wait $parent || fail "slices with killed workers"
cmp one killed || fail "killed workers have changed bits"

# A session: parameters and slots of the last step are the same, whoever was killed.
"$bin/mlp" 3000 plain >plain.log || fail "mlp"
grep -q '^step 3000: .*accuracy 0\.9' plain.log || fail "mlp did not learn: $(cat plain.log)"
[ "$(grep -c '^training begins$' plain.log)" = 2 ] || fail "mlp: the hook begin is called in each worker: $(cat plain.log)"
for victim in worker/1 worker/0 ps/0 chief/0; do
    name=${victim%/*}${victim#*/}
    stdbuf -oL "$bin/mlp" 3000 "$name" >"$name.log" 2>&1 &
    parent=$!
    kill_task $parent "$victim" "$name.log" 'step 300:'
    wait $parent || { cat "$name.log"; fail "mlp: $victim was killed"; }
    grep -q '^step 3000:' "$name.log" || fail "mlp: $victim was killed, and no worker has called the hook at the last step"
    for f in plain/ckpt/*3000/part-ps*.safetensors; do
        cmp "$f" "$name/${f#plain/}" || fail "mlp: $victim was killed, and $f differs"
    done
done

# Asynchronous: any order of shards, but all of them, up to the requested step.
for victim in none worker/1 worker/0 ps/0 chief/0; do
    name=async-${victim%/*}${victim#*/}
    consistency=async
    [ "$victim" = worker/1 ] && consistency="stale(2)"
    stdbuf -oL "$bin/mlp" 1500 "$name" "$consistency" >"$name.log" 2>&1 &
    parent=$!
    [ "$victim" = none ] || kill_task $parent "$victim" "$name.log" '^step [3-9]..:'
    wait $parent || { cat "$name.log"; fail "mlp, asynchronous: $victim was killed"; }
    [ "$(ls "$name/ckpt" | tail -1)" = ckpt-000001500 ] || fail "mlp, asynchronous, $victim was killed: the last checkpoint is $(ls "$name/ckpt" | tail -1)"
    grep -Eq '^step 1[45]..: .*accuracy (0\.[89]|1\.0)' "$name.log" || fail "mlp, asynchronous, did not learn: $(cat "$name.log")"
done
"$bin/mlp" 2000 async-none "stale(1)" >more.log 2>&1 || { cat more.log; fail "mlp does not resume in another mode"; }
grep -q '^step 1[56]..:' more.log || fail "mlp does not resume where it was: $(cat more.log)"
[ "$(ls async-none/ckpt | tail -1)" = ckpt-000002000 ] || fail "mlp does not resume to its step"

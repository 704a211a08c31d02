#!/usr/bin/env bash
# weft bench ps: real processes over every transport yield a line, and nothing is left behind, also after Ctrl-C.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

export TMPDIR=$dir/tmp
mkdir "$TMPDIR"
left_behind() { find "$TMPDIR" -mindepth 1 | wc -l; }
gone() { [ ! -d "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status"; }

want 0 "usage: weft bench ps" "$WEFT" bench ps --help
want 2 "bench ps" "$WEFT" bench ps --transport rdma
want 2 "did you mean 'mlp-s'" "$WEFT" bench ps --workload mlps
want 2 "there are: sync, async" "$WEFT" bench ps --consistency never
want 2 "needs --workload" "$WEFT" bench ps --consistency async
want 2 "at least 1" "$WEFT" bench ps --workers 0
want 2 "--batch 1 to" "$WEFT" bench ps --batch 2000000
want 2 "is for --simulate" "$WEFT" bench ps --svg a.svg
want 2 "no model of tables" "$WEFT" bench ps --simulate --workload widedeep
want 3 "cannot write" "$WEFT" bench ps --json /nowhere/at/all
want 3 "cannot write" "$WEFT" bench ps --simulate --json /nowhere/at/all
want 3 "cannot write" "$WEFT" bench ps --simulate --svg /nowhere/at/all
for t in shm uds tcp tls; do
    "$WEFT" bench ps --transport $t --workload softmax64 --servers 2 --workers 2 --blocks 1 --steps 5 --json $t.json ||
        { echo "FAILED: $t"; bad=$((bad + 1)); }
    check "$t: no figures" grep -q "\"workload\": \"softmax64\".*\"transport\": \"$t\".*\"steps_s\": [0-9.]*[1-9]" $t.json
done
want 0 "widedeep, 2 servers" "$WEFT" bench ps --workload widedeep --servers 2 --blocks 1 --steps 2
want 0 "GB/s of parameters" "$WEFT" bench ps --bytes 1000000 --blocks 1 --steps 3
# With several workers: the fraction of time, bytes and the speed-up; one side more than what it is compared with.
want 0 "speed-up over one worker: " "$WEFT" bench ps --workload softmax64 --workers 2 --blocks 1 --steps 5 --batch 100
want 0 " % of the time; 0.01 MB a step and worker" "$WEFT" bench ps --workload softmax64 --transport tcp --against none --blocks 1 --steps 5
"$WEFT" bench ps --workload softmax64 --workers 2 --against unreplicated --servers 2 --blocks 1 --steps 5 --json three.json
check "no ratios" grep -q '"of_unreplicated": [0-9.]*, "speedup": [0-9.]*' three.json

# Asynchronous training: all workers count; in turns with synchronous.
"$WEFT" bench ps --workload softmax64 --workers 2 --consistency async --blocks 2 --steps 50 --json async.json
check "no asynchronous steps" grep -q '"consistency": "async".*"steps_s": [0-9]*[1-9].*"staleness": [0-9.]*' async.json
want 0 "sync over stale(2), in samples/s: " "$WEFT" bench ps --workload mlp-s --workers 2 --consistency "stale(2)" --against sync --blocks 1 --steps 20

# Predictions: what was measured, six real jobs with what is predicted of them, and all sizes.
"$WEFT" bench ps --simulate --workload softmax64 --blocks 1 --steps 3 --json model.json --svg model.svg ||
    { echo "FAILED: --simulate"; bad=$((bad + 1)); }
check "no costs" grep -q '"what": "costs", "shard_s": [0-9.e-]*[1-9]' model.json
check "real jobs" test "$(grep -c '"what": "check".*"measured_steps_s": [0-9.]*[1-9].*"steps_s": [0-9.]*[1-9]' model.json)" -eq 6
check "predictions" test "$(grep -c '"what": "prediction".*"limited_by"' model.json)" -eq 126
check "the largest" grep -q '"gbit": 100, "servers": 64, "workers": 256' model.json
check "curves" test "$(grep -c 'class="curve"' model.svg)" -eq 14
check "no numbers in the picture" sh -c '! grep -qi "nan\|inf" model.svg'
check "the picture has an end" grep -q '</svg>' model.svg
check "files are left in $TMPDIR" test "$(left_behind)" -eq 0

# Ctrl-C in the middle: all processes and the directory are gone.
"$WEFT" bench ps --transport tcp --workload softmax64 --workers 2 --blocks 1 --steps 5000 >/dev/null 2>&1 &
pid=$!
for _ in $(seq 300); do
    [ "$(pgrep -c -P $pid)" -ge 3 ] && break
    sleep 0.1
done
children=$(pgrep -P $pid)
kill -INT $pid
wait $pid
rc=$?
check "exit code $rc after Ctrl-C" test $rc -eq 130
sleep 0.3
for c in $children; do
    check "process $c is still there" gone "$c"
done
check "files are left in $TMPDIR after Ctrl-C" test "$(left_behind)" -eq 0
[ $bad -eq 0 ] && echo "all as wanted"
exit $((bad > 0))

#!/usr/bin/env bash
# weft bench net and the transports of weft doctor: every measure yields its line, and nothing is left behind, also after Ctrl-C.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

export TMPDIR=$dir/tmp
mkdir "$TMPDIR"
left_behind() { find "$TMPDIR" -mindepth 1 | wc -l; }

# A process that no process has waited for yet (Z) has ended, too.
gone() { [ ! -d "/proc/$1" ] || grep -q '^State:[[:space:]]*Z' "/proc/$1/status"; }

want 0 "usage: weft bench net" "$WEFT" bench net --help
want 2 "bench net" "$WEFT" bench net --transport rdma
want 2 "bench net" "$WEFT" bench net --measure width
want 2 "--blocks takes 1 to" "$WEFT" bench net --blocks 0
want 2 "--connections takes 1 to 8" "$WEFT" bench net --connections 9
want 3 "cannot write" "$WEFT" bench net --json /nowhere/at/all
for t in shm uds tcp tls; do
    "$WEFT" bench net --transport $t --bytes 100000 --blocks 1 --json $t.json || { echo "FAILED: $t"; bad=$((bad + 1)); }
    for m in "one way" "round trip" "64 peers" idle; do
        check "$t: no line of '$m'" grep -q "\"measure\": \"$m\", \"transport\": \"$t\".*\"peer\": \"weft\"" $t.json
    done
    check "$t: every line is an object" awk '!/^\{.*\}$/ { exit 1 }' $t.json
done
check "tcp: a raw line of each kind" test "$(grep -c '"peer": "raw"' tcp.json)" -eq 5
check "tcp: no zero" awk '/"(gb_s|us)": (0|-)[,}]/ { exit 1 }' tcp.json
want 0 "weft" "$WEFT" bench net --transport tcp --measure "round trip" --blocks 1

# beside Open MPI, or a line that says why not
want 0 "not compared: Open MPI is not installed (apt install openmpi-bin)" env PATH=/nowhere "$WEFT" bench net --transport shm --measure "round trip" --blocks 1
if command -v mpirun >/dev/null && [ -e /usr/lib/x86_64-linux-gnu/libmpi.so.40 ]; then
    for t in shm tcp; do
        check "$t: both lines of Open MPI" test "$(grep -c '"peer": "Open MPI' $t.json)" -eq 2
    done
    check "no figure is zero" awk '/"peer": "Open MPI/ && /"(gb_s|us)": (0|-)[,}]/ { exit 1 }' shm.json tcp.json
fi
printf '#!/bin/sh\nexit 1\n' >mpirun
chmod +x mpirun
want 0 "not compared: mpirun gave no figures" env PATH="$dir" "$WEFT" bench net --transport shm --measure "round trip" --blocks 1
rm mpirun
want 0 "limits are reached" "$WEFT" bench net --transport tcp --measure "one way" --blocks 1 --bytes 4000000 --connections 1
for t in tcp tls; do
    "$WEFT" bench net --transport $t --measure "one way" --bytes 4000000 --blocks 1 --connections 3 --json three.json
    check "$t: three connections" grep -q '"connections": 3, "peer": "weft"' three.json
done
check "files are left in $TMPDIR" test "$(left_behind)" -eq 0

# Ctrl-C in the middle: both processes and the directory are gone.
"$WEFT" bench net --transport uds --blocks 1000 >/dev/null 2>&1 &
pid=$!
sleep 1
children=$(pgrep -P $pid)
check "the second process is running" test -n "$children"
kill -INT $pid
wait $pid
rc=$?
check "exit code $rc after Ctrl-C" test $rc -eq 130
sleep 0.3
for c in $children; do
    check "process $c is still there" gone "$c"
done
check "files are left in $TMPDIR after Ctrl-C" test "$(left_behind)" -eq 0

# Killed: the second process ends with the first.
"$WEFT" bench net --transport tcp --blocks 1000 >/dev/null 2>&1 &
pid=$!
sleep 1
children=$(pgrep -P $pid)
kill -KILL $pid
wait $pid 2>/dev/null
sleep 0.3
for c in $children; do
    check "process $c outlives the first" gone "$c"
done

want 0 "transports between processes" "$WEFT" doctor
"$WEFT" doctor >doctor.txt
for t in shm uds "tcp, IPv4" "tcp, IPv6" tls; do
    check "doctor says nothing of $t" grep -q "^  $t  *[^ ]" doctor.txt
done
[ $bad -eq 0 ] && echo "all as wanted"
exit $((bad > 0))

#!/usr/bin/env bash
# A launched job whose chiefs write to etcd: a chief is killed and stopped, etcd is killed and started again, and the bits are those of one process. By
# hand: two chiefs, of which the first is killed and not started again. Skipped where etcd is not installed.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 150; printf '%s\n' "save: model.safetensors"; } >job.yaml

# without etcd
if ! "$WEFT" doctor | grep -qE '^  etcd +libcurl'; then
    want 2 "libcurl4-openssl-dev" "$WEFT" launch job.yaml --store etcd://127.0.0.1:1
    echo "skipped: weft was built without libcurl"
    exit $((bad > 0))
fi
want 1 "etcd at 127.0.0.1:1: " timeout 20 "$WEFT" launch job.yaml --store etcd://127.0.0.1:1/x
want 1 "is another machine; use etcds://" timeout 20 "$WEFT" launch job.yaml --store etcd://192.0.2.1/x
want 3 "is not HOST:PORT" timeout 20 "$WEFT" launch job.yaml --store etcd://a:b/x
want 2 "--store-ca, --store-cert and --store-key are for" timeout 20 "$WEFT" launch job.yaml --store-ca x.pem
command -v etcd >/dev/null || { echo "skipped: etcd is not installed (apt install etcd-server)"; exit $((bad > 0)); }

free_port() { for ((p = 20000 + RANDOM % 20000; ; p++)); do (exec 3<>"/dev/tcp/127.0.0.1/$p") 2>/dev/null || { echo $p; return; }; done; }
port=$(free_port)
peer=$(free_port)
answers() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }
start_etcd()
{
    etcd --name t --data-dir "$dir/etcd" --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
        --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" --initial-cluster "t=http://127.0.0.1:$peer" \
        --unsafe-no-fsync >>etcd.txt 2>&1 &
    etcd=$!
    for ((i = 0; i < 200; i++)); do answers && return; sleep 0.05; done
    echo "FAILED: etcd does not start"; tail -5 etcd.txt; exit 1
}
start_etcd
trap 'kill -9 $etcd 2>/dev/null; rm -rf "$dir"' EXIT
# keys below the prefix "weft/": from "weft/" up to "weft0", in base64
count_keys()
{
    local body='{"key":"d2VmdC8=","range_end":"d2VmdDA=","count_only":true}' answer
    exec 3<>"/dev/tcp/127.0.0.1/$port"
    printf 'POST /v3/kv/range HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s' ${#body} "$body" >&3
    answer=$(timeout 5 cat <&3)
    exec 3>&-
    grep -q '"header"' <<<"$answer" || { echo "?"; return; }
    sed -n 's/.*"count":"\([0-9]*\)".*/\1/p' <<<"$answer" | grep . || echo 0
}
"$WEFT" train job.yaml --set train.shards=2 --log none >/dev/null 2>&1
mv model.safetensors wanted
# wait_for PATTERN FILE...: one of them has such a line within a minute, or more where the machine is busy
wait_for()
{
    local i
    for ((i = 0; i < 1200; i++)); do grep -qsE "$1" "${@:2}" && return; sleep 0.05; done
    echo "FAILED: no '$1' in ${*:2}"
    tail -n 20 "${@:2}"
    bad=$((bad + 1))
}
pid_of() { pgrep -P "$launcher" -f -- "--task $1 "; }
# leader: the chief that leads the job. Either may: whoever was started first.
leader()
{
    local i leads=
    for ((i = 0; i < 200; i++)); do
        leads=$("$WEFT" ctl logs status --json 2>/dev/null | sed -n 's/^{"chief": "\([^"]*\)".*/\1/p')
        [ -n "$leads" ] && break
        sleep 0.1
    done
    [ -n "$leads" ] || echo "FAILED: no chief answers" >&2
    echo "${leads:-none}"
}

# 1. launched; it has far more epochs than anybody waits for, and is stopped
"$WEFT" launch job.yaml --ps 2 --workers 2 --standby 1 --store "etcd://127.0.0.1:1,127.0.0.1:$port/weft" --set cluster.timeout=1 --set train.epochs=1000000 \
    --set log.dir=logs --set save=long.safetensors >out.txt 2>err.txt &
launcher=$!
wait_for "worker/1 joined" err.txt
[ "$(count_keys)" -gt 1 ] || { echo "FAILED: nothing is in etcd"; bad=$((bad + 1)); }
kill -9 "$(pid_of "$(leader)")"
wait_for "chief/[01] took over as chief" err.txt
kill -9 $etcd # and a worker dies while there is no store: nobody can be given its shards
kill -9 "$(pid_of worker/1)"
wait_for "chief/[01] cannot reach the store, and tries again" err.txt
start_etcd
wait_for "chief/[01] reaches the store again" err.txt
kill -INT $launcher
wait $launcher
[ "$(count_keys)" = 0 ] || { echo "FAILED: $(count_keys) keys are left in etcd"; bad=$((bad + 1)); }

"$WEFT" launch job.yaml --ps 2 --workers 2 --standby 1 --store "etcd://127.0.0.1:$port" --set cluster.timeout=1 --set log.dir=logs >out.txt 2>err.txt &
launcher=$!
wait_for "worker/1 joined" err.txt
kill -9 "$(pid_of "$(leader)")" $etcd
start_etcd
check "the job ends with exit code 0" wait $launcher
same model.safetensors wanted
[ "$(count_keys)" = 0 ] || { echo "FAILED: $(count_keys) keys are left in etcd"; bad=$((bad + 1)); }
[ $bad -eq 0 ] || tail -20 err.txt

# 2. by hand: nobody starts the chief again
rm -f model.safetensors
cluster="chief=uds:$dir/tmp/c0,uds:$dir/tmp/c1;ps=uds:$dir/tmp/p0;worker=1"
task() { timeout 100 "$WEFT" node --task "$1" --cluster "$cluster" --log none --set train.shards=2 --set train.strategy=ps --set cluster.timeout=1 --set train.epochs=600 "${@:2}" job.yaml >"${1/\//-}.txt" 2>&1 & }
task chief/0 --store "etcd://127.0.0.1:$port/weft/hand"
c0=$!
task chief/1 --set "cluster.store=etcd://127.0.0.1:$port/weft/hand"
c1=$!
task ps/0
ps0=$!
task worker/0
w0=$!
wait_for "worker/0 joined" chief-0.txt chief-1.txt
first=$(grep -l "worker/0 joined" chief-0.txt chief-1.txt)
other=chief-1.txt
[ "$first" = chief-0.txt ] || { other=chief-0.txt c0=$c1; }
pkill -9 -P $c0
wait_for "chief/[01] took over as chief" $other
check "the worker ends with exit code 0" wait $w0
check "and so does the server" wait $ps0
exit $((bad > 0))

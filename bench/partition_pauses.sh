#!/usr/bin/env bash
# How long a job pauses when a machine is cut off: three network namespaces, a chief and a server in the first, the standby chief and the other server in
# the second, a worker in the first and one in the third. cluster.timeout is 1 s, so less than 2 s are promised. Needs root and `ip netns`.
#
#   bench/partition_pauses.sh [REPEATS]        3 by default; WEFT=path of the command
#
# The chiefs' store is a directory that both reach even while the network is cut. One line of JSON per strike.
set -u
SRC=$(cd "$(dirname "$0")/.." && pwd)
WEFT=${WEFT:-$SRC/build/bin/weft}
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
repeats=${1:-3}
mkdir tmp store
export TMPDIR=$dir/tmp LC_ALL=C
three_kinds 600 >data.csv
small_job 1000000 >job.yaml
switch=weft-$$-s spaces=("weft-$$-1" "weft-$$-2" "weft-$$-3") loops=()
clear_all()
{
    [ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null
    for s in "${spaces[@]}"; do ip netns pids "$s" 2>/dev/null | xargs -r kill -9 2>/dev/null; done
    for s in "${spaces[@]}" "$switch"; do ip netns del "$s" 2>/dev/null; done
    rm -rf "$dir"
}
trap clear_all EXIT
ip netns add "$switch" || exit 1
ip -n "$switch" link add br0 type bridge
ip -n "$switch" link set br0 up
for i in 1 2 3; do
    s=${spaces[i - 1]}
    ip netns add "$s"
    ip -n "$switch" link add "p$i" type veth peer name eth0 netns "$s"
    ip -n "$switch" link set "p$i" master br0 up
    ip -n "$s" addr add "10.213.79.$i/24" dev eth0
    ip -n "$s" link set eth0 up
    ip -n "$s" link set lo up
done
cat >cluster.yaml <<YAML
chief: ["tls:10.213.79.1:7000", "tls:10.213.79.2:7000"]
ps: ["tls:10.213.79.1:7001", "tls:10.213.79.2:7001"]
worker: 2
YAML
"$WEFT" cert keys --chiefs 2 --ps 2 --workers 2 >/dev/null || exit 1

# task SPACE NAME FLAGS...: started again when it ends; its lines of progress are stamped
task()
{
    local s=$1 name=$2
    shift 2
    (
        while :; do
            ip netns exec "$s" "$WEFT" node --task "$name" --cluster cluster.yaml --keys keys --log lines --set train.shards=2 --set train.strategy=ps \
                --set cluster.timeout=1 "$@" job.yaml 2>>"err-${name/\//-}.txt" |
                while read -r line; do [[ $line == *"Epoch "* ]] && echo "${EPOCHREALTIME/./}" >>lines.txt; done
            sleep 0.1
        done
    ) &
    loops+=($!)
}

: >lines.txt
task "${spaces[0]}" chief/0 --store store
task "${spaces[1]}" chief/1 --store store
task "${spaces[0]}" ps/0
task "${spaces[1]}" ps/1
task "${spaces[0]}" worker/0
task "${spaces[2]}" worker/1
for ((i = 0; i < 400; i++)); do [ "$(wc -l <lines.txt)" -gt 50 ] && break; sleep 0.05; done
for ((k = 0; k < repeats; k++)); do
    for victim in 3 2 1; do
        [ $victim = 1 ] && [ $((k + 1)) -lt "$repeats" ] && continue # at the end, since it may change who leads
        from=${EPOCHREALTIME/./}
        ip -n "$switch" link set "p$victim" down
        sleep 4
        ip -n "$switch" link set "p$victim" up
        sleep 3
        awk -v v=$victim -v from="$from" '{ if ($1 > from && last && $1 - last > most && $1 < from + 4000000) most = $1 - last; last = $1 }
            END { printf "{\"bench\": \"partition_pauses\", \"cut_off\": \"%s\", \"pause_ms\": %.0f}\n", v == 3 ? "a worker" : v == 2 ? "a server and the standby chief" : "the chief, a server and a worker", most / 1000 }' lines.txt
    done
done

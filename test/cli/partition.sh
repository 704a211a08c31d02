#!/usr/bin/env bash
# A job over TLS in three network namespaces, two chiefs, two servers with backups, two workers: while it trains, one of the three is cut off (both ways, or
# one), or its link is slow. The run ends with the bits of the undisturbed one, and every task with exit code 0. Needs root and `ip netns`; skipped
# where either is missing. N=30 SEED=1 does as many, with these choices.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
if [ "$(id -u)" != 0 ] || ! command -v tc >/dev/null || ! ip netns add "weft-$$" 2>/dev/null; then
    echo "skipped: needs root, ip netns and tc"
    exit 0
fi
ip netns del "weft-$$"
n=${N:-4} seed=${SEED:-$$}
RANDOM=$seed
mkdir tmp store
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 500; printf '%s\n' "checkpoint: {dir: ckpt, steps: 1000, keep_last: 2}" "save: model.safetensors"; } >job.yaml
pick() { echo "${@:$((1 + RANDOM % $#)):1}"; }
switch=weft-$$-s
spaces=("weft-$$-1" "weft-$$-2" "weft-$$-3")
loops=()
# what is left: loops that start tasks again, tasks, namespaces
clear_all()
{
    [ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null
    for s in "${spaces[@]}"; do ip netns pids "$s" 2>/dev/null | xargs -r kill -9 2>/dev/null; done
    for s in "${spaces[@]}" "$switch"; do ip netns del "$s" 2>/dev/null; done
    rm -rf "$dir"
}
trap clear_all EXIT
trap 'exit 1' INT TERM HUP
ip netns add "$switch"
ip -n "$switch" link add br0 type bridge
ip -n "$switch" link set br0 up
for i in 1 2 3; do
    s=${spaces[i - 1]}
    ip netns add "$s"
    ip -n "$switch" link add "p$i" type veth peer name eth0 netns "$s"
    ip -n "$switch" link set "p$i" master br0 up
    ip -n "$s" addr add "10.213.78.$i/24" dev eth0
    ip -n "$s" link set eth0 up
    ip -n "$s" link set lo up
done

"$WEFT" train job.yaml --set train.shards=3 --log none >/dev/null 2>&1
mv model.safetensors wanted
rm -rf ckpt
cat >cluster.yaml <<YAML
chief: ["tls:10.213.78.1:7000", "tls:10.213.78.2:7000"]
ps: ["tls:10.213.78.1:7001", "tls:10.213.78.2:7001"]
worker: 2
YAML
check "certificates" "$WEFT" cert keys --chiefs 2 --ps 2 --workers 2

# task SPACE NAME FLAGS...: in its namespace, started again until it ends with exit code 0
task()
{
    local s=$1 name=$2
    shift 2
    (
        for ((k = 0; k < 200; k++)); do
            ip netns exec "$s" "$WEFT" node --task "$name" --cluster cluster.yaml --keys keys --log none --set train.shards=3 --set train.strategy=ps --set cluster.timeout=1 "$@" job.yaml \
                >>"${name/\//-}.txt" 2>&1 && exit 0
            echo "$name: exit code $?" >>ends.txt
            sleep 0.1
        done
        exit 1
    ) &
    loops+=($!)
}

# misdirect I to|from: packets to that namespace, or from it, go to an address that no one has
misdirect()
{
    local k
    for k in 1 2 3; do
        [ "$k" = "$1" ] && continue
        if [ "$2" = to ]; then
            ip -n "${spaces[k - 1]}" neigh replace "10.213.78.$1" lladdr 02:00:00:00:00:99 dev eth0 nud permanent
        else
            ip -n "${spaces[$1 - 1]}" neigh replace "10.213.78.$k" lladdr 02:00:00:00:00:99 dev eth0 nud permanent
        fi
    done
}

# strike: one of the three is cut off, or far away, for a while
strike()
{
    local i what pause
    i=$(pick 1 2 3) what=$(pick both both to from slow) pause=$(pick 0.3 0.8 1.6 2.5)
    echo "  $(date +%T.%3N) namespace $i: $what for $pause s" >>what.txt
    case $what in
    both) ip -n "$switch" link set "p$i" down ;;
    to) misdirect "$i" to ;;
    from) misdirect "$i" from ;;
    slow) tc -n "$switch" qdisc add dev "p$i" root tbf rate 1mbit burst 16kb latency 300ms ;;
    esac
    sleep "$pause"
    ip -n "$switch" link set "p$i" up
    tc -n "$switch" qdisc del dev "p$i" root 2>/dev/null
    for s in "${spaces[@]}"; do ip -n "$s" neigh flush dev eth0 nud permanent; done
    sleep "$(pick 0.3 1 2)"
}

runs=0 strikes=0
while [ $strikes -lt "$n" ] && [ $bad -eq 0 ]; do
    rm -rf ckpt store model.safetensors ./*-?.txt ends.txt
    mkdir store
    : >what.txt
    loops=() cut=no
    runs=$((runs + 1))
    task "${spaces[0]}" chief/0 --store store
    task "${spaces[1]}" chief/1 --store store
    task "${spaces[0]}" ps/0
    task "${spaces[1]}" ps/1
    task "${spaces[0]}" worker/0
    task "${spaces[2]}" worker/1
    for ((i = 0; i < 200; i++)); do grep -qs "worker/1 joined" chief-?.txt && break; sleep 0.05; done
    [ -f ends.txt ] && { echo "FAILED: tasks end before anything happened"; bad=1; }
    for ((k = 0; k < 6 && strikes < n && bad == 0; k++)); do
        kill -0 "${loops[4]}" 2>/dev/null || break
        strike
        kill -0 "${loops[4]}" 2>/dev/null || cut=yes
        strikes=$((strikes + 1))
    done
    for ((i = 0; i < 900 && bad == 0; i++)); do
        alive=0
        for l in "${loops[@]}"; do kill -0 "$l" 2>/dev/null && alive=$((alive + 1)); done
        [ $alive = 0 ] && break
        if [ $cut = yes ] && [ $i = 100 ]; then # who was cut off when the job ended does not hear of it
            for s in "${spaces[@]}"; do ip netns pids "$s" | xargs -r kill -TERM; done
        fi
        sleep 0.1
    done
    if [ $alive != 0 ]; then
        echo "FAILED: run $runs of seed $seed: $alive tasks do not end"
        bad=1
    elif ! cmp -s model.safetensors wanted; then
        echo "FAILED: run $runs of seed $seed: the model differs"
        bad=1
    fi
    [ $bad -eq 0 ] || { cat what.txt; tail -n 15 ./*-?.txt ends.txt; [ -z "${KEEP:-}" ] || cp -r "$dir" "$KEEP/partition-$seed-$runs"; }
done
echo "seed $seed: $strikes partitions and slow links in $runs runs"
exit $((bad > 0))

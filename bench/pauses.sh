#!/usr/bin/env bash
# How long a launched job pauses when a task dies (kill -9) or hangs (SIGSTOP for 3 s), with the chief's store in a directory and in etcd.
#
#   bench/pauses.sh [REPEATS]        5 by default; WEFT=path of the command
#
# A small job prints a line per epoch of 30 steps, about every 10 ms; a pause is the longest time between two lines from the moment of the strike on. The
# end of an epoch needs the chief and its store, every step the servers and workers. cluster.timeout is 1 s: after a kill -9, less than 2 s are promised,
# after SIGSTOP less than the timeout and 1 s. One line of JSON per case: median and longest pause in milliseconds.
set -u
SRC=$(cd "$(dirname "$0")/.." && pwd)
WEFT=${WEFT:-$SRC/build/bin/weft}
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
repeats=${1:-5}
mkdir tmp
export TMPDIR=$dir/tmp LC_ALL=C
three_kinds 600 >data.csv
small_job 1000000 >job.yaml
trap 'kill $launcher $etcd 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
launcher='' etcd=''

start_etcd()
{
    port=$((20000 + RANDOM % 10000))
    etcd --name t --data-dir "$dir/etcd" --listen-client-urls "http://127.0.0.1:$port" --advertise-client-urls "http://127.0.0.1:$port" \
        --listen-peer-urls "http://127.0.0.1:$((port + 1))" --initial-advertise-peer-urls "http://127.0.0.1:$((port + 1))" \
        --initial-cluster "t=http://127.0.0.1:$((port + 1))" >etcd.txt 2>&1 &
    etcd=$!
    for ((i = 0; i < 200; i++)); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && return; sleep 0.05; done
    echo "etcd does not start" >&2
    exit 1
}

# Lines of the job with the time they came, in microseconds.
# Lines of other workers than worker/0 begin with their name.
stamp() { while read -r line; do [[ $line == *"Epoch "* ]] && echo "${EPOCHREALTIME/./}"; done >>lines.txt; }
pid_of() { pgrep -P "$launcher" -f -- "--task $1 "; }
launch()
{
    : >lines.txt
    "$WEFT" launch job.yaml --ps 2 --workers 2 --set cluster.timeout=1 --set cluster.restarts=1000000 "$@" >pipe 2>err.txt &
    launcher=$!
    stamp <pipe &
    for ((i = 0; i < 400; i++)); do [ "$(wc -l <lines.txt)" -gt 50 ] && return; sleep 0.05; done
    echo "the job does not begin" >&2
    tail -5 err.txt >&2
    exit 1
}
# The task that leads: the last one that took over.
leader() { grep -oE '^chief/[0-9]+ took over' err.txt | tail -1 | cut -d' ' -f1 | grep . || echo chief/0; }

# strike TASK SIGNAL: the pause, in milliseconds
strike()
{
    local pid from
    pid=$(pid_of "$1") || return
    from=${EPOCHREALTIME/./}
    kill -"$2" "$pid"
    sleep 3
    [ "$2" = STOP ] && kill -CONT "$pid"
    sleep 2
    awk -v from="$from" '{ if ($1 > from && last && $1 - last > most) most = $1 - last; last = $1 } END { printf "%.0f\n", most / 1000 }' lines.txt
}

measure()
{
    local store=$1 what=$2 signal=$3 i task
    for ((i = 0; i < repeats; i++)); do
        task=$what
        [ "$what" = chief ] && task=$(leader)
        strike "$task" "$signal"
    done | sort -n >pauses.txt
    awk -v s="$store" -v w="$what" -v g="$signal" '{ p[NR] = $1 } END { printf "{\"bench\": \"pauses\", \"store\": \"%s\", \"task\": \"%s\", \"signal\": \"%s\", \"n\": %d, \"median_ms\": %d, \"longest_ms\": %d}\n", s, w, g, NR, p[int((NR + 1) / 2)], p[NR] }' pauses.txt
}

mkfifo pipe
command -v etcd >/dev/null && start_etcd
for store in directory etcd; do
    where=()
    if [ $store = etcd ]; then
        [ -n "$etcd" ] || { echo "etcd is not installed: left out" >&2; continue; }
        where=(--store "etcd://127.0.0.1:$port/bench")
    fi
    for standby in 0 1; do
        launch --standby $standby "${where[@]}"
        if [ $standby = 0 ]; then
            measure $store chief KILL
        else
            measure "$store, standby" chief KILL
            measure "$store, standby" chief STOP
            if [ $store = directory ]; then
                for task in ps/0 worker/0 worker/1; do
                    measure $store $task KILL
                    measure $store $task STOP
                done
            fi
        fi
        kill -9 "$launcher"
        wait "$launcher" 2>/dev/null
    done
done

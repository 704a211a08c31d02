#!/usr/bin/env bash
# Launched jobs under kill -9 and SIGSTOP of each role over each transport: at random times, two at once, during checkpoints, promotions, takeovers
# and joins. They end with the bits of the undisturbed run, and leave nothing behind. `make torture N=1000` does as many; SEED=N repeats the same
# choices; KEEP=DIR keeps the files of runs that fail.
# ctest-timeout: 300
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
n=${N:-24} seed=${SEED:-$$} done_kills=0 runs=0
[ -n "${WEFT_TEST_QUICK:-}" ] && n=${N:-6}
RANDOM=$seed
declare -A counts
export WEFT_TORTURE=$dir # in the environment of every process of a run, to find those that are left
three_kinds 600 >data.csv
{ small_job 400 yes; printf '%s\n' "checkpoint: {dir: ckpt, steps: 500, keep_last: 2}" "save: model.safetensors" "log: {dir: logs, report: false, tensorboard: false}"; } >job.yaml
"$WEFT" train job.yaml --set train.shards=3 --log none >/dev/null 2>&1
mv model.safetensors wanted
mv logs/history.csv wanted.csv
rm -rf ckpt logs
pick() { echo "${@:$((1 + RANDOM % $#)):1}"; }
count() { counts[$1]=$((${counts[$1]:-0} + 1)); }
pid_of() { pgrep -P "$launcher" -f -- "--task $1 "; }
note() { echo "  $(date +%T.%3N) $*" >>what.txt; }
runs_on() { kill -0 "$launcher" 2>/dev/null; }

# disturb TASK: kills it, or stops it for a while that may be longer than the timeout
disturb()
{
    local pid pause
    pid=$(pid_of "$1") || return
    done_kills=$((done_kills + 1))
    count "${1%/*}"
    count "$transport"
    if [ $((RANDOM % 4)) = 0 ]; then
        pause=$(pick 0.2 0.6 1.6)
        count SIGSTOP
        note "$1: SIGSTOP for $pause s"
        kill -STOP "$pid" 2>/dev/null
        (sleep "$pause"; kill -CONT "$pid" 2>/dev/null) &
    else
        count kill
        note "$1: kill -9"
        kill -9 "$pid" 2>/dev/null
    fi
}

# murder TASK: kill -9, and the process that the launcher starts instead is there
murder()
{
    local was now
    was=$(pid_of "$1") || return
    note "$1: kill -9"
    kill -9 "$was" 2>/dev/null
    done_kills=$((done_kills + 1))
    count "${1%/*}"
    count "$transport"
    count kill
    [ -n "${2:-}" ] || return
    for ((j = 0; j < 60; j++)); do
        now=$(pid_of "$1") && [ "$now" != "$was" ] && return
        sleep 0.05
    done
}

# One disturbance. What is random draws the same numbers whatever happens meanwhile, so that a seed gives the same choices.
strike()
{
    local what victim second
    what=$(pick random random two checkpoint promotion takeover join)
    victim=$(pick "${tasks[@]}") second=$(pick "${tasks[@]}")
    count "$what"
    note "$what"
    case $what in
    random) disturb "$victim" ;;
    two) disturb "$victim"; disturb "$second" ;;
    checkpoint) kill -USR1 "$launcher" 2>/dev/null; sleep "$(pick 0 0.01 0.03)"; disturb "$victim" ;;
    promotion) murder "ps/$((RANDOM % ps))"; sleep "$(pick 0 0.02 0.1)"; disturb "$victim" ;;
    takeover) murder chief/0; sleep "$(pick 0 0.1 0.3)"; disturb "$victim" ;;
    join) murder "$victim" again; sleep "$(pick 0 0.05 0.2)"; disturb "$(pick "$victim" "$second")" ;;
    esac
}

# What a run leaves behind: processes, files, shared memory.
left_behind()
{
    for ((j = 0; j < 30; j++)); do
        left=$(grep -lzsF "WEFT_TORTURE=$dir" /proc/[0-9]*/environ 2>/dev/null | while read -r f; do
            f=${f#/proc/} f=${f%/environ}
            [ "$f" != $$ ] && [ "$(readlink "/proc/$f/exe" 2>/dev/null)" = "$(readlink -f "$WEFT")" ] && echo "$f"
        done)
        [ -z "$left" ] && [ -z "$(ls -A tmp)" ] && return 1
        sleep 0.1
    done
    return 0
}

failed()
{
    echo "FAILED: run $runs of seed $seed: $1"
    cat what.txt
    tail -40 err.txt
    bad=$((bad + 1))
    [ -z "${KEEP:-}" ] || { mkdir -p "$KEEP"; cp -r "$dir" "$KEEP/seed-$seed-run-$runs"; }
}

shared() { find /dev/shm -name '*weft*' -newer job.yaml 2>/dev/null; }
while [ $done_kills -lt "$n" ] && [ $bad -lt 3 ]; do
    ps=$(pick 1 2 2 3) workers=$(pick 1 2 3) transport=$(pick shm uds tls tcp shm) standby=$(pick 0 1) evaluators=$(pick 0 0 0 1)
    flags=(--ps "$ps" --workers "$workers" --transport "$transport" --standby "$standby" --evaluators "$evaluators")
    [ "$transport" = tcp ] && flags+=(--insecure)
    tasks=(chief/0)
    for ((i = 0; i < ps; i++)); do tasks+=("ps/$i"); done
    for ((i = 0; i < workers; i++)); do tasks+=("worker/$i"); done
    [ "$evaluators" = 1 ] && tasks+=(evaluator/0)
    rm -rf ckpt logs model.safetensors
    echo "${flags[*]}" >what.txt
    "$WEFT" launch job.yaml "${flags[@]}" --set train.shards=3 --set cluster.timeout=1 --set cluster.restarts=1000000 >out.txt 2>err.txt &
    launcher=$!
    runs=$((runs + 1))
    for ((k = 0; k < 8; k++)); do
        sleep "$(pick 0.3 0.5 0.8 1.2)"
        runs_on || break
        strike
    done
    for ((k = 0; k < 900; k++)); do
        runs_on || break
        sleep 0.1
    done
    if runs_on; then
        failed "it does not end"
        kill -9 $launcher
        wait $launcher
    elif ! wait $launcher; then
        failed "its exit code is not 0"
    elif ! cmp -s model.safetensors wanted; then
        failed "the model differs"
    elif ! cmp -s logs/history.csv wanted.csv; then
        failed "history.csv differs"
    fi
    left_behind && { failed "something is left: $left"; ls -A tmp; }
done
[ -z "$(shared)" ] || { echo "FAILED: shared memory is left"; shared; bad=$((bad + 1)); }
echo "seed $seed: $done_kills tasks killed or stopped in $runs runs:"
for k in "${!counts[@]}"; do echo "$k ${counts[$k]}"; done | sort | tr '\n' ',' | sed 's/,$/\n/; s/,/, /g; s/^/  /'

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

#!/usr/bin/env bash
# Launched jobs under kill -9 and SIGSTOP of each role over each transport: at random times, two at once, during checkpoints, promotions, takeovers
# and joins, in every mode. In synchronous training, and in rounds of workers that wait for each other, they end with the bits of the undisturbed run;
# in asynchronous training, also in rounds and with a bound on staleness, every weight says how often its sample was applied: once an epoch. They leave
# nothing behind. `make torture N=1000` kills as many; SEED=N repeats the same choices; MODES="async stale" tries these alone; KEEP=DIR keeps the files of
# runs that fail.
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
ending() { printf '%s\n' "checkpoint: {dir: ckpt, steps: 500, keep_last: 2}" "save: model.safetensors" "log: {dir: logs, report: false, tensorboard: false}"; }
{ small_job 400 yes; ending; } >job.yaml
rounds=(--set train.update=worker --set train.every=7)
undisturbed() # NAME flags...: what the job gives in one process
{
    "$WEFT" train job.yaml --set train.shards=3 --log none "${@:2}" >/dev/null 2>&1 || { echo "FAILED: the undisturbed run '$1'"; exit 1; }
    mv model.safetensors "$1.model"
    mv logs/history.csv "$1.csv"
    rm -rf ckpt logs
}
undisturbed sync
undisturbed rounds "${rounds[@]}"

# A job whose weights count: the gradient of a sample's row is a constant, and the learning rate is the number of samples of a shard, so a row has moved
# by 1 for each time that the sample was applied. Added up in any order, that is exact. An epoch has 25 batches.
samples=600 epochs=200
awk -v n=$samples 'BEGIN { print "id,y"; for (i = 0; i < n; i++) print i ",1000000" }' >count.csv
cat >count.yaml <<YAML
data:
  train: {path: count.csv, label: y, index: true}
  batch: 24
model:
  - Embedding: {input_dim: $samples, output_dim: 1, embeddings_initializer: zeros}
  - Flatten: {}
train:
  loss: mean_absolute_error
  epochs: $epochs
$(ending)
YAML

# counted TIMES: every value of the model is as large
counted()
{
    local head
    head=$(od -An -t u8 -N 8 model.safetensors | tr -d ' ')
    od -An -v -w4 -t f4 -j $((8 + head)) -N $((4 * samples)) model.safetensors |
        awk -v n=$samples -v times="$1" '{ d = $1 - times; if (d > 0.01 || d < -0.01) { if (bad++ < 5) print "row " NR - 1 ": " $1 " instead of " times } }
            END { if (bad || NR != n) print bad + 0 " of " NR " rows are wrong"; exit bad || NR != n }'
}

# The end of a run in its mode
compare()
{
    case $mode in
    sync | rounds)
        cmp -s model.safetensors "$mode.model" || { echo "the model differs"; return; }
        cmp -s logs/history.csv "$mode.csv" || echo "history.csv differs"
        ;;
    *)
        counted $epochs
        [ "$(wc -l <logs/history.csv)" = $((epochs + 1)) ] || echo "history.csv has $(wc -l <logs/history.csv) lines"
        ;;
    esac
}

# Flags of a run in its mode, and its job
choose_mode()
{
    local bound sparse every
    shards=3
    # shellcheck disable=SC2086
    mode=$(pick ${MODES:-sync sync rounds async stale async_rounds})
    bound=$(pick 1 1 2 5) sparse=$(pick "" sparse) every=$(pick 1 4 10)
    job=count.yaml
    case $mode in
    sync) job=job.yaml more=() ;;
    rounds) job=job.yaml more=("${rounds[@]}") ;;
    async) more=(--consistency async) ;;
    stale) more=(--consistency "stale($bound)") ;;
    async_rounds) more=(--consistency "$(pick async "stale($bound)")" --set train.update=worker --set "train.every=$every" --set "train.merge=sum") ;;
    esac
    if [ $job = count.yaml ]; then
        shards=$(pick 1 2 3 4 6 8 12)
        more+=(--set "train.optimizer=sgd learning_rate=$((24 / shards))")
    fi
    [ -z "$sparse" ] && more+=(--set train.sparse=false)
}
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

# Files alone: tests of checkpoints have directories there.
shared() { find /dev/shm -maxdepth 1 -type f -name '*weft*' -newer job.yaml 2>/dev/null; }
while [ $done_kills -lt "$n" ] && [ $bad -lt 3 ]; do
    choose_mode
    ps=$(pick 1 2 2 3) workers=$(pick 1 2 3) transport=$(pick shm uds tls tcp shm) standby=$(pick 0 1) evaluators=$(pick 0 0 0 1)
    flags=(--ps "$ps" --workers "$workers" --transport "$transport" --standby "$standby" --evaluators "$evaluators")
    [ "$transport" = tcp ] && flags+=(--insecure)
    tasks=(chief/0)
    for ((i = 0; i < ps; i++)); do tasks+=("ps/$i"); done
    for ((i = 0; i < workers; i++)); do tasks+=("worker/$i"); done
    [ "$evaluators" = 1 ] && tasks+=(evaluator/0)
    rm -rf ckpt logs model.safetensors
    echo "$mode: ${more[*]} ${flags[*]}" >what.txt
    "$WEFT" launch $job "${flags[@]}" "${more[@]}" --set train.shards=$shards --set cluster.timeout=1 --set cluster.restarts=1000000 >out.txt 2>err.txt &
    launcher=$!
    runs=$((runs + 1)) before=$done_kills
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
    else
        wrong=$(compare)
        [ -z "$wrong" ] || failed "$wrong"
    fi
    counts[$mode]=$((${counts[$mode]:-0} + done_kills - before))
    left_behind && { failed "something is left: $left"; ls -A tmp; }
done
[ -z "$(shared)" ] || { echo "FAILED: shared memory is left"; shared; bad=$((bad + 1)); }
echo "seed $seed: $done_kills tasks killed or stopped in $runs runs:"
for k in "${!counts[@]}"; do echo "$k ${counts[$k]}"; done | sort | tr '\n' ',' | sed 's/,$/\n/; s/,/, /g; s/^/  /'

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

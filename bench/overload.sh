#!/usr/bin/env bash
# A server that is overloaded, because its machine does something else, is relieved of pieces, and gets them back (cluster.balance): one of two servers
# hardly gets a core, since it yields to others that want all of them. It takes half a minute to some minutes, depending on what else runs.
#
#   bench/overload.sh                WEFT=path of the command
SRC=$(cd "$(dirname "$0")/.." && pwd)
WEFT=${WEFT:-$SRC/build/bin/weft}
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
[ -r /proc/self/schedstat ] || { echo "skipped: this system does not tell how long threads wait for a core"; exit 0; }
mkdir tmp
export TMPDIR=$dir/tmp
awk 'BEGIN { srand(3); print "id,kind"; for (i = 0; i < 600; i++) printf "%d,%d\n", int(rand() * 100000), i % 3 }' >ids.csv
cat >job.yaml <<'YAML'
data: {train: {path: ids.csv, label: kind, index: true}, batch: 4}
model:
  - Embedding: {input_dim: 100000, output_dim: 64}
  - Dense: {units: 3}
train: {loss: sparse_categorical_crossentropy from_logits=true, epochs: 100000, sparse: false}
checkpoint: {dir: ckpt, seconds: 100000}
YAML
"$WEFT" launch job.yaml --ps 2 --workers 1 --replicas 1 --threads 1 --set cluster.balance=0.3 --set cluster.timeout=30 >out.txt 2>err.txt &
launcher=$!
others=()
trap 'kill ${others[*]} 2>/dev/null; kill -9 $launcher 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT

# until_says PATTERN FROM: within 2 minutes there is such a line after line FROM of err.txt
until_says()
{
    for ((i = 0; i < 1200; i++)); do
        tail -n +$(($2 + 1)) err.txt | grep -qE "$1" && return
        kill -0 $launcher 2>/dev/null || break
        sleep 0.1
    done
    echo "FAILED: nobody says $1"
    cat err.txt
    "$WEFT" ctl ckpt status
    bad=$((bad + 1))
}
for ((i = 0; i < 600; i++)); do "$WEFT" ctl ckpt status --json 2>/dev/null | grep -q '"step": [1-9]' && break; sleep 0.1; done
server=$(pgrep -P $launcher -f -- '--task ps/1 ')
for thread in /proc/"$server"/task/*; do renice -n 15 "${thread##*/}" >/dev/null; done
for ((i = 0; i <= $(nproc); i++)); do
    (exec timeout 200 bash -c 'while :; do :; done') &
    others+=($!)
done
until_says '^ps/0 takes [0-9] of [0-9] pieces over from ps/1' 0
kill "${others[@]}"
others=()
for thread in /proc/"$server"/task/*; do renice -n 0 "${thread##*/}" >/dev/null 2>&1; done # which root may do
lines=$(wc -l <err.txt)
until_says '^ps/1 takes [0-9] of [0-9] pieces over from ps/0' "$lines"
grep -E '^(ps|worker|chief)/[01] (is gone|ended)' err.txt && { echo "FAILED: a task was lost"; bad=$((bad + 1)); }
want 0 "the job stops" "$WEFT" ctl ckpt stop
wait $launcher || { echo "FAILED: exit code $?"; tail -5 err.txt; bad=$((bad + 1)); }

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

#!/usr/bin/env bash
# A worker that decides for others, and whose last checkpoint failed (the disk is full), hands over to another one: that ends neither it nor the job.
# Needs root, for a small disk; skipped without.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp ckpt
export TMPDIR=$dir/tmp
mount -t tmpfs -o size=400k tmpfs ckpt 2>/dev/null || { echo "skipped: cannot mount a small disk"; exit 0; }
trap 'umount ckpt; rm -rf "$dir"' EXIT
three_kinds 600 >data.csv
{ small_job 100000 yes; printf '%s\n' "checkpoint: {dir: ckpt, steps: 100, keep_last: 1}" "log: {dir: logs, report: false, tensorboard: false}"; } >job.yaml
"$WEFT" launch job.yaml --ps 2 --workers 2 --set train.shards=2 --set cluster.timeout=1 >out.txt 2>err.txt &
launcher=$!
# until_says PATTERN [N]: within 20 s err.txt has N such lines
until_says() { for ((i = 0; i < 400; i++)); do [ "$(grep -cE "$1" err.txt)" -ge "${2:-1}" ] && return; sleep 0.05; done; echo "FAILED: nobody says $1"; cat err.txt; bad=$((bad + 1)); }
for ((i = 0; i < 200; i++)); do [ "$(grep -sc '^Epoch' out.txt)" -ge 2 ] && break; sleep 0.05; done
dd if=/dev/zero of=ckpt/filler bs=1k count=1000 2>/dev/null
until_says 'No space left on device'
# it is silent for longer than the timeout, and joins again; the other one decides meanwhile
first=$(pgrep -P $launcher -f -- '--task worker/0 ')
kill -STOP "$first"
until_says '^worker/0 is gone'
kill -CONT "$first"
until_says '^worker/0 (joined|failed)' 2
sleep 1
rm ckpt/filler
sleep 0.5
check "the job stops" "$WEFT" ctl ckpt stop
wait $launcher || { echo "FAILED: exit code $?"; bad=$((bad + 1)); }
if grep -E 'worker/[01] failed' err.txt; then bad=$((bad + 1)); fi
[ $bad -eq 0 ] || tail -n 30 err.txt
[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

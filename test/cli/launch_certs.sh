#!/usr/bin/env bash
# A job that outlives its certificates: they are renewed while it runs, tasks that are killed or join after the first ones have expired come in, and the
# run has the bits of one process.
# ctest-timeout: 150
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 100000 yes; printf '%s\n' "checkpoint: {dir: ckpt, steps: 500}" "save: model.safetensors" "log: {dir: logs}"; } >job.yaml
want 2 "at least 0.1" "$WEFT" launch job.yaml --cert-minutes 0
want 2 "at least 0.1" "$WEFT" launch job.yaml --cert-minutes 5m

# valid for 6 s, renewed every 2 s
began=$SECONDS
"$WEFT" launch job.yaml --ps 2 --workers 2 --set train.shards=2 --set cluster.timeout=1 --transport tls --cert-minutes 0.1 --token-file token >out.txt 2>err.txt &
launcher=$!
for ((i = 0; i < 200; i++)); do [ "$(grep -sc '^Epoch' out.txt)" -ge 2 ] && break; sleep 0.05; done
[ -f ckpt/control ] || { echo "FAILED: the job did not begin"; cat err.txt; exit 1; }
keys=$(sed -n 's/^keys //p' ckpt/control)
check "the first certificate" cp "$keys/worker-1.pem" first.pem
door=$(sed -n 's/.*weft node --join \([^ ]*\) .*/\1/p' err.txt | head -1)
"$WEFT" node --join "$door" --token-file token >joined.txt 2>&1 &
joined=$!
while [ $((SECONDS - began)) -lt 8 ]; do sleep 0.2; done
if openssl x509 -in first.pem -noout -checkend 0 >/dev/null; then echo "FAILED: the first certificate is valid still"; bad=$((bad + 1)); fi
check "the present one is valid" openssl x509 -in "$keys/worker-1.pem" -noout -checkend 0
# those that are started again, and their peers, shake hands with certificates that are younger
for task in ps/1 worker/1 chief/0; do
    kill -9 "$(pgrep -P $launcher -f -- "--task $task ")"
    sleep 1
done
joins() { "$WEFT" ctl ckpt status --json 2>/dev/null | grep -qE "\"$1\", \"state\": \"(runs|leads)\""; }
for task in ps/1 worker/1 worker/2; do
    for ((i = 0; i < 100; i++)); do joins $task && break; sleep 0.1; done
    check "$task belongs to the job after the first certificates have expired" joins $task
done
# the one that joined from elsewhere: cut off, so that it needs a new connection
kill -STOP $joined
sleep 1.5
kill -CONT $joined
sleep 1
for ((i = 0; i < 100; i++)); do joins worker/2 && break; sleep 0.1; done
check "worker/2, which joined by a token, comes back" joins worker/2
check "what was done is in the event log" grep -q "launch .*certificates were renewed" logs/events.log
want 0 "the job stops" "$WEFT" ctl ckpt stop
wait $launcher || { echo "FAILED: exit code $?"; bad=$((bad + 1)); }
wait $joined || { echo "FAILED: who joined ended with $?"; bad=$((bad + 1)); }
[ $bad -eq 0 ] || { cat err.txt joined.txt; }
step=$(sed -n 's/.*stopped after step \([0-9]*\);.*/\1/p' err.txt | head -1)
epochs=$((${step:-0} / 30 + 2))
check "the run resumes after step ${step:-?}" "$WEFT" train job.yaml --set train.shards=2 --set train.epochs=$epochs --log none
mv model.safetensors got
rm -rf ckpt logs
check "the undisturbed run" "$WEFT" train job.yaml --set train.shards=2 --set train.epochs=$epochs --log none
same got model.safetensors

[ -z "$(ls -A tmp)" ] || { echo "FAILED: files are left"; ls tmp; bad=$((bad + 1)); }
[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

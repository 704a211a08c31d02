#!/usr/bin/env bash
# weft launch with asynchronous training and a bound on staleness: it learns; a worker is killed; weft ctl; it is stopped and resumes in another mode.
# ctest-timeout: 200
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 400 yes; echo "checkpoint: {dir: ckpt, steps: 100}"; echo "save: model.safetensors"; } >job.yaml

last_loss() { grep -o ' - loss: [0-9.]*' "$1" | tail -1 | tr -dc '0-9.'; }

want 3 "sync, async, or stale(S)" "$WEFT" launch --ps 1 --workers 2 --consistency fast --explain job.yaml
want 3 "train.accumulate" "$WEFT" launch --ps 1 --workers 2 --consistency async --set train.accumulate=2 --explain job.yaml
want 3 "needs strategy: ps" "$WEFT" train --set cluster.consistency=async job.yaml
# what such a job has trained is looked at without servers
{ cat job.yaml; echo "log: {dir: looked}"; echo "cluster: {consistency: async}"; } >look.yaml
want 0 "Epoch 2/2" "$WEFT" launch look.yaml --ps 1 --workers 2 --set train.epochs=2
for command in "eval" "summary" "history" "report"; do want 0 "" "$WEFT" $command look.yaml; done
want 0 "" "$WEFT" predict look.yaml data.csv
want 3 "needs strategy: ps" "$WEFT" train look.yaml
rm -rf ckpt looked model.safetensors

"$WEFT" launch --ps 2 --workers 2 --consistency async job.yaml >out.txt 2>err.txt &
pid=$!
for _ in $(seq 400); do
    [ "$(grep -sc '^Epoch' out.txt)" -ge 20 ] && break
    sleep 0.05
done
"$WEFT" ctl ckpt status >status.txt
check "no staleness in the status" grep -q "worker/.*staleness [0-9.]*, at most" status.txt
kill -9 "$(pgrep -f -- "--task worker/1 .*$TMPDIR" | head -1)"
sleep 1
"$WEFT" ctl ckpt checkpoint >ckpt.txt 2>&1
check "no checkpoint on request" grep -q "step [0-9]*: " ckpt.txt
"$WEFT" ctl ckpt stop >/dev/null 2>&1
wait $pid
check "exit code $? after a stop" test $? -eq 0
check "the worker was not started again" grep -q "worker/1" err.txt out.txt
"$WEFT" launch --ps 1 --workers 3 --consistency "stale(2)" job.yaml >more.txt 2>&1
check "exit code $? of the run that resumes" test $? -eq 0
check "it does not resume" grep -q "resuming from" more.txt
check "it does not end with epoch 400" grep -q "^Epoch 400/400" more.txt
check "a model is missing" test -s model.safetensors
check "it does not learn: $(last_loss more.txt)" awk "BEGIN { exit !($(last_loss more.txt) < 0.6) }"
check "files are left" test -z "$(ls -A tmp)"
[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

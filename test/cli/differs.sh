#!/usr/bin/env bash
# A worker with another model, seed or data than the others is refused, and told what differs; one that only computes other last bits is not.
# ctest-timeout: 200
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
three_kinds 600 >data.csv
sed '300s/,[0-9.]*,/,9.125,/' data.csv >other.csv
{ small_job 3; echo "save: model.safetensors"; } >job.yaml
sed 's/activation: relu/activation: tanh/' job.yaml >tanh.yaml
mkdir elsewhere && mv other.csv elsewhere/data.csv && cp job.yaml elsewhere
check "the same job in one process" "$WEFT" train job.yaml --set train.shards=2 --log none
mv model.safetensors wanted
cluster="chief=uds:$dir/c;ps=uds:$dir/p;worker=2"

# node TASK ARGUMENTS...
node() { timeout 100 "$WEFT" node --task "$1" --cluster "$cluster" --set train.shards=2 "${@:2}"; }

for t in chief/0 ps/0 worker/0; do node $t job.yaml >"${t/\//-}.txt" 2>&1 & done
for ((i = 0; i < 400; i++)); do grep -q "cluster" worker-0.txt && break; sleep 0.05; done
sleep 0.5 # the first one is what others are compared with
want 75 "'chief/0' refuses this worker: the seed is 8 here and 0 in the job" node worker/1 job.yaml --set seed=8
want 75 "is tanh(%6) -> f32[?,16] here and relu(%6) -> f32[?,16] in the job" node worker/1 tanh.yaml
want 75 "refuses this worker: the content of 'data.csv' is" node worker/1 elsewhere/job.yaml
want 75 "refuses this worker: the batch size is 8 here and 16 in the job" node worker/1 job.yaml --set data.batch=8
want 0 "" node worker/1 job.yaml
for p in $(jobs -p); do wait "$p" || { echo "FAILED: a task of the job: exit code $?"; tail -n 3 ./*.txt; bad=$((bad + 1)); }; done
grep -q "task 'worker/1' is refused: the seed is 8" chief-0.txt || { echo "FAILED: the chief says whom it refuses"; cat chief-0.txt; bad=$((bad + 1)); }
same wanted model.safetensors
rm -f model.safetensors ./*.txt

# other instructions: trained, with a warning
for t in chief/0 ps/0 worker/0; do node $t job.yaml >"${t/\//-}.txt" 2>&1 & done
want 0 "" node worker/1 job.yaml --set resources.simd=portable
for p in $(jobs -p); do wait "$p" || { echo "FAILED: a task of the job: exit code $?"; tail -n 3 ./*.txt; bad=$((bad + 1)); }; done
grep -q "the last bits of results depend on who computes a shard" chief-0.txt || { echo "FAILED: the chief warns"; cat chief-0.txt; bad=$((bad + 1)); }

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

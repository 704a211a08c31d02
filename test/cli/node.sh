#!/usr/bin/env bash
# weft node without a launcher: tasks as TF_CONFIG, torchrun and Slurm number them train with the bits of weft train; mistakes in lists, certificates and
# tokens are named at once, by the task that has them.
# ctest-timeout: 200
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
three_kinds 600 >data.csv
{ small_job 3; echo "save: model.safetensors"; } >job.yaml
check "the same job in one process" "$WEFT" train job.yaml --set train.shards=2 --log none
mv model.safetensors wanted
port=$((20000 + RANDOM % 10000))
check "certificates" "$WEFT" cert keys --ps 1 --workers 2

# trains NAME: what runs in the background ends with code 0, with the bits of one process
pids=()
trains()
{
    local pid
    for pid in "${pids[@]}"; do wait "$pid" || { echo "FAILED: $1: exit code $?"; bad=$((bad + 1)); tail -n 3 task-*.txt; }; done
    pids=()
    same wanted model.safetensors
    rm -rf model.safetensors task-*.txt ckpt logs
}

tf='{"cluster":{"chief":["127.0.0.1:%d"],"ps":["127.0.0.1:%d"],"worker":["127.0.0.1:1","127.0.0.1:2"]},"task":{"type":"%s","index":%d},"environment":"cloud"}'
for t in "chief 0" "ps 0" "worker 0" "worker 1"; do
    # shellcheck disable=SC2059
    TF_CONFIG=$(printf "$tf" $port $((port + 1)) "${t% *}" "${t#* }") timeout 60 "$WEFT" node --keys keys --set train.shards=2 job.yaml >"task-${t/ /-}.txt" 2>&1 &
    pids+=($!)
done
trains TF_CONFIG
for r in 0 1 2; do
    RANK=$r WORLD_SIZE=3 LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$((port + 10)) timeout 60 "$WEFT" node --ps 1 --keys keys \
        --set train.shards=2 job.yaml >"task-$r.txt" 2>&1 &
    pids+=($!)
done
trains torchrun
for r in 0 1 2; do
    SLURM_JOB_ID=$((port + 20)) SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=3 SLURM_PROCID=$r SLURM_STEP_NODELIST=127.0.0.1 SLURM_STEP_TASKS_PER_NODE=3 \
        timeout 60 "$WEFT" node --ps 1 --keys keys --port $((port + 20)) --set train.shards=2 job.yaml >"task-$r.txt" 2>&1 &
    pids+=($!)
done
trains Slurm

# mistakes in lists
cat >cluster.yaml <<YAML
chief: ["tls:127.0.0.1:$((port + 30))"]
ps: ["tls:127.0.0.1:$((port + 31))"]
worker: 2
YAML
node() { timeout 10 "$WEFT" node --cluster cluster.yaml --keys keys "$@" job.yaml; }
want 2 "no cluster" "$WEFT" node job.yaml
SLURM_JOB_ID=1 want 2 "start it by srun" "$WEFT" node job.yaml
TF_CONFIG='{"cluster":{"worker":["127.0.0.1:1","127.0.0.1:2"]},"task":{"type":"worker","index":0}}' \
    want 2 "the cluster has no ps" "$WEFT" node --keys keys job.yaml
want 2 "did you mean 'ps'?" node --task pz/0
[ "$(node --task pz/0 2>&1 | wc -l)" = 1 ] || { echo "FAILED: one mistake, two messages"; bad=$((bad + 1)); }
want 3 "no task 'ps/5'" node --task ps/5
want 2 "tls needs --keys" "$WEFT" node --cluster cluster.yaml --task ps/0 job.yaml
want 3 "nokeys/authority.pem: cannot open" "$WEFT" node --cluster cluster.yaml --task ps/0 --keys nokeys job.yaml

# the certificate of another authority: the others would refuse it, again and again
check "other certificates" "$WEFT" cert other --ps 1 --workers 2
cp other/authority.pem keys/
want 1 "keys/ps-0.pem: it was made by another authority" node --task ps/0

# tokens
echo garbage >token
want 3 "token: not a token" "$WEFT" node --join 127.0.0.1:9 --token-file token
want 2 "belong together" "$WEFT" node --join 127.0.0.1:9
"$WEFT" launch job.yaml --ps 1 --workers 2 --remote 1 --token-file token >out.txt 2>err.txt &
launcher=$!
for ((i = 0; i < 200; i++)); do grep -q 'weft node --join' err.txt && break; sleep 0.05; done
door=$(sed -n 's/.*weft node --join \([^ ]*\) .*/\1/p' err.txt | head -1)
awk '{ $5 = (substr($5, 1, 1) == "0" ? "1" : "0") substr($5, 2); print }' token >wrong
want 1 "the door refuses" "$WEFT" node --join "$door" --token-file wrong
awk '{ $4 = (substr($4, 1, 1) == "0" ? "1" : "0") substr($4, 2); print }' token >wrong
want 1 "certificate not trusted" "$WEFT" node --join "$door" --token-file wrong
check "the right token" timeout 60 "$WEFT" node --join "$door" --token-file token
wait $launcher || { echo "FAILED: the job with a worker that joined: exit code $?"; cat err.txt; bad=$((bad + 1)); }
same wanted model.safetensors
[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

#!/usr/bin/env bash
# The only server and the worker that decides are killed at the same moment, at the beginning of an asynchronous job: the other worker, which is asked to
# decide meanwhile, follows the one that was started again, instead of waiting for a version that is long gone. Every sample counts once.
# ctest-timeout: 120
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
n=600 epochs=3
awk -v n=$n 'BEGIN { print "id,y"; for (i = 0; i < n; i++) print i ",1000000" }' >data.csv
cat >job.yaml <<YAML
data:
  train: {path: data.csv, label: y, index: true}
  batch: 8
model:
  - Embedding: {input_dim: $n, output_dim: 1, embeddings_initializer: zeros}
  - Flatten: {}
train:
  optimizer: sgd learning_rate=1
  loss: mean_absolute_error
  epochs: $epochs
  shards: 8
checkpoint: {dir: ckpt}
save: model.safetensors
YAML
for try in 0 1 2 3 4; do # requests are repeated once a second, which is long enough for the worker that is started again
    rm -rf ckpt model.safetensors out.txt err.txt
    "$WEFT" launch job.yaml --ps 1 --workers 2 --consistency async --set cluster.timeout=30 >out.txt 2>err.txt &
    launcher=$!
    for ((i = 0; i < 1000; i++)); do
        grep -q "worker/0 joined" err.txt && break
        sleep 0.005
    done
    sleep 0.0$((try % 4))
    # shellcheck disable=SC2046
    kill -9 $(pgrep -P $launcher -f -- "--task (ps|worker)/0 ") 2>/dev/null
    for ((i = 0; i < 300; i++)); do
        kill -0 $launcher 2>/dev/null || break
        sleep 0.1
    done
    [ $i -lt 300 ] || { echo "FAILED: the job hangs (try $try)"; tail -3 err.txt; kill $launcher; sleep 1; kill -9 $launcher; bad=$((bad + 1)); break; }
    check "the job ends (try $try)" wait $launcher
    head=$(od -An -t u8 -N 8 model.safetensors | tr -d ' ')
    od -An -v -w4 -t f4 -j $((8 + head)) -N $((4 * n)) model.safetensors |
        awk -v n=$n -v times=$epochs '$1 != times { bad++ } END { if (bad || NR != n) print bad + 0 " of " NR " samples do not count " times " times"; exit bad || NR != n }' ||
        { echo "FAILED: samples (try $try)"; bad=$((bad + 1)); }
done
exit $((bad > 0))

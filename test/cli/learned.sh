#!/usr/bin/env bash
# What a pipeline has learned goes with the model: predictions do not depend on today's training file, nor on its being there; a
# saved model is shipped alone; held-out rows have no part in what training sees.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

# Flowers of three kinds, with a color that helps and gaps in one measure.
flowers()
{
    awk -v seed="$1" -v n="$2" 'BEGIN { srand(seed); print "length,width,color,kind"
        for (i = 0; i < n; i++) { k = i % 3
            printf "%s,%.3f,%s,%s\n", rand() < 0.1 ? "" : sprintf("%.3f", 1 + k + rand()), 3 - k + rand(), \
                rand() < 0.8 ? substr("redblufir", 3 * k + 1, 3) : "red", substr("abc", k + 1, 1) } }'
}
flowers 3 300 >flowers.csv
flowers 4 60 >test.csv
cat >job.yaml <<'YAML'
seed: 4
data:
  train: {path: flowers.csv, label: kind, index: true}
  test: {path: test.csv, label: kind}
  pipeline:
    - lookup: {columns: color}
    - one_hot: {columns: color, depth: 5}
    - lookup: {columns: kind, unknown: 0}
    - fill_mean: {columns: length}
    - standardize: {columns: "length, width"}
    - join: {columns: "length, width, color", to: features}
  batch: 16
  validation_split: 0.2
model:
  - Dense: {units: 16, activation: relu}
  - Dense: {units: 3}
train:
  optimizer: adam learning_rate=0.01
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy
  epochs: 3
checkpoint: {dir: ckpt, steps: 5}
save: model.safetensors
log: {dir: log}
YAML
"$WEFT" train job.yaml --log none || bad=$((bad + 1))
"$WEFT" predict job.yaml --out whole.csv || bad=$((bad + 1))
"$WEFT" eval job.yaml --json >whole.json

# after: what was done to the training file. Checkpoint and saved model give the same bits as before.
after()
{
    "$WEFT" predict job.yaml --out now.csv 2>err.txt || { echo "FAILED: $1: $(cat err.txt)"; bad=$((bad + 1)); }
    same whole.csv now.csv
    "$WEFT" eval job.yaml --json >now.json
    same whole.json now.json
    rm -f now.csv
    "$WEFT" predict job.yaml --model model.safetensors --out now.csv 2>err.txt || { echo "FAILED: $1: $(cat err.txt)"; bad=$((bad + 1)); }
    same whole.csv now.csv
    rm -f now.csv
    "$WEFT" predict job.yaml --set checkpoint.dir= --out now.csv
    same whole.csv now.csv
}
cp flowers.csv kept.csv
printf '900,-700,violet,a\n,5,green,b\n' >>flowers.csv
after "rows appended"
head -100 kept.csv >flowers.csv
after "rows removed"
{ head -1 kept.csv; tail -n +2 kept.csv | sort; } >flowers.csv
after "rows reordered"
printf 'nothing,at,all\n1,2,3\n' >flowers.csv
after "another file"
rm flowers.csv
after "no file"
want 0 "" "$WEFT" report job.yaml --out page.html --set log.dir=log
want 0 "Total params" "$WEFT" summary job.yaml
want 3 "flowers.csv" "$WEFT" eval job.yaml --part train

# shipped: the model, the job and new data without labels, in another folder; another order of columns, no number in `length` that
# has a point, and a word that training never saw
mkdir shipped
cp model.safetensors shipped/
grep -v '^checkpoint\|^save\|^log' job.yaml >shipped/job.yaml
awk -F, 'NR == 1 { print "color,width,id,length" } NR > 1 { printf "%s,%s,%d,%d\n", NR % 7 ? $3 : "violet", $2, NR, $1 + 1 }' test.csv >shipped/new.csv
want 0 "index,prediction,p_a,p_b,p_c" "$WEFT" predict shipped/job.yaml --model shipped/model.safetensors --set data.test=new.csv
"$WEFT" predict shipped/job.yaml --model shipped/model.safetensors --set data.test=new.csv --out a.csv
want 0 "60 records" "$WEFT" data inspect a.csv

# … and without the job: the file carries its pipeline
"$WEFT" predict shipped/model.safetensors --data shipped/new.csv --out b.csv
same a.csv b.csv
(cd shipped && rm job.yaml && "$WEFT" predict model.safetensors --data new.csv --out ../c.csv)
same a.csv c.csv
"$WEFT" predict ckpt --data shipped/new.csv --out d.csv
same a.csv d.csv
"$WEFT" eval shipped/model.safetensors --data test.csv --json >now.json
same whole.json now.json
want 3 "0 label columns" "$WEFT" eval shipped/model.safetensors --data shipped/new.csv
want 2 "the job has no data.test" "$WEFT" predict shipped/model.safetensors
want 3 "no file matches" "$WEFT" predict shipped/model.safetensors --data shipped/new.csv --part train
want 2 "--model needs a job file" "$WEFT" predict shipped/model.safetensors --model model.safetensors

# another job that begins with the model keeps what its weights were trained with
grep -v red kept.csv >few.csv
want 0 "4 of 4 vocabularies and statistics come from" "$WEFT" train job.yaml --log lines --set data.train.path=few.csv \
    --set model='{file: model.safetensors}' --set checkpoint.dir= --set save=tuned.safetensors --set 'train.optimizer=sgd learning_rate=0'
"$WEFT" predict tuned.safetensors --data test.csv --out now.csv
same whole.csv now.csv

# a resumed run takes what its checkpoint has learned, and says that the data is another
cp kept.csv flowers.csv
rm -rf ckpt
"$WEFT" train job.yaml --log none --set train.epochs=6 && "$WEFT" predict job.yaml --out six.csv
rm -rf ckpt
"$WEFT" train job.yaml --log none
"$WEFT" train job.yaml --log none --set train.epochs=6 2>err.txt
"$WEFT" predict job.yaml --out now.csv
same six.csv now.csv
check "nothing is said of data that is the same" test ! -s err.txt
rm -rf ckpt
"$WEFT" train job.yaml --log none
sed -i '2s/^[^,]*/99/' flowers.csv
want 0 "data.train is not the data that" "$WEFT" train job.yaml --log lines --set train.epochs=4
# … as it does with more of it, between two epochs
flowers 9 100 | tail -n +2 >>flowers.csv
want 0 "data.train is not the data that" "$WEFT" train job.yaml --log lines --set train.epochs=5
check "it continues with the checkpoint's words" "$WEFT" predict job.yaml

[ "$bad" -eq 0 ] && echo "all as promised"
exit $((bad > 0))

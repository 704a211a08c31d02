#!/usr/bin/env bash
# Predictions as people want them: class names and probabilities, quantities in their own units, ids, standard input; a test part
# held out of the training data.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

# text labels, one of them with a comma; an id column that the model does not see
awk 'BEGIN { srand(3); print "order id,a,b,kind"
    for (i = 0; i < 400; i++) { k = i % 7 == 6 ? 0 : i % 3; printf "N-%03d,%.3f,%.3f,%s\n", i, 1 + k + rand(), 3 - k + rand(),
        k == 0 ? "ankle boot" : k == 1 ? "\"sandal, open\"" : "coat" } }' >data.csv
cat >job.yaml <<'YAML'
data:
  train: {path: data.csv, label: kind, index: true}
  pipeline:
    - lookup: {columns: kind, unknown: 0}
    - join: {columns: "a, b", to: features}
    - select: {columns: "features, kind"}
  test_split: 0.2
  validation_split: 0.1
  validation_by: random
model: [{Dense: {units: 16, activation: relu}}, {Dense: {units: 3}}]
train:
  optimizer: adam learning_rate=0.02
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy
  epochs: 20
checkpoint: {dir: ckpt}
save: model.safetensors
YAML
want 0 "test: loss" "$WEFT" train job.yaml --log lines
parts=$(for p in train validation test; do "$WEFT" predict job.yaml --part $p --id "order id" | tail -n +2 | cut -d, -f1; done | sort)
check "the three parts are all samples, each once" test "$parts" = "$(tail -n +2 data.csv | cut -d, -f1)"
n=$("$WEFT" predict job.yaml | wc -l)
check "about a fifth is tested on ($n)" test "$n" -gt 50 -a "$n" -lt 110
"$WEFT" predict job.yaml --id "order id" --out test1.csv
"$WEFT" predict job.yaml --id "order id" --set data.validation_split=0.3 --out test2.csv 2>/dev/null
check "the test part does not depend on validation_split" cmp test1.csv test2.csv
want 3 "data.test and data.test_split exclude each other" "$WEFT" train job.yaml --set data.test=data.csv

# another file, by name or from standard input, without its labels
head -4 data.csv | cut -d, -f1-3 >new.csv
"$WEFT" predict job.yaml new.csv --id "order id" --out out.csv
head -1 out.csv >head.txt
want 0 'order id,prediction,p_ankle boot,p_coat,"p_sandal, open"' cat head.txt
want 0 "N-000,ankle boot,0.9" cat out.csv
want 0 'N-001,"sandal, open",0.0' cat out.csv
"$WEFT" predict job.yaml - --id "order id" <new.csv >stdin.csv
same out.csv stdin.csv
"$WEFT" predict model.safetensors new.csv --id "order id" >model.csv 2>/dev/null
same out.csv model.csv
"$WEFT" predict job.yaml --data new.csv --id "order id" >flag.csv
same out.csv flag.csv
check "probabilities add up to 1" awk 'BEGIN { FPAT = "[^,]+|\"[^\"]*\"" } NR > 1 { n = split($0, f, ","); s = f[n] + f[n-1] + f[n-2];
    if (s < 0.9999 || s > 1.0001) bad = 1 } END { exit bad || NR != 4 }' out.csv
want 0 '{"index": 0, "prediction": "ankle boot", "probabilities": {"ankle boot": 0.9' "$WEFT" predict job.yaml new.csv --format json
want 0 "index,output_0,output_1,output_2" "$WEFT" predict job.yaml new.csv --raw
want 0 "loss" "$WEFT" eval job.yaml data.csv
want 0 "loss" bash -c "'$WEFT' eval job.yaml - <data.csv"

# mistakes
want 2 "use .csv, .json, .jsonl or .npy" "$WEFT" predict job.yaml new.csv --out predictions.txt
want 2 "use .csv, .json, .jsonl or .npy" "$WEFT" predict job.yaml new.csv --out predictions
check "nothing was written" test ! -e predictions.txt -a ! -e predictions
want 0 "" "$WEFT" predict job.yaml new.csv --out predictions.txt --format csv
check "the format can be said" grep -q "prediction" predictions.txt
want 2 "has no column 'order_id', did you mean 'order id'?" "$WEFT" predict job.yaml new.csv --id order_id
want 2 "may take one data file" "$WEFT" predict job.yaml new.csv more.csv
want 3 "none.csv: No such file" "$WEFT" predict job.yaml none.csv
want 3 "empty" bash -c "'$WEFT' predict job.yaml - </dev/null"

# quantities: the pipeline scales the label, predictions are in its own units
awk 'BEGIN { srand(5); print "x,y,price"; for (i = 0; i < 400; i++) { x = rand(); y = rand()
    printf "%.3f,%.3f,%.1f\n", x, y, 1000 + 500 * x - 200 * y } }' >price.csv
cat >price.yaml <<'YAML'
data:
  train: {path: price.csv, label: price, index: true}
  pipeline:
    - standardize: {columns: "x, y, price"}
    - join: {columns: "x, y", to: features}
  test_split: 0.2
  validation_by: random
model: [{Dense: {units: 1}}]
train: {optimizer: adam learning_rate=0.05, loss: mean_squared_error, epochs: 30}
checkpoint: {dir: ckpt2}
log: {dir: logs2}
YAML
want 0 "test: loss" "$WEFT" train price.yaml --log lines
printf 'x,y\n0.5,0.5\n1,0\n' >corners.csv
"$WEFT" predict price.yaml corners.csv >corners.txt
want 0 "index,prediction" cat corners.txt
check "in units of the price" awk -F, 'NR == 2 && ($2 < 1130 || $2 > 1170) || NR == 3 && ($2 < 1480 || $2 > 1520) { bad = 1 }
    END { exit bad || NR != 3 }' corners.txt
want 0 "index,output_0" "$WEFT" predict price.yaml corners.csv --raw
check "an array of them" bash -c "'$WEFT' predict price.yaml corners.csv --out corners.npy && '$WEFT' data inspect corners.npy | grep -q '^0: .*11[0-9][0-9]'"

# two classes from one number
sed 's/,coat$/,"sandal, open"/' data.csv >two.csv
want 0 "test: loss" "$WEFT" train job.yaml --log lines --set data.train.path=two.csv --set model.1.Dense.units=1 \
    --set "train.loss=binary_crossentropy from_logits=true" --set checkpoint.dir=ckpt3 --set save=
want 0 'index,prediction,"p_sandal, open",p_ankle boot' "$WEFT" predict job.yaml new.csv --set data.train.path=two.csv --set model.1.Dense.units=1 \
    --set "train.loss=binary_crossentropy from_logits=true" --set checkpoint.dir=ckpt3 --set save=

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

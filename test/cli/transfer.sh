#!/usr/bin/env bash
# Models of jobs that come from files: saved, loaded, cut, frozen, with a new head; weights by name; killed and gone on without the
# file; mistakes with line and column. And the jobs of examples/ at small size.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
differ()
{
    cmp -s "$1" "$2" && { echo "FAILED: $1 and $2 are the same"; bad=$((bad + 1)); }
}

# Four classes in the plane; the base learns 0 and 1, the head 2 and 3.
awk 'BEGIN { srand(5); print "a,b,kind"
    for (i = 0; i < 800; i++) { k = i % 4; printf "%.3f,%.3f,%d\n", k % 2 + rand(), int(k / 2) + rand(), k } }' >points.csv
cat >base.yaml <<'YAML'
seed: 7
data:
  train: {path: points.csv, label: kind, index: true}
  test: {path: points.csv, label: kind, index: true}
  pipeline:
    - filter: {column: kind, max: 1}
    - join: {columns: "a, b", to: x}
  batch: 16
model:
  - Dense: {units: 8, activation: tanh, name: body}
  - BatchNormalization: {name: norm}
  - Dense: {units: 2}
train:
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy
  epochs: 3
save: models/base.safetensors
YAML
cat >head.yaml <<'YAML'
seed: 8
data:
  train: {path: points.csv, label: kind, index: true}
  test: {path: points.csv, label: kind, index: true}
  pipeline:
    - filter: {column: kind, in: [2, 3]}
    - rescale: {columns: kind, offset: -2, dtype: i32}
    - join: {columns: "a, b", to: x}
  batch: 16
model:
  file: models/base.safetensors
  until: norm
  freeze: true
  layers:
    - Dense: {units: 2, name: head}
train:
  optimizer: adam learning_rate=0.05
  loss: sparse_categorical_crossentropy from_logits=true
  metrics: accuracy
  epochs: 4
checkpoint: {dir: ckpt, steps: 5}
save: models/head.safetensors
YAML

# the base, saved at the end
want 0 "model: " "$WEFT" train base.yaml --log lines
want 0 "Non-trainable params: 16 " "$WEFT" summary models/base.safetensors
want 0 "accuracy" "$WEFT" eval base.yaml
"$WEFT" predict base.yaml --out by_job.csv
"$WEFT" predict base.yaml --model models/base.safetensors --out by_file.csv
same by_job.csv by_file.csv
[ "$(wc -l <by_job.csv)" = 401 ] || { echo "FAILED: 400 of 800 samples"; bad=$((bad + 1)); }

# what cannot be saved is told before it is trained; a page that cannot be written costs no model
: >file
want 3 "save: file" "$WEFT" train base.yaml --log lines --set save=file/base.safetensors
"$WEFT" train base.yaml --log lines --set save=file/base.safetensors 2>&1 | grep -q Epoch &&
    { echo "FAILED: trained in vain"; bad=$((bad + 1)); }
want 3 "save: models is a directory; it must be a file" "$WEFT" train base.yaml --log lines --set save=models
mkdir -p pages/report.html
want 0 "warning" "$WEFT" train base.yaml --log lines --set log.dir=pages --set save=kept.safetensors
[ -s kept.safetensors ] || { echo "FAILED: no page, no model"; bad=$((bad + 1)); }

# the head on the frozen base
want 0 "Non-trainable params: 56 " "$WEFT" summary head.yaml
want 0 "Trainable params: 18 " "$WEFT" summary head.yaml
want 0 "Trainable params: 58 " "$WEFT" summary head.yaml --set model.freeze=false
want 0 "Trainable params: 42 " "$WEFT" summary head.yaml --set 'model.freeze=[n*]'
want 0 "Trainable params: 34 " "$WEFT" summary head.yaml --set 'model.freeze=body'
want 0 "Trainable params: 40 " "$WEFT" summary head.yaml --set model.freeze=false --set model.layers.0.Dense.trainable=false
want 0 "dense_1" "$WEFT" summary head.yaml --set 'model={file: models/base.safetensors, drop: 1, layers: [Dense: {units: 3}]}'
want 0 "6 of 8 weights come from" "$WEFT" train head.yaml --log lines
"$WEFT" predict head.yaml --out whole.csv
want 0 '"accuracy"' "$WEFT" eval head.yaml --json
# nothing of the base has changed, BatchNormalization's averages neither
cat >both.yaml <<'YAML'
data:
  train: {path: points.csv, label: kind, index: true}
  test: {path: points.csv, label: kind, index: true}
  pipeline: [join: {columns: "a, b", to: x}]
model: {file: models/base.safetensors, until: norm}
train: {loss: mse}
YAML
"$WEFT" predict both.yaml --out base_features.csv
"$WEFT" predict both.yaml --out head_features.csv --set model.file=models/head.safetensors
same base_features.csv head_features.csv
# a folder of checkpoints is a model, too
"$WEFT" predict both.yaml --out ckpt_features.csv --set model.file=ckpt
same base_features.csv ckpt_features.csv
want 0 "head (Dense)" "$WEFT" summary ckpt

# killed at any time and started again, after the base has gone: the same bits
rm -rf ckpt models/head.safetensors
for t in 0.03 0.06 0.04 0.08; do
    "$WEFT" train head.yaml --log none >/dev/null 2>&1 &
    sleep $t
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
until [ -d ckpt ] && ls ckpt | grep -q '^ckpt-'; do # at least one checkpoint
    "$WEFT" train head.yaml --log none --set train.epochs=1 --set save= >/dev/null 2>&1
done
mv models/base.safetensors elsewhere.safetensors
want 0 "" "$WEFT" train head.yaml --log none
"$WEFT" predict head.yaml --out killed.csv
same whole.csv killed.csv
"$WEFT" predict head.yaml --model models/head.safetensors --out saved.csv
same whole.csv saved.csv
rm -rf ckpt
want 3 "head.yaml:11:9: models/base.safetensors: cannot open" "$WEFT" train head.yaml --set save=other.safetensors
mv elsewhere.safetensors models/base.safetensors

# fine-tuning continues from the saved model, frozen layers freed
want 0 "Trainable params: 18 " "$WEFT" summary head.yaml --set 'model={file: models/head.safetensors}'
want 0 "Trainable params: 58 " "$WEFT" summary head.yaml --set 'model={file: models/head.safetensors, freeze: false}'
want 0 "8 of 8 weights come from" "$WEFT" train head.yaml --log lines --set checkpoint.dir= --set save=tuned.safetensors \
    --set 'model={file: models/head.safetensors, freeze: false}' --set "train.optimizer=adam learning_rate=0.001"
"$WEFT" predict both.yaml --out tuned_features.csv --set model.file=tuned.safetensors
differ base_features.csv tuned_features.csv

# weights by name into a model of the job's own
own='model={weights: {file: models/base.safetensors, by_name: true}, layers: [Dense: {units: 8, activation: tanh, name: body}, Dense: {units: 5, name: top}]}'
want 0 "2 of 4 weights come from" "$WEFT" train base.yaml --log lines --set save= --set "$own"
want 3 "the file has no weight 'top/kernel'" "$WEFT" train base.yaml --set save= --set "${own/, by_name: true/}"
want 3 "no weight with a requested name" "$WEFT" train base.yaml --set save= --set "${own/by_name: true/by_name: true, prefix: x\/}"
want 3 "weight 'body/kernel' is f32[2,9] in the model and f32[2,8] in the file" \
    "$WEFT" train base.yaml --set save= --set "${own/units: 8/units: 9}"
want 0 "1 of 5 weights come from" "$WEFT" train base.yaml --log lines --set save= \
    --set "$(sed 's/units: 8/units: 9, use_bias: false/; s/by_name: true/by_name: true, skip_mismatch: true/; s/units: 5, name: top/units: 2/; s/layers: \[/layers: [Dense: {units: 2, name: dense}, /' <<<"$own")"

# mistakes
sed 's/until: norm/until: nrm/' head.yaml >typo.yaml
want 3 "typo.yaml:12:10: cut: model 'model' has no layer 'nrm', did you mean 'norm'?" "$WEFT" train typo.yaml
sed 's/freeze: true/freeze: [body, nrm]/' head.yaml >typo.yaml
want 3 "typo.yaml:13:18: model 'model' has no layer 'nrm', did you mean 'norm'?" "$WEFT" train typo.yaml
sed 's/until: norm/untill: norm/' head.yaml >typo.yaml
want 3 "typo.yaml:12:3: no key 'untill' in 'model', did you mean 'until'?" "$WEFT" train typo.yaml
sed 's/name: head}/name: head, inputs: nrom}/' head.yaml >typo.yaml
want 3 "no layer or input 'nrom' above, did you mean 'norm'?" "$WEFT" train typo.yaml
want 3 "cannot be combined" "$WEFT" train head.yaml --set model.drop=1
want 3 "only the input is left" "$WEFT" train head.yaml --set 'model={file: models/base.safetensors, drop: 3}'
want 3 "need model.file" "$WEFT" train head.yaml --set 'model={until: norm, layers: [Flatten]}'
want 3 "points.csv" "$WEFT" train head.yaml --set model.file=points.csv
cp points.csv fake.safetensors
sed 's/models.base/fake/' head.yaml >typo.yaml
want 3 "typo.yaml:11:9: fake.safetensors: its header" "$WEFT" train typo.yaml
want 3 "every layer with weights is frozen: there is nothing to train" "$WEFT" train head.yaml \
    --set 'model={file: models/base.safetensors, freeze: true}'
want 0 "accuracy" "$WEFT" eval base.yaml --set 'model={file: models/base.safetensors, freeze: true}' --set save=
sed 's/,/,0,/' points.csv | sed '1s/.*/a,c,b,kind/' >wide.csv
sed 's/points/wide/; s/a, b/a, b, c/' head.yaml >wide.yaml
want 3 "wide.yaml:11:9: column 'x' is f32[3], but the input 'x' of the file's model is f32[2]" "$WEFT" train wide.yaml
want 3 "nothing has been trained yet" "$WEFT" eval base.yaml --set save=none.safetensors
want 3 "no/such: " "$WEFT" eval base.yaml --model no/such

# the jobs of examples/, small
if [ -d /usr/share/datasets/fashion-mnist ]; then
    cp "$SRC"/examples/transfer*.yaml .
    small=(--log lines --set train.epochs=2 --set data.train.take=3000 --set data.validation.take=500 --set data.test.take=500)
    want 0 "test: loss" "$WEFT" train transfer_base.yaml "${small[@]}"
    # the program's base has the job's numbers
    losses() { grep -o 'loss: .*' | head -1; }
    a=$("$WEFT" train transfer_base.yaml "${small[@]}" --set data.validation.take=3000 --set train.epochs=1 --set save= --set log.dir= | losses)
    b=$("$BUILD/bin/examples/transfer" /usr/share/datasets/fashion-mnist 1 3000 program-run | losses)
    [ -n "$a" ] && [ "$a" = "$b" ] || { echo "FAILED: job '$a', program '$b'"; bad=$((bad + 1)); }
    want 0 "9 of 11 weights come from" "$WEFT" train transfer.yaml "${small[@]}"
    want 0 "Trainable params: 325 " "$WEFT" summary transfer.yaml
    want 0 "11 of 11 weights come from" "$WEFT" train transfer_tune.yaml "${small[@]}"
    want 0 "Trainable params: 105,573 " "$WEFT" summary transfer_tune.yaml
    for d in base head tune; do
        [ -s transfer-run/$d/report.html ] && ls transfer-run/$d/validation | grep -q tfevents ||
            { echo "FAILED: transfer-run/$d lacks its page or event files"; bad=$((bad + 1)); }
    done
    "$WEFT" eval transfer_tune.yaml --set data.test.take=500 --json >tuned.json
    "$WEFT" eval transfer.yaml --set data.test.take=500 --json >head.json
    accuracy() { sed 's/.*"accuracy": \([0-9.]*\).*/\1/' "$1"; }
    awk -v a="$(accuracy head.json)" -v b="$(accuracy tuned.json)" 'BEGIN { exit !(b > a && b > 0.7) }' ||
        { echo "FAILED: fine-tuning: $(accuracy head.json), then $(accuracy tuned.json)"; bad=$((bad + 1)); }
fi

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

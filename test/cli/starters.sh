#!/usr/bin/env bash
# A new user's first steps: weft init on all kinds of files, the job that it wrote trained, measured and asked; completion; the manual.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

# text as label and as features, gaps, odd names, sorted by class
awk 'BEGIN { srand(1); print "x: y,my \"city\",n,label"
    for (i = 0; i < 200; i++) { c = i < 100; printf "%s,%s,%d,%s\n", i % 9 ? c + 0.5 * rand() : "", i % 7 ? "c" i % 3 : "", i % 5,
        c ? "yes" : "no" } }' >words.csv
want 0 "label 'label' (a class of 2)" "$WEFT" init words.csv --out words.yaml
want 0 "accuracy" "$WEFT" train words.yaml --log lines --set train.epochs=30
check "a report of it" test -s words-logs/report.html
accuracy=$("$WEFT" eval words.yaml --part validation --json | sed 's/.*"accuracy": \([0-9.]*\).*/\1/')
check "both classes are validated on, and told apart ($accuracy)" awk "BEGIN { exit !($accuracy > 0.8) }"

# many columns, of whole numbers
awk 'BEGIN { for (c = 0; c < 600; c++) printf "c%d,", c; print "label"
    for (i = 0; i < 40; i++) { for (c = 0; c < 600; c++) printf "%d,", i * c % 17; print i % 2 } }' >wide.csv
want 0 "a class" "$WEFT" init wide.csv --out wide.yaml
want 0 "loss" "$WEFT" train wide.yaml --log lines --set train.epochs=1

# a quantity; what the label is can be said
awk 'BEGIN { srand(2); print "a,b,price"; for (i = 0; i < 300; i++) { x = rand(); y = rand()
    printf "%.3f,%.3f,%.3f\n", x, y, 100 * x - 20 * y } }' >price.csv
want 2 "which column is the label" "$WEFT" init price.csv
want 0 "(a quantity)" "$WEFT" init price.csv --label price --out price.yaml
want 0 "mean_absolute_error" "$WEFT" train price.yaml --log lines --set train.epochs=2
want 0 "mean_squared_error" "$WEFT" init wide.csv --task quantity --out -
want 2 "not integers, so they are not classes" "$WEFT" init price.csv --label price --task class --out -
want 2 "is text, not a quantity" "$WEFT" init words.csv --task quantity --out -
want 2 "did you mean 'quantity'" "$WEFT" init words.csv --task quantiti --out -

# rows of numbers in arrays; patterns and lists, with a comma in a folder's name, for a job that stands elsewhere
"$BUILD/bin/examples/softmax" --generate slices 500 >/dev/null
want 0 "a class" "$WEFT" init slices/part-0.npz --out rows.yaml
want 0 "accuracy" "$WEFT" train rows.yaml --log lines --set train.epochs=1 --set checkpoint.dir= --set log.dir=
mkdir "a,b" other
head -150 price.csv >"a,b/p1.csv"
cp "a,b/p1.csv" "a,b/p2.csv"
cd "a,b" || exit 1
want 0 "(a quantity)" "$WEFT" init p1.csv --label price --out ../other/one.yaml
want 0 "(a quantity)" "$WEFT" init 'p*.csv' --label price --out ../other/all.yaml
want 0 "(a quantity)" "$WEFT" init 'p1.csv, p2.csv' --label price --out ../other/both.yaml
cd .. || exit 1
for job in one all both; do
    want 0 "mean_absolute_error" "$WEFT" train other/$job.yaml --log lines --set train.epochs=1 --set checkpoint.dir= --set log.dir=
done
sed 's/path: .*/path: "p1.csv, p2.csv"/' other/both.yaml >"a,b/job.yaml"
want 0 "mean_absolute_error" "$WEFT" train "a,b/job.yaml" --log lines --set train.epochs=1 --set checkpoint.dir= --set log.dir=
printf '1 1:2 3:4\n0 2:1\n' >sparse.libsvm
want 3 "no column of numbers, text or images besides" "$WEFT" init sparse.libsvm --out -

# files that are no data
: >empty.csv
printf 'a,b,label\n' >head.csv
head -c 3000 /dev/urandom >noise.csv
mkdir folder folder/one
want 3 "the file is empty" "$WEFT" init empty.csv --out -
want 3 "no sample has a 'label'" "$WEFT" init head.csv --out -
want 3 "noise.csv" "$WEFT" init noise.csv --out -
want 3 "no file matches" "$WEFT" init nothing.csv --out -
want 3 "folder" "$WEFT" init folder --out -
want 3 "wide.yaml already exists; choose another file with --out" "$WEFT" init wide.csv --out wide.yaml
want 3 "No such file or directory" "$WEFT" init wide.csv --out none/job.yaml

# asked: a table, lines of JSON, an array; a failure leaves what was there
"$WEFT" predict price.yaml --part validation --out p.csv
check "a row a sample" test "$(wc -l <p.csv)" = 40
"$WEFT" predict price.yaml --part validation --out p.json
check "a line a sample" test "$(wc -l <p.json)" = 39
want 0 ', "prediction": ' cat p.json
want 0 "npy, 39 records" bash -c "$WEFT predict price.yaml --part validation --out p.npy && $WEFT data inspect p.npy"
want 2 "npy needs a file" "$WEFT" predict price.yaml --part validation --format npy
want 2 "--format takes one of csv json npy, not 'cvs', did you mean 'csv'?" "$WEFT" predict price.yaml --part train --format cvs
want 2 "--part takes one of train validation test, not 'tset', did you mean 'test'?" "$WEFT" predict price.yaml --part tset
want 2 "the job has no data.test; give a data file" "$WEFT" eval price.yaml --set data.test_split=0
want 1 "No space left on device" "$WEFT" predict price.yaml --part train --out /dev/full
want 3 "No such file or directory" "$WEFT" predict price.yaml --part train --out none/p.csv
cp p.csv before.csv
(ulimit -f 1; trap '' XFSZ; "$WEFT" predict price.yaml --part train --out p.csv >/dev/null 2>&1)
cmp -s p.csv before.csv || { echo "FAILED: a failure leaves what was there"; bad=$((bad + 1)); }
check "and nothing else" test ! -e p.csv.tmp

# several outputs
cat >two.yaml <<'YAML'
data:
  train: {path: price.csv, label: price, index: true}
  pipeline: [{join: {columns: "a, b", to: features}}]
model:
  layers: [{Input: {name: features, shape: [2]}}, {Dense: {name: price, units: 1}}, {Dense: {name: other, units: 2, inputs: [features]}}]
  outputs: [price, other]
train: {loss: "mean_squared_error; none"}
checkpoint: {dir: ckpt-two}
YAML
want 0 "loss" "$WEFT" train two.yaml --log lines
want 0 "index,price_0,other_0,other_1" "$WEFT" predict two.yaml --part train
want 0 '"output": {"price": [' "$WEFT" predict two.yaml --part train --format json
want 1 "npy stores one output" "$WEFT" predict two.yaml --part train --out two.npy

# samples of several lengths: no table, no array, but lines of JSON
awk 'BEGIN { for (i = 0; i < 64; i++) print i % 2, (i < 32 ? "1:2 3:4" : "1:1 2:3 4:1 5:1") }' >lengths.libsvm
cat >lengths.yaml <<'YAML'
data:
  train: {path: lengths.libsvm}
  shuffle: false
  pipeline: [{select: {columns: "index, label"}}]
model:
  layers: [{Input: {name: index, shape: [-1], dtype: i64}}, {Embedding: {input_dim: 9, output_dim: 2, name: rows}}, GlobalAveragePooling1D, {Dense: {units: 1}}]
train: {loss: mse}
save: lengths.safetensors
YAML
want 0 "loss" "$WEFT" train lengths.yaml --log lines
rows=(--part train --set model.outputs=rows --set train.loss=none)
want 1 "outputs differ in size between samples; use --format json" "$WEFT" predict lengths.yaml "${rows[@]}" --out rows.npy
want 1 "outputs differ in size between samples; use --format json" "$WEFT" predict lengths.yaml "${rows[@]}" --out rows.csv
check "nothing of it is left" test ! -e rows.npy -a ! -e rows.csv
"$WEFT" predict lengths.yaml "${rows[@]}" --out rows.json
check "a line a sample, whatever its length" test "$(wc -l <rows.json)" = 64

# a word that the vocabulary lacks is an error where the job says so
printf 'v,label\n1,a\n2,b\n3,a\n4,b\n' >seen.csv
printf 'v,label\n1,a\n2,c\n' >unseen.csv
cat >strict.yaml <<'YAML'
data:
  train: {path: seen.csv, label: label}
  test: {path: unseen.csv, label: label}
  pipeline: [{lookup: {columns: label, unknown: 0}}, {cast: {columns: v}}, {join: {columns: v}}]
model: [{Dense: {units: 2}}]
train: {loss: sparse_categorical_crossentropy from_logits=true}
YAML
want 3 "'c'" "$WEFT" train strict.yaml --log none

# shells, the manual
PATH=$(dirname "$WEFT"):$PATH
want 0 "summary" bash -c 'source <(weft completion bash); COMP_WORDS=(weft su); COMP_CWORD=1; _weft; echo "${COMPREPLY[@]}"'
command -v fish >/dev/null && want 0 "--devices" fish -c 'weft completion fish | source; complete -C "weft train job.yaml --de"'
command -v zsh >/dev/null && want 0 "" zsh -f -c 'weft completion zsh >_weft && zsh -n _weft'
want 2 "'tcsh' is not one of bash, zsh and fish" "$WEFT" completion tcsh
want 0 "checkpoint.keep_hours" "$WEFT" man
if command -v man >/dev/null; then
    "$WEFT" man >weft.1
    check "the manual has no mistakes" test -z "$(MANWIDTH=80 man -l --warnings=w weft.1 2>&1 >/dev/null)"
fi

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

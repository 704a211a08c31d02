#!/usr/bin/env bash
# The examples' job files at small size: they learn more than their baselines, say what their programs say, and resume after
# being killed with the same bits.
# ctest-timeout: 300
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
ex=$SRC/examples
cd "$dir" || exit 1
bad=0
failed()
{
    echo "FAILED: $*"
    bad=$((bad + 1))
}
# run OUT command... : must end well
run()
{
    local out=$1
    shift
    "$@" >"$out" 2>&1 || { failed "exit $? of $*"; tail -3 "$out" | sed 's/^/  | /'; }
}
# last FILE NAME: the last value of that name
last()
{
    grep -o "[ _]*\b$2: [-0-9.e]*" "$1" | tail -1 | sed 's/.*: //'
}
# is VALUE OP LIMIT
is()
{
    awk -v a="$1" -v b="$3" "BEGIN { exit !(a != \"\" && a + 0 $2 b + 0) }" ||
        failed "'$1' $2 $3${4:+ ($4)}"
}
# The epochs that a run printed, without times.
epochs()
{
    sed -nE 's/^([0-9]+\/[0-9]+) - .*step - loss/\1 loss/p' "$1"
}
# same_run JOB PROGRAM: both trained the same
same_run()
{
    [ -s "$1" ] && [ -n "$(epochs "$1")" ] && diff <(epochs "$1") <(epochs "$2") >"$1.diff" && return
    failed "the job and the program differ"
    head -5 "$1.diff" | sed 's/^/  | /'
}
program=$BUILD/bin/examples

# ---- fashion: better than one class in ten -------------------------------------------------------
if [ -d /usr/share/datasets/fashion-mnist ]; then
    run fashion.job "$WEFT" train "$ex/fashion_mnist.yaml" --log lines --set train.epochs=1 --set data.train.take=3000 \
        --set data.test.take=1000
    run fashion.program "$program/fashion" /usr/share/datasets/fashion-mnist 1 3000
    same_run fashion.job fashion.program
    is "$(last fashion.job accuracy)" ">" 0.5 "accuracy of fashion"
fi

# ---- char_model: better than the frequencies of the characters -----------------------------------
head -c 40000 "$ex/data/alice.txt" >small.txt
ids=$(head -c 36000 small.txt | od -An -v -tu1 -w1 | sort -u | wc -l)
small=(--set "data.train.path=$dir/small.txt" --set "data.validation.path=$dir/small.txt"
    --set data.train.take=36000 --set data.validation.skip=36000 --set train.epochs=2
    --set "model.0.Embedding.input_dim=$((ids + 1))" --set "model.3.Dense.units=$((ids + 1))")
run char.job "$WEFT" train "$ex/char_model.yaml" --log lines "${small[@]}"
frequencies=$(od -An -v -tu1 -w1 small.txt | awk 'NR <= 36000 { n[$1]++; next } { sum -= log((n[$1] + 1) / 36100); m++ }
    END { print exp(sum / m) }')
is "$frequencies" ">" 20
is "$(last char.job val_perplexity)" "<" "$(awk "BEGIN { print 0.9 * $frequencies }")" "perplexity of char_model"
run char.program "$program/char_model" small.txt 2 50
same_run char.job char.program
[ "$(sed -n '/|/,$p' char.program | sed 's/.*|//' | wc -c)" -ge 50 ] || failed "char_model wrote no 50 letters"
run char.again "$program/char_model" small.txt 2 50
diff <(sed -n '/|/,$p' char.program) <(sed -n '/|/,$p' char.again) || failed "char_model wrote another text"

# ---- gpt, resnet: they learn ---------------------------------------------------------------------
run gpt.job "$WEFT" train "$ex/gpt.yaml" --log lines --set "data.train.path=$dir/small.txt" --set "data.validation.path=$dir/small.txt" \
    --set data.train.take=16000 --set data.validation.skip=36000 --set train.epochs=1
is "$(last gpt.job val_perplexity)" "<" "$frequencies" "perplexity of gpt"
if [ -d /usr/share/datasets/fashion-mnist ]; then
    run resnet.job "$WEFT" train "$ex/resnet.yaml" --log lines --set data.train.take=2500 --set train.epochs=1
    is "$(last resnet.job accuracy)" ">" 0.2 "accuracy of resnet"
fi

# killed, and gone on with the same bits
small+=(--set checkpoint.steps=3)
run whole.out "$WEFT" train "$ex/char_model.yaml" --log none "${small[@]}" --set "checkpoint.dir=$dir/whole"
for t in 0.2 0.3 0.25; do
    "$WEFT" train "$ex/char_model.yaml" --log none "${small[@]}" --set "checkpoint.dir=$dir/killed" >/dev/null 2>&1 &
    sleep $t
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
done
run killed.out "$WEFT" train "$ex/char_model.yaml" --log none "${small[@]}" --set "checkpoint.dir=$dir/killed"
for d in whole killed; do
    run $d.eval "$WEFT" eval "$ex/char_model.yaml" --part validation --json "${small[@]}" --set "checkpoint.dir=$dir/$d"
done
cmp whole.eval killed.eval || failed "a killed run ended otherwise"

# ---- loans: better than a logistic regression -----------------------------------------------------
run loans.job "$WEFT" train "$ex/loans.yaml" --log lines
run loans.program "$program/loans" "$ex/data/loans.csv"
same_run loans.job loans.program
logistic=$(sed -n 's/.*logistic regression: //p' loans.program)
is "$logistic" ">" 0.7
is "$(last loans.job auc)" ">" "$(awk "BEGIN { print $logistic + 0.04 }")" "AUC of loans"
[ "$(last loans.job auc)" = "$(sed -n 's/test AUC: //p' loans.program)" ] || failed "two test AUCs of loans"

# ---- load: better than yesterday and than a week ago ---------------------------------------------
run load.job "$WEFT" train "$ex/load.yaml" --log lines --set train.epochs=4 --set data.train.take=7008 \
    --set data.validation.skip=7008 --set data.validation.take=876 --set data.test.skip=7884 --set data.test.take=876
run load.program "$program/load" "$ex/data/load.csv" 4 8760
same_run load.job load.program
run load.short "$WEFT" train "$ex/load.yaml" --log none --set train.epochs=1 --set data.train.take=1000 --set data.test.take=1000 \
    --set "checkpoint.dir=$dir/load"
run load.csv "$WEFT" predict "$ex/load.yaml" --set "checkpoint.dir=$dir/load" --set data.test.take=200
head -1 load.csv | grep -q '^index,forecast_0,.*,forecast_23,yesterday_0,.*,last_week_23$' && [ "$(wc -l <load.csv)" = 10 ] ||
    failed "three outputs in a table"
for naive in yesterday last_week; do
    is "$(last load.job val_forecast_mae)" "<" "$(last load.job val_${naive}_mae)" "the forecast beside $naive"
done

# ---- softmax: ten slices, made once and the same again; better than one class in ten -------------
run softmax.program "$program/softmax" slices 20000
sum=$(cat slices/*.npz | cksum)
run softmax.made "$program/softmax" --generate slices 20000
[ "$(cat slices/*.npz | cksum)" = "$sum" ] && [ "$(grep -c making softmax.made)" = 11 ] || failed "other slices"
run softmax.job "$WEFT" train "$ex/softmax.yaml" --log lines --set "data.train.path=$dir/slices/part-*.npz" \
    --set "data.test.path=$dir/slices/test.npz"
same_run softmax.job softmax.program
grep -q "^20000 samples in 10 slices" softmax.program || failed "samples of softmax"
grep -q "samples/s" softmax.program || failed "no speed of softmax"
is "$(last softmax.job accuracy)" ">" 0.3 "accuracy of softmax"
[ "$(last softmax.job accuracy)" = "$(sed -n 's/test accuracy: //p' softmax.program)" ] || failed "two accuracies of softmax"
rm slices/part-3.npz
run softmax.again "$program/softmax" slices 20000 1
[ "$(grep -c making softmax.again)" = 1 ] && [ "$(cat slices/*.npz | cksum)" = "$sum" ] || failed "the missing slice"

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

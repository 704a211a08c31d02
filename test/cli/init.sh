#!/usr/bin/env bash
# weft init on tables as people have them: identifiers, dates, texts, gaps, rare classes, odd names. The job that it writes is
# trained, measured, reported on and asked.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir jobs

# all NAME LABEL: init, train, report, predict; the job in $job, the predictions in out.csv
all()
{
    job=jobs/$1.yaml
    want 0 "now: weft train $job" "$WEFT" init "$1.csv" --label "$2" --out "$job"
    want 0 "test: loss" "$WEFT" train "$job" --log lines
    check "a report of $1" test -s "jobs/$1-logs/report.html"
    want 0 "" "$WEFT" report "$job" --out "$1.html"
    want 0 "loss" "$WEFT" eval "$job" "$1.csv"
    "$WEFT" predict "$job" "$1.csv" --out out.csv || { echo "FAILED: predict $1"; bad=$((bad + 1)); }
    check "$1: a line a sample that has a label" test "$(wc -l <out.csv)" = "$(grep -c '[^,]$' "$1.csv")"
}
has() { check "$job has '$1'" grep -qF -- "$1" "$job"; }
hasnt() { check "$job has no '$1'" bash -c '! grep -qF -- "$0" "$1"' "$1" "$job"; }
# at_least METRIC VALUE DATA: measured on the file
at_least()
{
    local v
    v=$("$WEFT" eval "$job" "$3" --json 2>/dev/null | sed "s/.*\"$1\": \([0-9.e+-]*\).*/\1/")
    check "$job: $1 of $v, at least $2" awk "BEGIN { exit !($v >= $2) }"
}

# two classes; identifiers, dates in two forms, free text, empty and constant columns, gaps
awk 'BEGIN { srand(1); split("late good slow fast wrong again never nice color size", w, " ")
    print "customer_id,signup,visit,plan,monthly charge,tenure,city,comment,nothing,country,churned"
    for (i = 0; i < 900; i++) { plan = int(3 * rand()); t = int(72 * rand()); text = w[1 + int(10 * rand())]
        for (k = 0; k < 6; k++) text = text " " w[1 + int(10 * rand())]
        printf "C%05d,20%02d-%02d-%02d,%d.%d.2023 %02d:15,%s,%s,%d,%s,%s %d,,DE,%s\n", i * 7919 % 100000, 10 + i % 13, 1 + i % 12, 1 + i % 28,
            1 + i % 28, 1 + i % 12, i % 24, plan == 0 ? "basic" : plan == 1 ? "plus" : "pro", i % 20 ? 20 + 30 * plan + 5 * rand() : "", t,
            i % 3 ? "Köln" : i % 5 ? "Berlin" : "", text, i, t + 10 * plan < 40 ? "yes" : "no" } }' >churn.csv
all churn churned
has '# not used: "customer_id", an identifier: 900 different values in 900 samples'
has '# not used: "signup", a date or time (2010-01-01)'
has '# not used: "visit", a date or time'
has '# not used: "comment", free text of about 8 words'
has '# not used: "nothing", which is empty'
has '# not used: "country", which is always DE'
has 'one_hot: {columns: "plan"}   # 3 values'
has 'one_hot: {columns: "city"}   # 3 values'
has 'path: "../churn.csv"'
has 'metrics: accuracy, AUC, Precision, Recall'
has 'test_split: '
hasnt class_weights
at_least accuracy 0.95 churn.csv
want 0 "index,prediction,p_no,p_yes" cat out.csv
hasnt "# 100 values"

# three classes in the order of the file; every column is used
awk 'BEGIN { srand(2); print "sepal,petal,species"; for (i = 0; i < 150; i++) { k = int(i / 50)
    printf "%.1f,%.1f,%s\n", 5 + k + rand(), 1 + 2 * k + rand(), k == 0 ? "setosa" : k == 1 ? "versicolor" : "virginica" } }' >iris.csv
all iris species
hasnt "not used"
has "Dense: {units: 3}"
at_least accuracy 0.9 iris.csv

# one in fifty, classes as 0 and 1; numbers that count rows; a category of many values
awk 'BEGIN { srand(3); print "tx,when,amount,shop,fraud"; for (i = 0; i < 3000; i++) { f = i % 50 == 7
    printf "%d,%d/%d/24 08:%02d,%.2f,m%d,%d\n", 1000 + i, 1 + i % 12, 1 + i % 28, i % 60, f ? 200 + 100 * rand() : 150 * rand(),
        180 * rand(), f } }' >fraud.csv
all fraud fraud
has "class_weights: [0.51, 25]"
has '"tx", an identifier'
has '"when", a date or time'
has "top: 100}   # the most frequent of 180 values"
has "# 100 values, and 0 for any other"
at_least recall 0.8 fraud.csv
want 0 "index,prediction,p0,p1" cat out.csv

# a quantity: predictions in its own units
awk 'BEGIN { srand(4); print "Id,area m²,rooms,heating,SalePrice"; for (i = 0; i < 800; i++) { a = 30 + 150 * rand(); r = 1 + int(6 * rand())
    printf "%d,%.0f,%d,%s,%d\n", i + 1, a, r, i % 3 ? "gas" : "oil", 40000 + 2200 * a + 9000 * r - (i % 3 ? 0 : 8000) } }' >houses.csv
all houses SalePrice
has "Rescaling: {scale: "
has "metrics: mean_absolute_error, root_mean_squared_error"
mae=$("$WEFT" eval $job houses.csv --json 2>/dev/null | sed 's/.*"mean_absolute_error": \([0-9.]*\).*/\1/')
check "prices are met within some thousands ($mae)" awk "BEGIN { exit !($mae < 15000) }"
check "as predicted" awk -F, 'NR == FNR { y[FNR] = $5; next } FNR > 1 { d = $2 - y[FNR]; s += d < 0 ? -d : d; n++ } END { exit !(s / n < 15000) }' houses.csv out.csv

# odd names, a class with three samples, a class with comma and quotes
awk 'BEGIN { srand(5); print "\"größe \"\"cm\"\"\",x: y,farbe #1,\"typ \"\"t\"\"\""; for (i = 0; i < 400; i++) { k = i % 10 < 6 ? 0 : 1; if (i % 150 == 17) k = 2
    printf "%.1f,%.2f,%s,%s\n", 100 + 40 * k + 10 * rand(), k + rand(), i % 2 ? "grün" : "rot",
        k == 0 ? "Schuh" : k == 1 ? "Stiefel" : "\"Größe, \"\"XL\"\"\"" } }' >odd.csv
all odd 'typ "t"'
has "0: not in the training part"
has "class_weights: [1, "
want 0 ',p_Schuh,p_Stiefel,"p_Größe, ""XL"""' head -1 out.csv

# gaps everywhere, in the label, too
awk 'BEGIN { srand(6); print "age,income,job,target"; for (i = 0; i < 600; i++) { a = 18 + int(60 * rand())
    printf "%s,%s,%s,%s\n", i % 4 == 1 ? "" : a, i % 5 == 2 ? "" : a * 500, i % 3 ? "a" : "", i % 40 == 3 ? "" : (a > 45) } }' >gaps.csv
all gaps target
has "filter: {column: \"target\", min: 0}   # 15 samples have no label"
check "no number that is none" bash -c "! grep -qi nan out.csv"
cut -d, -f1-3 gaps.csv >unlabeled.csv
want 0 "599," "$WEFT" predict $job unlabeled.csv

# labels of text, some of them empty: such samples are skipped, "" is not a class
awk 'BEGIN { srand(7); print "age,income,group"; for (i = 0; i < 600; i++) { a = 18 + int(60 * rand())
    printf "%d,%d,%s\n", a, a * 500, i % 40 == 3 ? "" : (a > 45) ? "old" : "young" } }' >groups.csv
job=jobs/groups.yaml
want 0 "now: weft train $job" "$WEFT" init groups.csv --label group --out $job
has "on_error: skip           # 15 samples have no label"
hasnt "index: true"
want 0 "records could not be read and were skipped" "$WEFT" train $job --log lines
grep -v ',$' groups.csv >labeled.csv
at_least accuracy 0.9 labeled.csv
want 0 "index,prediction,p_old,p_young" "$WEFT" predict $job labeled.csv
cut -d, -f1-2 groups.csv >unlabeled.csv
want 0 "599," "$WEFT" predict $job unlabeled.csv

# what cannot be learned is said
awk 'BEGIN { print "a,name"; for (i = 0; i < 50; i++) print i % 7 "," "n" i }' >names.csv
want 3 "'name' has 50 different values in 50 samples, too many for classes" "$WEFT" init names.csv --label name --out -
awk 'BEGIN { print "a,y"; for (i = 0; i < 50; i++) print i % 7 ",3" }' >same.csv
want 3 "'y' is the same in all samples" "$WEFT" init same.csv --out -
want 2 "with one of: a, name" "$WEFT" init names.csv --out -

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

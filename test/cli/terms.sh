#!/usr/bin/env bash
# Messages for people who write jobs name keys of the job, not calls of C.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

# every name of C in a message of these layers is in the table, or only a C program can see it
only_c='weft_sample_shape|weft_sample_text|weft_dealer_opts|weft_grads_rows|weft_grads_view|weft_learned|weft_stats|weft_ds_shuffle_all|weft_[a-z_]*_opts'
only_c="$only_c|weft_callback|weft_strategy|weft_job_output|weft_layer_kind|weft_loss_kind|weft_metric_kind|weft_ckpt_policy|weft_ckpt_data|weft_labels|weft_format|weft_dist_counts|weft_ps_serve|weft_follow_result|weft_hook|weft_param|weft_params_[a-z_]*|weft_worker_config"
find "$SRC/src/train" "$SRC/src/data" "$SRC/src/model" -name '*.c' -print0 | xargs -0 sed "s/'\"'//g; /^#include/d" |
    grep -oE '"([^"\\]|\\.)*"' | grep -oE 'weft_[a-z_]+' | sort -u | grep -vxE "$only_c" >names.txt
check "there are such names" test -s names.txt
while read -r name; do
    check "$name is in src/cli/terms.c" grep -q "$name" "$SRC/src/cli/terms.c"
done <names.txt

# and what the table looks for is still said
find "$SRC/src/train" "$SRC/src/data" "$SRC/src/model" "$SRC/src/graph" -name '*.c' -print0 | xargs -0 cat | tr -d '\n' | sed 's/" *"//g' >all.txt
sed -n '/^} terms\[\]/,/^};/p' "$SRC/src/cli/terms.c" | tr -d '\n' | grep -oE '\{"[^"]*"' | sed 's/^{"//; s/"$//; s/^: //; s/: $//' >from.txt
while IFS= read -r text; do
    check "the library says '$text'" grep -qF -- "$text" all.txt
done <from.txt

# as a user sees it
printf 'a,b\n1,0\n2,1\n3,0\n4,1\n' >data.csv
cat >job.yaml <<'YAML'
data: {train: {path: data.csv, label: b}, pipeline: [{join: {columns: a}}], batch: 2}
model: [{Dense: {units: 1}}]
train: {loss: mse}
YAML
want 3 "output 'dense' needs one: name it in data.train.label" "$WEFT" train job.yaml --log none --set 'data.train={path: data.csv}' \
    --set 'data.pipeline=[{join: {columns: "a, b"}}]'
want 3 "no metric 'acc1'" "$WEFT" train job.yaml --log none --set 'train.metrics=acc1'
"$WEFT" train job.yaml --log none --set train.steps_per_epoch=100 >out.txt 2>&1
want 0 "lower train.steps_per_epoch" cat out.txt
check "no name of C" bash -c "! grep -q 'weft_\|compile:\|fit:' out.txt"

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

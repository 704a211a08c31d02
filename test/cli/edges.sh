#!/usr/bin/env bash
# Edges of the commands: no data, no output, files and folders that changed since a run started.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

three_kinds 120 >data.csv
{ small_job 2; echo 'checkpoint: {dir: ckpt, steps: 4, keep_last: 9}'; echo 'save: model.safetensors'; } >job.yaml

# nothing is nothing
out=$("$WEFT" train job.yaml --log none 2>&1) || { echo "FAILED: train"; bad=$((bad + 1)); }
[ -z "$out" ] || { echo "FAILED: --log none says: $out"; bad=$((bad + 1)); }

# no samples: an error for predict as for eval, and no file
head -1 data.csv >none.csv
want 3 "the dataset returned no samples" "$WEFT" eval job.yaml --set data.test.types="a:f32,b:f32,kind:i32" --data none.csv
want 3 "the dataset returned no samples" "$WEFT" predict job.yaml --data none.csv --out none-out.csv
check "no file of no predictions" test ! -e none-out.csv

# rows that hold nothing: their number costs a file nothing, so it is bounded
npy() { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': ($1, 0), }" >"$2"; }
npy 1000000000000 zero.npy
npy 1000 few.npy
want 1 "rows without items" timeout 60 "$WEFT" data stats zero.npy
want 1 "rows without items" timeout 60 "$WEFT" data convert zero.npy out.npy
want 0 "1000 records" timeout 60 "$WEFT" data convert few.npy out.npy
want 0 "" timeout 60 "$WEFT" data stats few.npy

# a checkpoint whose folder was renamed is no damaged one
all=(ckpt/ckpt-*)
last=${all[-1]}
mv "$last" ckpt/ckpt-00000999
want 0 "intact, but of step" "$WEFT" ckpt prune ckpt --damaged --keep-last 99
check "it is kept" test -d ckpt/ckpt-00000999
mv ckpt/ckpt-00000999 "$last"
for f in "${all[0]}"/*.safetensors; do printf 'x' | dd of="$f" bs=1 seek=200 conv=notrunc 2>/dev/null; done
"$WEFT" ckpt prune ckpt --damaged --keep-last 99 >/dev/null 2>&1
left=(ckpt/ckpt-*)
check "a damaged one goes" test ${#left[@]} = $((${#all[@]} - 1))

# the file that a run began with is another one now
mv model.safetensors base.safetensors
{ small_job 2 | sed '/^model:/,/units: 3/d'; printf '%s\n' 'model: {file: base.safetensors}' 'checkpoint: {dir: from-base}'; } >from.yaml
want 0 "" "$WEFT" train from.yaml --log lines
out=$("$WEFT" train from.yaml --log lines --set train.epochs=3 2>&1)
grep -q "content of model.file" <<<"$out" && { echo "FAILED: a change where there was none"; bad=$((bad + 1)); }
"$WEFT" train job.yaml --log none --set seed=5 --set checkpoint.dir=other --set save=base.safetensors >/dev/null 2>&1
want 0 "the content of model.file changed: ignored" "$WEFT" train from.yaml --log lines --set train.epochs=4
rm base.safetensors
out=$("$WEFT" train from.yaml --log lines --set train.epochs=5 2>&1) || { echo "FAILED: without the file: $out"; bad=$((bad + 1)); }
exit $((bad > 0))

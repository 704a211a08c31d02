#!/usr/bin/env bash
# Symbolic links planted where a job writes or deletes: what they lead to stays as it is. A folder that the user names may be a link.
# Two jobs with one `save:` path leave one of the two models, whole.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

three_kinds 120 >data.csv
{ small_job 2; printf '%s\n' 'checkpoint: {dir: ckpt, steps: 4, keep_last: 1}'; } >job.yaml

# precious: a folder and a file that nothing below may touch
plant()
{
    rm -rf precious precious.txt ckpt logs model.safetensors* links.csv best*
    mkdir precious
    echo one >precious/one
    echo two >precious/two
    echo three >precious.txt
}
untouched()
{
    if [ "$(cat precious/one precious/two precious.txt 2>&1)" != $'one\ntwo\nthree' ] || [ "$(find precious | wc -l)" != 3 ]; then
        echo "FAILED: $1: what a link leads to was changed"
        find precious precious.txt
        bad=$((bad + 1))
    fi
}

# checkpoints: temporaries and graves that are links, swept up by train and by prune
for name in .tmp-ckpt-4 .tmp-ckpt-1 .del-ckpt-4 .del-ckpt-1 .tmp-ckpt-00000004 .del-ckpt-00000004; do
    plant
    mkdir ckpt
    ln -s ../precious "ckpt/$name"
    "$WEFT" train job.yaml --log none >out.txt 2>&1 || { echo "FAILED: train with $name"; cat out.txt; bad=$((bad + 1)); }
    untouched "train with ckpt/$name"
    ln -sfn ../precious "ckpt/$name"
    want 0 "" "$WEFT" ckpt prune ckpt --keep-last 1
    untouched "prune with ckpt/$name"
done

# retention: a checkpoint of another run that is linked here goes as a link
plant
want 0 "" "$WEFT" train job.yaml --log none --set checkpoint.dir=other --set checkpoint.keep_last=9
theirs=$(find other -name 'ckpt-*' -type d | sort | head -1)
cp -r "$theirs" kept
mkdir ckpt
ln -s "../$theirs" "ckpt/$(basename "$theirs")"
want 0 "" "$WEFT" train job.yaml --log none --set train.epochs=3
check "the linked checkpoint is whole" diff -r "$theirs" kept
want 0 "" "$WEFT" ckpt prune ckpt --keep-last 1
check "the linked checkpoint is whole after pruning" diff -r "$theirs" kept
rm -rf other kept

# the lock of the folder
plant
mkdir ckpt
ln -s ../nowhere ckpt/.lock
want 3 "it is a symbolic link" "$WEFT" train job.yaml --log none
check "nothing was created through the lock" test ! -e nowhere

# save:, at the place itself and under the temporary names of old
for name in model.safetensors model.safetensors.tmp; do
    plant
    ln -s precious.txt "$name"
    want 0 "" "$WEFT" train job.yaml --log none --set save=model.safetensors
    untouched "save with $name"
    want 0 "" "$WEFT" eval job.yaml --model model.safetensors
done
check "no temporary is left" test -z "$(find . -name '.*.tmp' | head -1)"

# the log folder: report, CSV, events; the folder itself may be a link
for name in report.html report.html.tmp; do
    plant
    mkdir logs
    ln -s ../precious.txt "logs/$name"
    want 0 "" "$WEFT" train job.yaml --log none --set log.dir=logs
    untouched "report with $name"
    check "report.html is a page" grep -q "<html" logs/report.html
done
plant
mkdir logs
ln -s ../precious.txt logs/history.csv
want 3 "history.csv: cannot write: it is a symbolic link" "$WEFT" train job.yaml --log none --set log.dir=logs
untouched "history.csv"
plant
ln -s precious.txt links.csv
want 3 "links.csv: cannot write: it is a symbolic link" "$WEFT" train job.yaml --log none \
    --set 'train.callbacks=[{CSVLogger: {filename: links.csv}}]'
untouched "CSVLogger"
plant
ln -s precious.txt best.safetensors
ln -s precious.txt best.safetensors.tmp
want 0 "" "$WEFT" train job.yaml --log none --set 'train.callbacks=[{ModelCheckpoint: {filepath: best.safetensors}}]'
untouched "ModelCheckpoint"
plant
mkdir real
ln -s real logs
want 0 "" "$WEFT" train job.yaml --log none --set log.dir=logs
check "a linked log folder is written to" test -f real/report.html -a -f real/history.csv
rm -rf real logs
plant
mkdir real
ln -s real ckpt
want 0 "" "$WEFT" train job.yaml --log none
check "a linked checkpoint folder is written to" test -n "$(find real -name 'ckpt-*')"
want 0 "" "$WEFT" ckpt prune ckpt --keep-last 1
rm -rf real ckpt

# events: a run's folder below the log folder, and an event file
plant
mkdir logs
ln -s ../precious logs/train
"$WEFT" train job.yaml --log none --set log.dir=logs >out.txt 2>&1
untouched "TensorBoard's folder of a run"

# predict --out
for name in out.csv out.csv.tmp; do
    plant
    rm -f out.csv out.csv.tmp
    ln -s precious.txt "$name"
    want 0 "" "$WEFT" train job.yaml --log none
    want 0 "" "$WEFT" predict job.yaml --out out.csv
    untouched "predict with $name"
    check "all rows are there" test "$(wc -l <out.csv)" -ge 120
done

# two jobs with one path: one of the two models, whole
plant
"$WEFT" train job.yaml --log none --set save=a.safetensors --set checkpoint.dir=c1 >/dev/null 2>&1
"$WEFT" train job.yaml --log none --set seed=7 --set save=b.safetensors --set checkpoint.dir=c2 >/dev/null 2>&1
for turn in 1 2 3; do
    rm -rf c1 c2 model.safetensors
    "$WEFT" train job.yaml --log none --set save=model.safetensors --set checkpoint.dir=c1 >/dev/null 2>&1 &
    "$WEFT" train job.yaml --log none --set seed=7 --set save=model.safetensors --set checkpoint.dir=c2 >/dev/null 2>&1 &
    wait
    cmp -s model.safetensors a.safetensors || cmp -s model.safetensors b.safetensors ||
        { echo "FAILED: turn $turn: two jobs left neither model"; bad=$((bad + 1)); }
done
check "no temporary is left by two jobs" test -z "$(find . -name '.model*.tmp' | head -1)"

# what a dead writer left goes with the next
head -c 100 a.safetensors >.model.safetensors.0123456789abcdef.tmp
want 0 "" "$WEFT" train job.yaml --log none --set save=model.safetensors --set checkpoint.dir=c3
check "the left-over is gone" test ! -e .model.safetensors.0123456789abcdef.tmp

exit $((bad > 0))

#!/usr/bin/env bash
# The worker that decides is killed while it writes what a run leaves at its end, when the others have finished: the model is there nevertheless, with
# the same bits.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
three_kinds 600 >data.csv
{ small_job 20 yes; printf '%s\n' "checkpoint: {dir: ckpt, steps: 500, keep_last: 2}" "save: model.safetensors" "log: {dir: logs, report: false, tensorboard: false}"; } >job.yaml
"$WEFT" train job.yaml --set train.shards=2 --log none >/dev/null 2>&1
mv model.safetensors wanted
mv logs/history.csv wanted.csv
for pause in 0 0 0.01 0.02; do
    rm -rf ckpt logs model.safetensors
    "$WEFT" launch job.yaml --ps 1 --workers 2 --set train.shards=2 >out.txt 2>err.txt &
    launcher=$!
    for ((i = 0; i < 3000; i++)); do
        [ -d ckpt/ckpt-000000600 ] && break
        kill -0 $launcher 2>/dev/null || break
        sleep 0.005
    done
    sleep $pause
    victim=$(pgrep -P $launcher -f -- "--task worker/0 ") && kill -9 "$victim" 2>/dev/null
    check "the job ends with exit code 0 ($pause s)" wait $launcher
    check "the model is that of an undisturbed run ($pause s)" cmp model.safetensors wanted
    check "and so is history.csv ($pause s)" cmp logs/history.csv wanted.csv
    [ $bad -eq 0 ] || { cat err.txt; break; }
done

# what cannot be written does not begin the job again
rm -rf ckpt logs model.safetensors
"$WEFT" launch job.yaml --ps 1 --workers 2 --set train.shards=2 >out.txt 2>err.txt &
launcher=$!
for ((i = 0; i < 3000; i++)); do [ -e ckpt/.lock ] && break; sleep 0.005; done
mkdir model.safetensors
wait $launcher
check "exit code 3" test $? = 3
check "it says who failed, and when" grep -q "worker/. failed (exit code 3) after the last step" err.txt
check "once" test "$(grep -c "is a directory" err.txt)" = 1
[ $bad -eq 0 ] || cat err.txt
exit $((bad > 0))

#!/usr/bin/env bash
# Workers without the data files: they read them from tasks that have them, and the bits are those of the undisturbed run.
# ctest-timeout: 240
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp bare job
export TMPDIR=$dir/tmp
three_kinds 20000 >job/data.csv
{ small_job 3 yes; printf '%s\n' "save: model.safetensors"; } >job/job.yaml
"$WEFT" train job/job.yaml --set train.shards=2 --log none >/dev/null 2>&1
mv job/model.safetensors wanted

# 1. It joins a launched job, from a directory that has nothing but the token.
"$WEFT" launch job/job.yaml --ps 2 --workers 2 --remote 1 --host 127.0.0.1 --token-file token --set cluster.timeout=1 >out.txt 2>err.txt &
l=$!
for ((i = 0; i < 100; i++)); do
    [ -s token ] && grep -q 'weft node --join' err.txt && break
    sleep 0.05
done
address=$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' err.txt)
(cd bare && timeout 120 "$WEFT" node --join "$address" --token-file ../token >../worker.txt 2>&1)
rc=$?
wait $l || { echo "FAILED: launch"; tail -5 err.txt; bad=$((bad + 1)); }
[ $rc = 0 ] || { echo "FAILED: exit code $rc of the worker"; cat worker.txt; bad=$((bad + 1)); }
same job/model.safetensors wanted
check "it took part" grep -q "worker/1 joined" err.txt
[ -z "$(ls -A bare)" ] || { echo "FAILED: the worker left files"; ls bare; bad=$((bad + 1)); }

# 2. By hand: two servers lend, the one that is asked first is killed; one worker has the files, the other does not.
rm job/model.safetensors
cp job/job.yaml bare/
cluster="chief=uds:$dir/tmp/c0;ps=uds:$dir/tmp/p0,uds:$dir/tmp/p1;worker=2"
task() { (cd "$2" && exec timeout 120 "$WEFT" node --task "$1" --cluster "$cluster" --log none --set train.shards=2 --set train.strategy=ps --set cluster.timeout=1 "${@:3}" job.yaml) >"${1/\//-}.txt" 2>&1 & }
task chief/0 job --store "$dir/tmp/store"
mkdir tmp/store
task ps/0 job --lend "uds:$dir/tmp/l0"
ps0=$!
task ps/1 job --lend "uds:$dir/tmp/l1"
for ((i = 0; i < 100; i++)); do
    [ -S tmp/l0 ] && [ -S tmp/l1 ] && break
    sleep 0.05
done
task worker/0 job
w0=$!
task worker/1 bare --borrow "uds:$dir/tmp/l0,uds:$dir/tmp/l1" --set train.epochs=3
w1=$!
sleep 0.7
pkill -9 -P $ps0 2>/dev/null
wait $w0 || { echo "FAILED: worker/0"; cat worker-0.txt; bad=$((bad + 1)); }
wait $w1 || { echo "FAILED: worker/1"; cat worker-1.txt; bad=$((bad + 1)); }
same job/model.safetensors wanted
wait 2>/dev/null

# A database is not lent: the error says what to do.
if command -v python3 >/dev/null && python3 -c 'import sqlite3' 2>/dev/null; then
    (cd job && python3 -c "import sqlite3; c = sqlite3.connect('d.sqlite'); c.execute('create table t(a real, b real, kind integer)')
c.executemany('insert into t values(?, ?, ?)', [(i % 3, 3 - i % 3, i % 3) for i in range(90)]); c.commit()")
    sed -e 's/path: data.csv, label: kind, index: true/path: d.sqlite, query: \"select * from t\", label: kind/; s/path: data.csv/path: d.sqlite/; /validation_split/d' job/job.yaml >job/sql.yaml
    if ! "$WEFT" train job/sql.yaml --log none 2>&1 | grep -q "has no SQLite"; then
        "$WEFT" launch job/sql.yaml --ps 1 --workers 2 --remote 1 --token-file token2 >out.txt 2>err.txt &
        l=$!
        for ((i = 0; i < 600; i++)); do grep -q 'weft node --join' err.txt && break; kill -0 $l || break; sleep 0.05; done
        address=$(sed -n 's/.*--join \([^ ]*\) .*/\1/p' err.txt)
        [ -n "$address" ] || { echo "FAILED: a door"; cat err.txt; }
        cd bare || exit 1
        want 3 "databases are not lent by other tasks, as other data files are: copy it here" timeout 60 "$WEFT" node --join "$address" --token-file ../token2
        cd ..
        kill $l
        wait $l
    fi
fi

# 3. Nothing to borrow from: an error that names the file, and it does not take forever.
cd bare || exit 1
want 3 "data.csv: no task that has it answered within 2 s" timeout 100 "$WEFT" node --task worker/0 --cluster "$cluster" --borrow "uds:$dir/tmp/nobody" \
    --set cluster.timeout=0.2 job.yaml
want 2 "plain TCP" "$WEFT" node --task worker/0 --cluster "$cluster" --borrow tcp:127.0.0.1:1 job.yaml
cd ..
rm -rf tmp/c0 tmp/p0 tmp/p1 tmp/l0 tmp/l1 tmp/store

[ -z "$(ls -A tmp)" ] || { echo "FAILED: files are left"; ls -A tmp; bad=$((bad + 1)); }
[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

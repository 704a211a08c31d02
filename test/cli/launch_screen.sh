#!/usr/bin/env bash
# What a person sees of a launched job on a terminal: one table that is repainted below the lines, last events, lines that fit.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
script -qec true /dev/null </dev/null >/dev/null 2>&1 || { echo "no pseudo-terminals here"; exit 0; }
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 60 yes; echo "checkpoint: {dir: ckpt}"; } >job.yaml
esc=$(printf '\033')

# on COLUMNS command: raw.txt as it was written, seen.txt without escape sequences
on()
{
    env TERM=xterm script -qec "stty cols $1 rows 30; $2" /dev/null </dev/null >raw.txt
    tr -d '\r' <raw.txt | sed "s/$esc\\[[0-9;]*[a-zA-Z]//g" >seen.txt
}

# A terminal of 300 rows: moves up and clears, as the escape sequences of raw.txt say. Leaves the rows that are on it at the end.
final()
{
    tr -d '\r' <raw.txt | awk -v esc="$esc" '{
        line = $0
        while (match(line, esc "\\[[0-9]*A")) {
            up = substr(line, RSTART + 2, RLENGTH - 3)
            row -= up
            line = substr(line, 1, RSTART - 1) substr(line, RSTART + RLENGTH)
            last = row - 1
        }
        gsub(esc "\\[[0-9;]*[a-zA-Z]", "", line)
        text[row++] = line
        last = row - 1
    } END { for (i = 0; i <= last; i++) print text[i] }'
}

for columns in 40 80 100; do
    rm -rf ckpt
    on $columns "'$WEFT' launch job.yaml --ps 2 --workers 2"
    check "the table at $columns columns" grep -qE '^task +state +step' seen.txt
    check "rows fit $columns columns" awk -v w="$columns" '/^(task|chief|ps|worker)[ \/]/ && length($0) >= w { bad = 1 } END { exit bad || !NR }' \
        seen.txt
    final >final.txt
    [ $columns -lt 85 ] || check "queues at $columns columns" grep -qE '^ps/0 +running .* [0-9.]+ [kMG]?B/s +[0-9]+ % +[0-9.]+ [kMG]?B$' seen.txt
    [ $columns -ge 85 ] || ! grep -q '^task .* queued' seen.txt || { echo "FAILED: queues at $columns columns"; bad=$((bad + 1)); }
    for t in chief/0 ps/0 ps/1 worker/0 worker/1; do
        [ "$(grep -c "^$t " final.txt)" = 1 ] || { echo "FAILED: $t is in the final table once"; cat final.txt; bad=$((bad + 1)); }
    done
    [ "$(grep -c '^Epoch' final.txt)" = 60 ] || { echo "FAILED: all epochs remain"; bad=$((bad + 1)); }
    [ "$(grep -c '^task ' final.txt)" = 1 ] || { echo "FAILED: one table"; bad=$((bad + 1)); }
done
check "workers have a loss and a step" grep -qE '^worker/0 +(running|done) +[0-9]+ +[0-9]+ +[0-9]\.[0-9]+ +[0-9.]+ [kM]?B/s +[0-9]+ %' seen.txt
check "the end is an event" grep -qE '^[0-9:]{8} worker/0 has finished' final.txt

# a tiny screen: what is repainted fits it, or lines would stay
rm -rf ckpt
env TERM=xterm script -qec "stty cols 60 rows 6; '$WEFT' launch job.yaml --ps 2 --workers 2" /dev/null </dev/null >raw.txt
most=$(grep -oE "$esc\[[0-9]+A" raw.txt | grep -oE '[0-9]+' | sort -n | tail -1)
[ "${most:-99}" -le 5 ] || { echo "FAILED: ${most:-?} lines are repainted on a screen of 6"; bad=$((bad + 1)); }

# a killed server is seen, and Ctrl-C
rm -rf ckpt
on 80 "'$WEFT' launch job.yaml --ps 2 --workers 2 --set train.epochs=100000 & sleep 2; kill -9 \$(pgrep -P \$! -f -- '--task ps/1 '); sleep 1; kill -INT \$!; wait \$!; echo code \$?"
check "a server that was killed" grep -qE '^[0-9:]{8} ps/1 ended \(killed by signal 9\)' seen.txt
check "its backup" grep -qE '^[0-9:]{8} ps/0 was promoted' seen.txt
check "Ctrl-C" grep -qE 'launch stopping after this step' seen.txt
check "its exit code" grep -q "^code 130" seen.txt
check "a message of its own line" grep -q '^weft: stopped after step' seen.txt
[ -z "$(ls -A tmp)" ] || { echo "FAILED: files are left"; bad=$((bad + 1)); }
[ $bad -eq 0 ] || tail -40 seen.txt

[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

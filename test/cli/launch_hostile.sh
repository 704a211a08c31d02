#!/usr/bin/env bash
# Strangers at the ports of a running job: garbage, silence, one byte at a time, a flood of connections, a certificate of another authority, one of
# the job that was stolen, oversized lengths. They are dropped with a log line, few lines for many, and the run ends with the bits of an undisturbed one.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
mkdir tmp
export TMPDIR=$dir/tmp
three_kinds 600 >data.csv
{ small_job 100000 yes; printf '%s\n' "checkpoint: {dir: ckpt, steps: 500}" "save: model.safetensors" "log: {dir: logs}"; } >job.yaml
check "certificates of another authority" "$WEFT" cert other --ps 2 --workers 2
"$WEFT" launch job.yaml --ps 2 --workers 2 --set train.shards=2 --transport tls --token-file token >out.txt 2>err.txt &
launcher=$!
for ((i = 0; i < 200; i++)); do [ "$(grep -sc '^Epoch' out.txt)" -ge 2 ] && break; sleep 0.05; done
[ -f ckpt/control ] || { echo "FAILED: the job did not begin"; cat err.txt; exit 1; }
keys=$(sed -n 's/^keys //p' ckpt/control)
mapfile -t ports < <(tr '\0' '\n' <"/proc/$(pgrep -P $launcher -f -- '--task ps/0 ')/cmdline" | grep -oE '127\.0\.0\.1:[0-9]+' | cut -d: -f2)
ports+=("$(sed -n 's/.*weft node --join [^ ]*:\([0-9]*\) .*/\1/p' err.txt | head -1)")
[ ${#ports[@]} = 4 ] || { echo "FAILED: ports of a chief, two servers and a door: ${ports[*]}"; bad=1; }

# shake PORT AUTHORITY ROLE: a client with that certificate sends a frame's worth of bytes that ask for 2^60
shake()
{
    { printf 'weft\1\0\7\0\0\0\0\0\0\0\0\20'; head -c 200 /dev/urandom; sleep 0.3; } |
        timeout 5 openssl s_client -quiet -connect "127.0.0.1:$1" -cert "$2/$3.pem" -key "$2/$3.key" >/dev/null 2>&1
}
slow=()
for port in "${ports[@]}"; do
    head -c 70000 /dev/urandom 2>/dev/null >"/dev/tcp/127.0.0.1/$port"
    printf '\26\3\1' >"/dev/tcp/127.0.0.1/$port"
    shake "$port" other worker-0 &
    slow+=($!)
    shake "$port" "$keys" worker-1 &
    slow+=($!)
    shake "$port" "$keys" control-0 &
    slow+=($!)
    # one byte now and then
    (exec 3>"/dev/tcp/127.0.0.1/$port"; for ((k = 0; k < 20; k++)); do printf '\26' >&3 || break; sleep 0.2; done) 2>/dev/null &
    slow+=($!)
    # 300 connections that say nothing
    # shellcheck disable=SC2034
    (for ((k = 0; k < 300; k++)); do exec {fd}<>"/dev/tcp/127.0.0.1/$port" || break; done; sleep 1) 2>/dev/null &
    slow+=($!)
done
wait "${slow[@]}" 2>/dev/null
want 0 "worker/1     runs" "$WEFT" ctl ckpt status
want 0 "worker/0     runs" "$WEFT" ctl ckpt status
for task in chief/0 ps/0 ps/1; do
    check "$task says that it dropped strangers" grep -qE "^\[$task\] weft: warning: a connection was dropped before its peer was known: tls:127.0.0.1:[0-9]+: " err.txt
    n=$(grep -c "^\[$task\] weft: warning: .*dropped before" err.txt)
    [ "$n" -le 4 ] || { echo "FAILED: $n lines of $task about strangers"; bad=$((bad + 1)); }
done
check "the door says so" grep -qE '^door a connection was dropped before its peer was known' err.txt
check "the job stops" "$WEFT" ctl ckpt stop
wait $launcher || { echo "FAILED: exit code $?"; bad=$((bad + 1)); }
grep -E '^(chief|ps|worker)/[0-9] (ended|is gone)' err.txt && { echo "FAILED: strangers ended a task"; bad=$((bad + 1)); }
[ $bad -eq 0 ] || cat err.txt
step=$(sed -n 's/.*stopped after step \([0-9]*\);.*/\1/p' err.txt | head -1)
epochs=$((${step:-0} / 30 + 2))
check "the run resumes after step ${step:-?}" "$WEFT" train job.yaml --set train.shards=2 --set train.epochs=$epochs --log none
mv model.safetensors got
rm -rf ckpt logs
check "the undisturbed run" "$WEFT" train job.yaml --set train.shards=2 --set train.epochs=$epochs --log none
same got model.safetensors
[ -z "$(ls -A tmp)" ] || { echo "FAILED: files are left"; ls tmp; bad=$((bad + 1)); }
[ $bad -eq 0 ] && echo "all as promised"
exit $((bad > 0))

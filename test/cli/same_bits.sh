#!/usr/bin/env bash
# Every workload gives the same parameters, bit for bit, on 1, 2, 3 and 7 threads, at every SIMD level this CPU has.
# ctest-timeout: 600
set -eu
levels="portable"
"$WEFT" doctor | grep -q 'simd level *avx' && levels="avx2"
"$WEFT" doctor | grep -q 'simd level *avx512' && levels="avx512 avx2"
[ -n "${WEFT_TEST_QUICK:-}" ] && workloads="softmax64 mlp-s" || workloads="softmax64 mlp-s mlp-l cnn lstm widedeep gpt-s"
n=0
check() # workload, level
{
    local want="" got
    for threads in 1 2 3 7; do
        got=$("$WEFT" bench train --workload "$1" --simd "$2" --threads $threads --blocks 1 --steps 2 --json - |
            sed 's/.*"params_hash": "\([0-9a-f]*\)".*/\1/')
        [ ${#got} -eq 16 ] || { echo "no hash for $1 at $2"; exit 1; }
        [ -z "$want" ] || [ "$got" = "$want" ] || { echo "$1 at $2: $threads threads give $got, 1 gave $want"; exit 1; }
        want=$got
        n=$((n + 1))
    done
}
for w in $workloads; do
    for level in $levels; do
        check "$w" "$level"
    done
done
for w in softmax64 mlp-s; do
    check "$w" portable
done
echo "$n runs, same bits"

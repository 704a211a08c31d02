#!/usr/bin/env bash
# Every workload gives the same parameters, bit for bit, on 1, 2, 3 and 7 threads, at every SIMD level this CPU has; where it
# multiplies bf16, also in bf16, and in f32 those of the level without.
# ctest-timeout: 600
set -eu
levels="portable"
"$WEFT" doctor | grep -q 'simd level *avx' && levels="avx2"
"$WEFT" doctor | grep -q 'simd level *avx512' && levels="avx512 avx2"
[ -n "${WEFT_TEST_QUICK:-}" ] && workloads="softmax64 mlp-s" || workloads="softmax64 mlp-s mlp-l cnn lstm widedeep gpt-s"
n=0
check() # workload, level, precision, first hash
{
    local want="${4:-}" got
    for threads in 1 2 3 7; do
        got=$("$WEFT" bench train --workload "$1" --simd "$2" --precision "${3:-f32}" --threads $threads --blocks 1 --steps 2 --json - |
            sed 's/.*"params_hash": "\([0-9a-f]*\)".*/\1/')
        [ ${#got} -eq 16 ] || { echo "no hash for $1 at $2"; exit 1; }
        [ -z "$want" ] || [ "$got" = "$want" ] || { echo "$1 at $2: $threads threads give $got, not $want"; exit 1; }
        want=$got hash=$got
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
if "$WEFT" doctor | grep -q 'simd level *avx512bf16'; then
    for w in $workloads; do
        check "$w" avx512bf16 bf16
    done
    check mlp-s avx512
    check mlp-s avx512bf16 f32 "$hash"
fi
echo "$n runs, same bits"

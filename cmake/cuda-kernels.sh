#!/bin/sh
# cuda-kernels.sh FATBIN NAMES_DEF NVCC ARGUMENT... - compiles the kernels for GPUs into FATBIN, and
# their names into FATBIN.names. Fails if a kernel of NAMES_DEF is not among them.
set -eu
out=$1 names=$2
shift 2
parts=$out.parts
rm -rf "$parts"
mkdir -p "$parts"
touch "$parts/begun"
"$@" -keep -keep-dir "$parts" -o "$out"
# Each capability has its own assembly text; a kernel counts if all have it.
n=0
n=$(find "$parts" -name "*.ptx" | wc -l)
cat "$parts"/*.ptx | sed -n 's/^\.visible \.entry \([A-Za-z0-9_]*\).*/\1/p' | sort | uniq -c >"$parts/counts"
{ echo && awk -v n="$n" '$1 == n { print $2 }' "$parts/counts"; } >"$out.names"
missing=$(sed -n 's/^K(\(.*\))$/\1/p; s/^K2(\(.*\))$/\1_f\n\1_d/p' "$names" | grep -vxFf "$out.names" || true)
if [ -n "$missing" ]; then
    echo "$out: kernels of $names that no source defines:" $missing >&2
    rm -f "$out"
    exit 1
fi
# A source may be edited while nvcc works: what was compiled is as old as the beginning, so that the
# next build sees that the source is newer.
touch -r "$parts/begun" "$out" "$out.names"
rm -rf "$parts"

#!/usr/bin/env bash
# The compilation of kernels for GPUs, with a compiler that only writes their names: one that is
# missing stops the build, and what was edited meanwhile is newer than the result.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

cat >names.def <<'DEF'
K(wfc_copy)
K2(wfc_sum)
DEF
cat >compile <<'SH'
#!/bin/sh
# two capabilities; the second has no kernel wfc_half
while [ $# -gt 0 ]; do
    case $1 in -keep-dir) dir=$2 ;; -o) out=$2 ;; esac
    shift
done
for kernel in $(cat kernels); do echo ".visible .entry $kernel("; done >"$dir/kernels.80.ptx"
grep -v wfc_half "$dir/kernels.80.ptx" >"$dir/kernels.90.ptx"
sleep 0.05
echo "// edited" >>source
sleep 0.05
echo image >"$out"
SH
chmod +x compile
build() { "$SRC/cmake/cuda-kernels.sh" image names.def ./compile; }

echo "wfc_copy wfc_sum_f wfc_sum_d wfc_more" >kernels
want 0 "" build
check "the list has all kernels" test "$(tr '\n' ' ' <image.names)" = " wfc_copy wfc_more wfc_sum_d wfc_sum_f "
check "an edited source is newer" test source -nt image
check "the list is as old as the image" test ! image.names -nt image -a ! image -nt image.names
check "nothing is left over" test ! -e image.parts
echo "wfc_copy wfc_sum_f" >kernels
want 1 "that no source defines: wfc_sum_d" build
check "no image without a kernel" test ! -e image
echo "wfc_copy wfc_sum_f wfc_sum_d wfc_half" >kernels
echo "K(wfc_half)" >>names.def
want 1 "that no source defines: wfc_half" build

exit $((${bad:?} > 0))

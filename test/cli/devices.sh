#!/usr/bin/env bash
# Devices in saved graphs: placed, refused by name, replaced on request; the same bits; the key of jobs.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"

# graph DEVICE: two products, the second one on a device
graph() {
    cat <<TEXT
weft graph 1
%0 = placeholder() dtype=f32 shape=[-1,40] "x" #0
%1 = variable() dtype=f32 shape=[40,30] init="glorot_uniform" init_params=[0,0] "a" #1
%2 = variable() dtype=f32 shape=[30,20] init="glorot_uniform" init_params=[0,0] "b" #2
%3 = matmul(%0, %1) "first" #3
%4 = matmul(%3, %2) "second" #4 $1
%5 = relu(%4) "out" #5 $1
TEXT
}
graph "" >plain.txt
graph "@cpu:1" >placed.txt
graph "@/device:GPU:0" >gpu.txt

want 0 "matmul" "$WEFT" explain plain.txt --feed x=64,40 --fetch out
if "$WEFT" explain plain.txt --feed x=64,40 --fetch out | grep -q " on cpu"; then echo "FAILED: placed by itself"; bad=$((bad + 1)); fi
want 0 "on cpu:1" "$WEFT" explain placed.txt --feed x=64,40 --fetch out --devices cpu:0,cpu:1
want 3 "'second' (matmul): no device 'cpu:1' here; available: cpu:0" "$WEFT" explain placed.txt --feed x=64,40 --fetch out
want 3 "no device '/device:GPU:0' here; available: cpu:0, cpu:1" "$WEFT" explain gpu.txt --feed x=64,40 --fetch out --devices cpu:0,cpu:1
want 0 "it runs on the default device" "$WEFT" explain gpu.txt --feed x=64,40 --fetch out --soft-placement
want 0 "cpu:0: " "$WEFT" doctor

python3 - <<'PY' || exit 77
import struct
h = b"{'descr': '<f4', 'fortran_order': False, 'shape': (64, 40), }"
h += b" " * (63 - (10 + len(h)) % 64) + b"\n"
open("x.npy", "wb").write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(h)) + h +
                          b"".join(struct.pack("<f", i % 17 / 8 - 1) for i in range(64 * 40)))
PY
check "plain" "$WEFT" run plain.txt --feed x=x.npy --fetch out=plain.npy
check "placed" "$WEFT" run placed.txt --feed x=x.npy --fetch out=placed.npy --devices cpu:0,cpu:1
check "soft" "$WEFT" run gpu.txt --feed x=x.npy --fetch out=soft.npy --soft-placement
check "the same bits" cmp plain.npy placed.npy
check "the same bits" cmp plain.npy soft.npy

want 0 "resources.soft_placement" "$WEFT" keys resources
[ "$bad" -eq 0 ]

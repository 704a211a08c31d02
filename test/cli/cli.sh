#!/usr/bin/env bash
# The weft command as a user meets it: help, typos, missing files, a graph that is run, exit codes.
# shellcheck source=test/support/cli.sh
. "$SRC/test/support/cli.sh"
cat >small.graph <<'GRAPH'
weft graph 1
%0 = placeholder() dtype=f32 shape=[-1,2] "x"
%1 = constant() dtype=f32 shape=[2,1] "w" {0000803f00000040}
%2 = matmul(%0, %1) "y"
GRAPH
# [[1,2],[3,4]] as f4
{ printf '\x93NUMPY\x01\x00\x76\x00'; printf "%-117s\n" "{'descr': '<f4', 'fortran_order': False, 'shape': (2,2)}"
  printf '\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40'; } >x.npy
head -c 130 x.npy >short.npy
sed 's/<f4/|O4/' x.npy >object.npy

want 2 "usage: weft COMMAND" "$WEFT"
want 0 "commands:" "$WEFT" --help
want 0 "weft 0" "$WEFT" version
want 0 "weft 0" "$WEFT" --version
want 0 "simd level" "$WEFT" doctor
want 0 "data readers" "$WEFT" doctor
want 0 ".SS weft data convert IN OUT" "$WEFT" man
want 0 "complete -o default -F _weft weft" "$WEFT" completion
want 0 "convert" "$WEFT" --complete data
want 0 "--threads" "$WEFT" --complete train
want 2 "no command 'trian'" "$WEFT" trian
want 2 "needs a subcommand" "$WEFT" bench
want 2 "did you mean \`weft data convert\`" "$WEFT" data conver
for c in version doctor "bench train" explain run; do
    # shellcheck disable=SC2086
    want 0 "usage: weft $c" "$WEFT" $c --help
done
want 2 "did you mean --threads" "$WEFT" bench train --thread 2
want 2 "no workload 'mlp'" "$WEFT" bench train --workload mlp
want 2 "takes a whole number, not 'two'" "$WEFT" bench train --threads two
want 2 "needs N" "$WEFT" bench train --threads
want 0 '"workload": "softmax64"' "$WEFT" bench train --workload softmax64 --blocks 1 --steps 2 --json -
want 0 "matmul" "$WEFT" explain small.graph --feed x=3,2 --fetch y
want 0 "us per run" "$WEFT" explain small.graph --feed x=3,2 --fetch y --time 2
want 0 '"traceEvents"' "$WEFT" explain small.graph --feed x=3,2 --fetch y --trace
want 0 "11" "$WEFT" run small.graph --feed x=x.npy --fetch y=-
want 0 "5" "$WEFT" run small.graph --feed x=x.npy --fetch y
want 0 "" "$WEFT" run small.graph --feed x=x.npy --fetch y=y.npy
want 0 "NUMPY" head -c 6 y.npy
want 2 "at least one --fetch" "$WEFT" run small.graph
want 2 "no node 'z'" "$WEFT" run small.graph --feed x=x.npy --fetch z
want 1 "placeholder 'x'" "$WEFT" run small.graph --fetch y
want 3 "nope.graph" "$WEFT" run nope.graph --fetch y
want 3 "No such file" "$WEFT" run small.graph --feed x=nope.npy --fetch y
want 3 "says 16 bytes of data, but there are" "$WEFT" run small.graph --feed x=short.npy --fetch y
want 3 "Python objects" "$WEFT" run small.graph --feed x=object.npy --fetch y
echo "weft graph 1" >empty.graph
echo "%0 = wobble() \"a\"" >>empty.graph
want 3 "line 2: needs the op 'wobble'" "$WEFT" run empty.graph --fetch a
want 1 "cannot write" "$WEFT" run small.graph --feed x=x.npy --fetch y=/dev/full
[ $bad -eq 0 ] && echo "all as wanted"
exit $((bad > 0))

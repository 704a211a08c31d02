#!/usr/bin/env bash
# Names of the static library that a program could clash with: all begin with weft_ or wf_ (wfc_: code for GPUs), and the shared library shows weft_ alone.
set -u
bad=0
if [ -f "$BUILD/lib/libweft.a" ]; then
    others=$(nm -g --defined-only "$BUILD/lib/libweft.a" 2>/dev/null | awk 'NF == 3 && $3 !~ /^(weft_|wf_|wfc_|__)/ { print $3 }' | sort -u)
    n=$(nm -g --defined-only "$BUILD/lib/libweft.a" 2>/dev/null | grep -c ' T weft_')
    [ "$n" -gt 300 ] || { echo "only $n functions found: does nm read it?"; bad=1; }
    [ -z "$others" ] || { echo "without a prefix: ${others//$'\n'/ }"; bad=1; }
fi
if [ -f "$BUILD/lib/libweft.so" ]; then
    others=$(nm -D --defined-only "$BUILD/lib/libweft.so" | awk '$3 !~ /^(weft_|__)/ { print $3 }' | sort -u)
    [ -z "$others" ] || { echo "shown by the shared library: ${others//$'\n'/ }"; bad=1; }
fi
exit $bad

#!/bin/bash
# The source keeps to src/LAYERS, and the check that says so can say no.
set -u
"$SRC/tools/check-layers" "$SRC" || exit 1

tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/src/{base,tensor,cli,extra} "$tree/include/weft"
printf 'base:\ntensor: base\ncli: public\n' >"$tree/src/LAYERS"

refused() { # file, include line, what the message must contain
    printf '%s\n' "$2" >"$tree/$1"
    out=$("$SRC/tools/check-layers" "$tree") && { echo "accepted in $1: $2"; exit 1; }
    case $out in *"$1:1: "*"$3"*) ;; *) echo "unclear for $1: $out"; exit 1 ;; esac
    rm "$tree/$1"
}
accepted() {
    printf '%s\n' "$2" >"$tree/$1"
    "$SRC/tools/check-layers" "$tree" || { echo "refused in $1: $2"; exit 1; }
    rm "$tree/$1"
}
refused src/base/a.c '#include "tensor/tensor.h"' 'base may not include "tensor/tensor.h"'
refused src/base/a.h '#  include <tensor/tensor.h>' 'base may not include'
refused src/base/a.c '#include "../tensor/tensor.h"' 'climbs out'
refused src/cli/main.c '#include "base/base.h"' 'cli may not include'
refused src/cli/main.c '#include "weft/weft.h"' 'as <weft/weft.h>'
refused include/weft/weft.h '#include "base/base.h"' 'public may not include'
refused src/extra/a.c 'int x;' 'no row'
accepted src/tensor/a.c '#include "base/base.h"'
accepted src/tensor/a.c '#include "tensor/tensor.h"'
accepted src/tensor/a.c '#include "weft/tensor.h"'
accepted src/cli/main.c '#include <weft/weft.h>'
accepted src/cli/main.c '#include "cli/cli.h"'
accepted src/base/a.c '#include <string.h>'

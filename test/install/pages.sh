#!/bin/bash
# The programs in README and guide compile and run against an installed weft as the pages say, without
# LD_LIBRARY_PATH, and the jobs next to them print the same numbers.
# ctest-timeout: 240
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
. "$SRC/test/support/fences.sh"
fail() { echo "pages: $*" >&2; exit 1; }
unset LD_LIBRARY_PATH PKG_CONFIG_PATH

# Where README puts it, and where a plain `make install` does, below a folder of ours.
export HOME=$dir/home
cmake --install "$BUILD" --prefix "$HOME/weft" >"$dir/log" || { cat "$dir/log"; exit 1; }
DESTDIR=$dir/root cmake --install "$BUILD" --prefix /usr/local >"$dir/log" || { cat "$dir/log"; exit 1; }
local_pc=$(dirname "$(find "$dir/root/usr/local" -name weft.pc)")
# Nothing may point into the system's own folders with -rpath: a package for /usr is clean.
DESTDIR=$dir/system cmake --install "$BUILD" --prefix /usr >"$dir/log" || { cat "$dir/log"; exit 1; }
! grep -q rpath "$(find "$dir/system" -name weft.pc)" || fail "weft.pc of /usr has an rpath"

mkdir "$dir/work"
cd "$dir/work"
warn="-std=c99 -Wall -Wextra -Werror"

# program PAGE NAME: the program whose block says NAME.c, built by the page's own line, printed to NAME.out.
program() {
    fence "$1" "/* $2.c" >"$2.c" || exit 1
    fence "$1" "cc $2.c" | grep -v '^make install' >"$2.sh" || exit 1
    sed -i "s|^cc |${CC:-cc} $warn |" "$2.sh"
    bash -eu "$2.sh" >"$2.out" 2>&1 || { cat "$2.out"; fail "$1: $2.c"; }
    cat "$2.out"
}
program "$SRC/README.md" hello
grep -q '^accuracy 1.00; -0.8 and -0.5 have the same sign: 1.00$' hello.out || fail "hello said: $(cat hello.out)"
grep -qF "$(cat hello.out)" "$SRC/README.md" || fail "README says something else"

program "$SRC/docs/guide/embedding.md" sensor
grep -q '^epoch 20: val_mae 0.0' sensor.out || fail "sensor did not learn"
grep -q '^pressure 0\.[56]' sensor.out || fail "sensor gave a wrong answer"

# The same without the page's line: below /usr/local, and against the static library.
export PKG_CONFIG_PATH=$local_pc
read -ra flags < <(pkg-config --cflags --libs weft)
"${CC:-cc}" hello.c "${flags[@]}" -o local
[ "$(./local)" = "$(cat hello.out)" ] || fail "a program built from /usr/local"
readelf -d local | grep -q 'R.*PATH' || fail "no rpath"

# ---- for people who know Keras -------------------------------------------------------------------
page=$SRC/docs/guide/keras.md
cp "$SRC/examples/data/loans.csv" .
cat >npz.c <<'END'
#include <stdlib.h>
#include <weft/weft.h>
enum { N = 400 };
int main(void)
{
    static uint8_t x[N][28][28];
    static int64_t y[N];
    weft_tensor t[2] = {weft_view(WEFT_U8, x, 3, (int64_t[]){N, 28, 28}),
                        weft_view(WEFT_I64, y, 1, (int64_t[]){N})};
    weft_ctx *ctx;

    for (int i = 0; i < N; i++) {
        y[i] = i * 7 % 10;
        for (int r = 0; r < 28; r++)
            for (int c = 0; c < 28; c++)
                x[i][r][c] = (uint8_t)(rand() % 100 + (r / 6 == y[i] % 5 && c / 14 == y[i] / 5) * 120);
    }
    return weft_ctx_new(NULL, &ctx) ||
           weft_npz_write(ctx, "digits.npz", 2, (const char *const[]){"x", "y"}, t);
}
END
"${CC:-cc}" npz.c "${flags[@]}" -o npz
./npz || fail "digits.npz"
for name in digits loans; do
    fence "$page" "# $name.yaml" >$name.yaml
    fence "$page" "/* $name.c" >$name.c
    # shellcheck disable=SC2086 # a list of flags
    "${CC:-cc}" $warn $name.c "${flags[@]}" -o $name
    ./$name >$name.c.out || fail "$name.c"
    "$WEFT" train $name.yaml --log lines >$name.yaml.out 2>$name.err || { cat $name.err; fail "$name.yaml"; }
    losses() { grep -o 'loss: .*' "$1"; }
    [ "$(losses $name.c.out | wc -l)" = 3 ] || fail "$name.c printed: $(cat $name.c.out)"
    diff <(losses $name.c.out) <(losses $name.yaml.out) || fail "$name: job and program differ"
done

# ---- the job of README ---------------------------------------------------------------------------
mkdir -p examples/data
cp loans.csv examples/data
fence "$SRC/README.md" "# readme.yaml" >readme.yaml
"$WEFT" train readme.yaml --log lines >readme.out 2>&1 || { cat readme.out; fail "the job of README"; }
grep -q 'val_auc: 0.7' readme.out || { cat readme.out; fail "the job of README learns nothing"; }

#!/bin/bash
# An installed weft serves an outside program: C and C++, shared and static, found by pkg-config and by
# CMake, from a prefix that was empty, and again after the prefix has been moved.
# ctest-timeout: 240
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "install: $*" >&2; exit 1; }

cmake --install "$BUILD" --prefix "$dir/first" >"$dir/log" || { cat "$dir/log"; exit 1; }
mv "$dir/first" "$dir/prefix"
prefix=$dir/prefix
libdir=$(dirname "$(find "$prefix" -name libweft.a)")
version=$(sed -n 's/^project(weft VERSION \([0-9.]*\).*/\1/p' "$SRC/CMakeLists.txt")
export PKG_CONFIG_PATH=$libdir/pkgconfig LD_LIBRARY_PATH=$libdir

# Every public header is there, and only weft_ symbols are visible.
diff <(cd "$SRC/include" && find . -name '*.h' | sort) \
    <(cd "$prefix/include" && find . -name '*.h' | sort) || fail "headers differ"
foreign=$(nm -D --defined-only "$libdir/libweft.so" | awk '{print $3}' | grep -v '^weft_' || true)
[ -z "$foreign" ] || fail "libweft.so shows symbols that are not weft_: $foreign"
[ "$(pkg-config --modversion weft)" = "$version" ] || fail "weft.pc has another version"

mkdir "$dir/user"
cd "$dir/user"
cp "$SRC/test/install/user.c" .
cp user.c user.cc # the same source must be valid C++
cat >CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.16)
project(user C CXX)
find_package(weft @VERSION@ REQUIRED)
foreach(source user.c user.cc)
    string(MAKE_C_IDENTIFIER ${source} name)
    add_executable(shared_${name} ${source})
    target_link_libraries(shared_${name} weft::weft)
    add_executable(static_${name} ${source})
    target_link_libraries(static_${name} weft::weft_static)
endforeach()
END
sed -i "s/@VERSION@/${version%.*}/" CMakeLists.txt

run() { # program, how it was built
    out=$("$1") || fail "the $2 program failed: $out"
    [ "$out" = "weft $version" ] || fail "the $2 program said: $out"
    echo "$2: $out"
}
read -ra flags < <(pkg-config --cflags weft)
read -ra shared < <(pkg-config --libs weft)
read -ra static < <(pkg-config --static --libs weft | sed "s|-lweft\b|$libdir/libweft.a|")
warn=(-Wall -Wextra -Werror)
"${CC:-cc}" "${warn[@]}" -std=c99 "${flags[@]}" user.c "${shared[@]}" -o c_shared
"${CC:-cc}" "${warn[@]}" -std=c99 "${flags[@]}" user.c "${static[@]}" -o c_static
run ./c_shared "C, pkg-config, shared"
run ./c_static "C, pkg-config, static"
"${CXX:-c++}" "${warn[@]}" -std=c++11 "${flags[@]}" user.cc "${shared[@]}" -o cc_shared
run ./cc_shared "C++, pkg-config, shared"

cmake -S . -B build -DCMAKE_PREFIX_PATH="$prefix" >log 2>&1 || { cat log; fail "find_package(weft)"; }
cmake --build build >log 2>&1 || { cat log; fail "building with the CMake package"; }
for how in shared static; do
    run build/${how}_user_c "C, CMake, $how"
    run build/${how}_user_cc "C++, CMake, $how"
done

if [ -x "$prefix/bin/weft" ]; then
    env -u LD_LIBRARY_PATH "$prefix/bin/weft" version | grep -qF "$version" ||
        fail "the installed command does not say its version"
fi

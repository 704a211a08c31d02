#!/bin/bash
# Every public header compiles alone, as C99 and as C++11, without a warning.
set -u
cxx=${CXX:-c++}
failed=0
flags=(-I "$SRC/include" -Wall -Wextra -Wpedantic -Werror -fsyntax-only)
n=0
while read -r header; do
    name=${header#"$SRC/include/"}
    n=$((n + 1))
    printf '#include <%s>\ntypedef int nothing_else;\n' "$name" |
        "${CC:-cc}" -std=c99 -Wstrict-prototypes "${flags[@]}" -x c - ||
        { echo "$name does not compile alone as C99"; failed=1; }
    command -v "$cxx" >/dev/null || continue
    printf '#include <%s>\n' "$name" | "$cxx" -std=c++11 "${flags[@]}" -x c++ - ||
        { echo "$name does not compile alone as C++11"; failed=1; }
done < <(find "$SRC/include" -name '*.h' | sort)
command -v "$cxx" >/dev/null || echo "no C++ compiler: headers were compiled as C99 only"
[ $n -gt 0 ] || { echo "no headers under $SRC/include"; exit 1; }
exit $failed

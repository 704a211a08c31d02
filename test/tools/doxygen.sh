#!/bin/bash
# The public headers become HTML without a warning, and what their comments say is in it. Nothing is
# checked where Doxygen is not installed (tools/setup docs).
set -eu
command -v doxygen >/dev/null || { echo "doxygen is missing: not checked"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$SRC"
fail() { echo "doxygen: $*" >&2; exit 1; }
(cat docs/Doxyfile; echo "OUTPUT_DIRECTORY = $dir") | doxygen - >"$dir/log" 2>&1 || { cat "$dir/log"; fail "warnings"; }
[ ! -s "$dir/log" ] || { cat "$dir/log"; fail "it printed something"; }

text() { # page -> its text, on one line
    sed 's/<[^>]*>/ /g' "$dir/html/$1" | tr -s ' \n' ' '
}
# Of a comment before a function, one after a field, a group, and code in a comment.
text train_8h.html | grep -qF 'Loss and metrics over the dataset' || fail "weft_evaluate lost its comment"
comment=$(sed -n 's|^ *bool no_shuffle; */\* \(.*\) \*/$|\1|p' include/weft/train.h)
[ -n "$comment" ] || fail "no_shuffle of weft_fit_opts has no comment to look for"
text structweft__fit__opts.html | grep -qF "$comment" || fail "a field lost its comment"
text train_8h.html | grep -qF 'saved models' || fail "a group is missing"
grep -qF 'class="fragment">   weft_trainer *t;' "$dir/html/train_8h.html" || fail "code in a comment is not code"
n=$(find include -name '*.h' | wc -l)
pages=$(find "$dir/html" -name '*_8h.html' | wc -l)
[ "$n" = "$pages" ] || fail "$n headers, $pages pages"

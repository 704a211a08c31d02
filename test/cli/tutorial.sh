#!/bin/bash
# The tutorial is true: every command of docs/guide/tutorial.md runs, and prints what the page shows.
#
# A block of "console" has commands after "$ " and below each what it prints. A line "…" stands for any
# lines, "…" within a line for any text. Numbers may differ a little, and training may stop at another epoch
# (machines round differently); times may differ at will. A block of another kind whose first line is "# NAME" is the content of that file.
# ctest-timeout: 240
set -u
page=${1:-$SRC/docs/guide/tutorial.md}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/work"
ln -s "$WEFT" "$dir/bin/weft"
export PATH=$dir/bin:$PATH NO_COLOR=1 COLUMNS=100
unset WEFT_LOG
cd "$dir/work" || exit 2
ln -s "$SRC/examples" examples

# Into one folder a block: "N.file" with its name first, or "N.cmd" and "N.want".
awk -v dir="$dir" '
    /^```/ && !inside { inside = 1; kind = substr($0, 4); first = 1; next }
    /^```/ { inside = 0; next }
    !inside { next }
    kind == "console" && /^\$ / { n++; print substr($0, 3) > sprintf("%s/%03d.cmd", dir, n)
                                  printf "" > sprintf("%s/%03d.want", dir, n); next }
    kind == "console" { print > sprintf("%s/%03d.want", dir, n); next }
    first { first = 0; file = ""; if ($0 ~ /^# [a-z_.-]+$/) { n++; file = sprintf("%s/%03d.file", dir, n); print substr($0, 3) > file; next } }
    file != "" && kind != "" { print > file }' "$page"

# Every line of the first file is found in the second, in order; only "…" may skip lines.
matches() {
    awk '
    function number(s) { return s ~ /^[-+]?[0-9]+(\.[0-9]+)?(e[-+][0-9]+)?$/ }
    function near(a, b,    d) {
        d = a - b; if (d < 0) d = -d
        return d <= 0.02 || d <= 0.05 * (a < 0 ? -a : a)
    }
    # Words, with marks such as commas apart.
    function words(s, w) {
        gsub(/[(),:=%]/, " & ", s)
        return split(s, w, /[ \t]+/)
    }
    # "…" within a line: its pieces in order, the first at the beginning, the last at the end.
    function pieces(want, got,    w, n, i, at) {
        n = split(want, w, "…")
        if (substr(got, 1, length(w[1])) != w[1]) return 0
        got = substr(got, length(w[1]) + 1)
        for (i = 2; i < n; i++) {
            at = index(got, w[i])
            if (!at) return 0
            got = substr(got, at + length(w[i]))
        }
        return length(got) >= length(w[n]) && substr(got, length(got) - length(w[n]) + 1) == w[n]
    }
    function same(want, got,    w, g, n, m, i) {
        if (want == got) return 1
        gsub(/[0-9.]+ ?(us|ms|s)(\/step)?( |,|$)/, "TIME ", want); gsub(/[0-9.]+ ?(us|ms|s)(\/step)?( |,|$)/, "TIME ", got)
        gsub(/[0-9.]+ %/, "SHARE", want); gsub(/[0-9.]+ %/, "SHARE", got)
        sub(/ +$/, "", want); sub(/ +$/, "", got)
        if (want ~ /early stopping|best epoch|[0-9] steps in/) { # when it stops depends on the last bits
            gsub(/[0-9]+/, "N", want); gsub(/[0-9]+/, "N", got)
        }
        if (want == got) return 1
        if (index(want, "…")) return pieces(want, got)
        n = words(want, w); m = words(got, g)
        if (n != m) return 0
        for (i = 1; i <= n; i++)
            if (w[i] != g[i] && !(number(w[i]) && number(g[i]) && w[i] ~ /\./ && near(w[i] + 0, g[i] + 0)))
                return 0
        return 1
    }
    FILENAME == ARGV[1] { want[++n] = $0; next }
    { got[++m] = $0 }
    END {
        at = 1; skip = 0
        for (i = 1; i <= n; i++) {
            if (want[i] ~ /^ *…$/) { skip = 1; continue }
            while (skip && at <= m && !same(want[i], got[at])) at++
            if (at > m || !same(want[i], got[at])) {
                print "the page says: " want[i]
                print "weft printed:  " (at > m ? "(nothing more)" : got[at])
                exit 1
            }
            at++; skip = 0
        }
        if (!skip && at <= m) { print "the page stops before: " got[at]; exit 1 }
    }' "$1" "$2"
}

n=0
for step in "$dir"/*.cmd "$dir"/*.file; do
    echo "$step"
done | sort >"$dir/steps"
while read -r step; do
    case $step in
    *.file)
        name=$(head -1 "$step")
        tail -n +2 "$step" >"$name"
        continue
        ;;
    esac
    n=$((n + 1))
    bash -c "$(cat "$step")" >"$dir/out" 2>&1 </dev/null
    rc=$?
    sed -i '/^weft: warning: data: the reader waited/d' "$dir/out" # a busy machine
    want=${step%.cmd}.want
    if ! matches "$want" "$dir/out" || { [ $rc != 0 ] && ! grep -q '^weft: ' "$want"; }; then
        echo "tutorial: \$ $(cat "$step") (exit $rc)" >&2
        sed 's/^/  | /' "$dir/out" >&2
        exit 1
    fi
done <"$dir/steps"
[ $n -ge 8 ] || { echo "tutorial: only $n commands were found" >&2; exit 1; }
echo "tutorial: $n commands"

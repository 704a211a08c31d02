#!/bin/bash
# Every relative link of the documentation leads to a file, its anchor to a heading, and every path of
# the source tree written as `code` exists. Nothing is fetched.
#
#   SRC=. test/tools/links.sh [FILE.md ...]
set -u
cd "$SRC" || exit 2
bad=$(mktemp)
trap 'rm -f "$bad"' EXIT
if [ $# -gt 0 ]; then
    files=("$@")
else
    mapfile -t files < <(find . -name '*.md' -not -path './build*' -not -path './.git/*' -not -path './shared/*' |
        sed 's|^\./||' | sort)
fi

# The anchors of a page, one a line, as GitHub makes them of headings.
anchors() {
    awk '/^ *```/ {code = !code; next} code {next}
         /^#+ / {
             sub(/^#+ +/, ""); sub(/ +#* *$/, "")
             gsub(/\[|\]\([^)]*\)/, ""); gsub(/[`*]/, "")
             s = tolower($0)
             gsub(/[^a-z0-9 _-]/, "", s); gsub(/ /, "-", s)
             n = seen[s]++
             print n ? s "-" n : s
         }' "$1"
}

# "line<TAB>target" for each link and image; code is left out.
links() {
    awk '/^ *```/ {code = !code; next} code {next}
         {
             gsub(/`[^`]*`/, "")
             s = $0
             while (match(s, /\]\([^) ]+/)) {
                 print NR "\t" substr(s, RSTART + 2, RLENGTH - 2)
                 s = substr(s, RSTART + RLENGTH)
             }
             s = $0
             while (match(s, /(src|srcset|href)="[^"]+"/)) {
                 t = substr(s, RSTART, RLENGTH); sub(/^[a-z]+="/, "", t); sub(/"$/, "", t)
                 print NR "\t" t
                 s = substr(s, RSTART + RLENGTH)
             }
         }' "$1"
}

# "line<TAB>path" for each path of the tree in `code`. Those with <>, …, $, NAME or FAMILY are patterns.
paths() {
    awk '/^ *```/ {code = !code; next} code {next}
         {
             s = $0
             while (match(s, /`(src|docs|include|test|tools|examples|bench|cmake)\/[^` ]*`/)) {
                 t = substr(s, RSTART + 1, RLENGTH - 2)
                 s = substr(s, RSTART + RLENGTH)
                 if (t !~ /[<>$…]|FAMILY|NAME/)
                     print NR "\t" t
             }
         }' "$1"
}

n=0
for file in "${files[@]}"; do
    case $file in CHANGELOG.md) checks=links ;; *) checks="links paths" ;; esac
    while IFS=$'\t' read -r line target; do
        n=$((n + 1))
        case $target in
        http://* | https://* | mailto:*) continue ;;
        \#*) page=$file anchor=${target#\#} ;;
        *\#*) page=$(dirname "$file")/${target%%\#*} anchor=${target#*\#} ;;
        *) page=$(dirname "$file")/$target anchor= ;;
        esac
        if [ ! -e "$page" ]; then
            echo "$file:$line: no such file: $target"
        elif [ -n "$anchor" ] && ! anchors "$page" | grep -qxF -- "$anchor"; then
            echo "$file:$line: no such heading: $target"
        fi
    done < <(links "$file") >>"$bad"
    [ "$checks" = links ] && continue
    while IFS=$'\t' read -r line path; do
        n=$((n + 1))
        path=${path%%:*} # a program such as bench/gemm is named without its ending
        compgen -G "$path" >/dev/null || [ -f "$path.c" ] || echo "$file:$line: no such path: $path"
    done < <(paths "$file") >>"$bad"
done
if [ -s "$bad" ]; then
    cat "$bad"
    exit 1
fi
[ $n -gt 0 ] || { echo "links: found none" >&2; exit 1; }
echo "links: $n in ${#files[@]} files"

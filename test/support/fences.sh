# shellcheck shell=bash
# fences.sh - code blocks of Markdown pages, for tests that run what a page says. Source it.

# fence PAGE TEXT [N]: the Nth (default first) fenced block of a page with a line that contains TEXT.
fence() {
    awk -v want="$2" -v nth="${3:-1}" '
        /^ *```/ {
            if (!inside) { inside = 1; block = ""; hit = 0; next }
            inside = 0
            if (hit && ++n == nth) { printf "%s", block; found = 1; exit }
            next
        }
        inside { block = block $0 "\n"; if (index($0, want)) hit = 1 }
        END { exit !found }' "$1" || { echo "$1 has no code block with: $2" >&2; return 1; }
}

#!/bin/bash
# The library asks no locale, and the check that says so can say no.
set -u
"$SRC/tools/check-locale" "$SRC" || exit 1

tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/src/{base,train,cli}

refused() { # file, text, what the message must contain
    printf '%b\n' "$2" >"$tree/$1"
    out=$("$SRC/tools/check-locale" "$tree") && { echo "accepted in $1: $2"; exit 1; }
    case $out in "$1:"*"$3"*) ;; *) echo "unclear for $1: $out"; exit 1 ;; esac
    rm "$tree/$1"
}
accepted() {
    printf '%b\n' "$2" >"$tree/$1"
    "$SRC/tools/check-locale" "$tree" || { echo "refused in $1: $2"; exit 1; }
    rm "$tree/$1"
}
refused src/train/a.c 'v = strtod(text, &end);' 'reads a number'
refused src/train/a.c '    n = strtoll(text, &end, 10);' 'reads a number'
refused src/train/a.c 'if (isalpha(c))' 'asks the locale'
refused src/train/a.c '#include <ctype.h>' 'asks the locale'
refused src/train/a.c 'x = !strcasecmp(a, b);' 'asks the locale'
refused src/train/a.c 'snprintf(t, n, "%.9g", v);' 'prints a number'
refused src/train/a.c 'fprintf(f,\n        "%s: %5.1f %%\\n",\n name, v);' '1: prints a number'
refused src/train/a.c 'vsnprintf(t, n, fmt, args);' 'wf_vsnprintf'
refused src/train/a.c 'j = json_loadb(t, n, 0, &e);' 'JSON outside'
refused src/train/a.c 'setlocale(LC_ALL, "");' 'whole process'
refused src/cli/a.c 'setlocale(LC_ALL, "");' 'whole process'
refused src/base/a.c 'setlocale(LC_ALL, "C");' 'whole process'
accepted src/train/a.c 'snprintf(t, n, "%d %s %lld 5 %% for", a, b, c);'
accepted src/train/a.c 'wf_snprintf(t, n, "%.9g", v);\nwf_buf_printf(b, "%g", v);\nwf_err(st, "%f", v);'
accepted src/train/a.c '/* what strtod(x) gives */\n * printf("%f", x);'
accepted src/train/a.c 'l = wf_plain_locale_enter();\nj = json_loadb(t, n, 0, &e);'
accepted src/cli/a.c 'printf("%g", v);'
accepted src/base/a.c 'snprintf(t, n, "%.*e", d, v);'

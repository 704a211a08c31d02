#!/usr/bin/env bash
# Makes the locales that tests run under, in BUILD/test/locales: a decimal comma (de_DE), a decimal
# point of two bytes (ps_AF), a Turkish i (tr_TR). Exits 77 and leaves the reason in `skipped` where
# localedef or its sources are missing (Debian: the package locales; tools/setup installs it).
set -eu
dir=$BUILD/test/locales
mkdir -p "$dir"
rm -f "$dir/skipped"
if ! command -v localedef >/dev/null || [ ! -e /usr/share/i18n/locales/de_DE ]; then
    echo "localedef or its sources are missing (package locales)" | tee "$dir/skipped"
    exit 77
fi
for name in de_DE ps_AF tr_TR; do
    [ -e "$dir/$name.UTF-8/LC_NUMERIC" ] && continue
    rm -rf "$dir/$name.tmp"
    localedef -i "$name" -f UTF-8 "$dir/$name.tmp"
    mv "$dir/$name.tmp" "$dir/$name.UTF-8"
done

#!/bin/bash
# tools/bench replaces its own section of the report and keeps every other line of it.
set -eu
command -v python3 >/dev/null || { echo "no python3: not tested"; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat >"$dir/weft" <<'END'
#!/bin/sh
[ "$1" = version ] && { echo weft 1.2.3; exit 0; }
echo '{"workload": "mlp-s", "us_step": 123.4, "peak_fraction": 0.5}'
END
chmod +x "$dir/weft"
out=$dir/report.md
bench() { "$SRC/tools/bench" --weft "$dir/weft" --peers "$dir" --only mlp-s --rounds 1 --out "$out" 2>/dev/null; }
begin='<!-- train: written by make bench -->' end='<!-- /train -->'
fail() { echo "$1"; cat "$out"; exit 1; }

bench
grep -q '^| mlp-s | 123 |' "$out" || fail "no row in a new report"
printf '%s\n' '# Mine' 'before' "$begin" 'an old table' "$end" 'after' >"$out"
bench train
grep -q '^| mlp-s | 123 |' "$out" || fail "no row where the section was"
grep -q 'an old table' "$out" && fail "the old section is still there"
[ "$(sed "/^$begin\$/,\\|^$end\$|d" "$out")" = $'# Mine\nbefore\nafter' ] || fail "something else changed"
before=$(cat "$out")
bench
[ "$(cat "$out")" = "$before" ] || fail "a second run changed more than its numbers"
printf '%s\n' 'only text' >"$out"
bench
[ "$(head -n 3 "$out")" = $'only text\n\n'"$begin" ] || fail "the section is not added at the end"
printf '%s\n' "$begin" 'no end' >"$out"
bench && fail "half a section was accepted"
[ "$(cat "$out")" = "$begin"$'\nno end' ] || fail "half a section was written over"

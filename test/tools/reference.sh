#!/bin/bash
# docs/reference is what the tables of the library say now: written once more and compared.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$BUILD/tools/reference" "$dir"
diff -ru "$SRC/docs/reference" "$dir" || {
    echo "reference: docs/reference is not what the tables say: run \`make docs\` and commit it" >&2
    exit 1
}

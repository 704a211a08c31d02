# cli.sh - what the tests of the command share; they read it with `.`. A folder of their own to work in, and checks that count in
# `bad` what went wrong and go on.
# shellcheck shell=bash
set -u
dir=$(mktemp -d) && trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
bad=0

# want CODE "text in the output" command...
want()
{
    local code=$1 text=$2 out rc
    shift 2
    out=$("$@" 2>&1)
    rc=$?
    if [ $rc -ne "$code" ] || ! grep -qF -- "$text" <<<"$out"; then
        echo "FAILED: $*"
        echo "  wanted exit $code and '$text', got exit $rc and:"
        sed 's/^/  | /' <<<"$out" | head -5
        bad=$((bad + 1))
    fi
}

# check "what" command...: it must succeed
check()
{
    local what=$1
    shift
    "$@" >/dev/null 2>&1 || { echo "FAILED: $what"; bad=$((bad + 1)); }
}

# three_kinds N: a table of N rows of three kinds that two measures tell apart
three_kinds()
{
    awk -v n="$1" 'BEGIN { srand(3); print "a,b,kind"
        for (i = 0; i < n; i++) { k = i % 3; printf "%.3f,%.3f,%d\n", 1 + k + 2 * rand(), 3 - k + 2 * rand(), k } }'
}

# small_job EPOCHS [yes]: a job that learns data.csv, of three_kinds; yes: with validation and accuracy. Further sections may follow.
small_job()
{
    cat <<YAML
data:
  train: {path: data.csv, label: kind, index: true}
  test: {path: data.csv, label: kind}
  pipeline: [{join: {columns: "a, b", to: features}}]
  batch: 16
${2:+  validation_split: 0.2}
model:
  - Dense: {units: 16, activation: relu}
  - Dense: {units: 3}
train:
  optimizer: adam learning_rate=0.01
  loss: sparse_categorical_crossentropy from_logits=true
${2:+  metrics: accuracy}
  epochs: $1
YAML
}

# Files
same()
{
    cmp "$1" "$2" || { echo "FAILED: $1 and $2 differ"; bad=$((bad + 1)); }
}

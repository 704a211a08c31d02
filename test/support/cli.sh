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

# Files
same()
{
    cmp "$1" "$2" || { echo "FAILED: $1 and $2 differ"; bad=$((bad + 1)); }
}

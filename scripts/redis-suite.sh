#!/bin/sh
# Runs Redis's own test suite against `hyades serve`, file by file, and counts what passes.
#
#   scripts/redis-suite.sh [PROGRAM] [FILE ..]
#
# PROGRAM is the server, by default target/release/hyades; `redis-server` measures the original.
# FILE is a file of the suite without its ending, such as unit/expire; by default those that
# scripts/redis-suite-files.txt has to be run. That names each file of the suite, and why it is left
# out if it is; this script checks that none is missing there. The suite comes from Debian's source package of redis, by apt, into
# target/redis-suite; nothing of it is kept in this repository. Needs tclsh, redis-cli, apt, and Linux.
set -eu

cd "$(dirname "$0")/.."
program=${1:-target/release/hyades}
[ $# -gt 0 ] && shift
list=scripts/redis-suite-files.txt
files=${*:-$(awk '$2 == "run" { print $1 }' "$list")}
place=$PWD/target/redis-suite
port=${PORT:-16379}
limit=${LIMIT:-120}
version=7.0.15
# So many tests pass on redis-server itself: of all files that can be run on a server that the suite
# has not started, but for scripts and functions.
whole=1091

fetch() {
    mkdir -p "$place/lists/partial"
    echo "deb-src http://deb.debian.org/debian bookworm main" > "$place/sources.list"
    echo "deb-src http://deb.debian.org/debian-security bookworm-security main" \
        >> "$place/sources.list"
    options="-o Dir::Etc::sourcelist=$place/sources.list -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists=$place/lists -o APT::Sandbox::User=root"
    # shellcheck disable=SC2086 # these are several words
    (cd "$place" && apt-get $options update && apt-get $options source --download-only redis) \
        > "$place/apt.log" 2>&1 || { cat "$place/apt.log" >&2; exit 1; }
    tar -xzf "$place"/redis_$version.orig.tar.gz -C "$place"
}

suite=$place/redis-$version
[ -d "$suite/tests" ] || fetch

named=$place/named
awk '!/^#/ { if (NF < 2) { print "no reason: " $1; bad = 1 } } END { exit bad }' "$list" >&2
awk '!/^#/ { print $1 }' "$list" | sort > "$named"
sed -n '/^set ::all_tests {/,/^}/p' "$suite/tests/test_helper.tcl" | grep -oE '(unit|integration)/\S+' \
    | sort | diff "$named" - > "$place/unnamed" || {
    echo "$list does not name the files of the suite (< too many, > missing):" >&2
    cat "$place/unnamed" >&2
    exit 1
}

. scripts/suite-server.sh

passed=0
failed=0
for file in $files; do
    # A file that leaves the server in an odd state does not spoil the next one.
    start_server
    out=$place/$(echo "$file" | tr / -).log
    (cd "$suite" && timeout "$limit" tclsh tests/test_helper.tcl --host 127.0.0.1 --port "$port" \
        --ignore-encoding --ignore-digest --durable --baseport $((port + 4000)) \
        --tags "-needs:debug -needs:repl -large-memory" \
        --single "$file") 2>&1 | sed 's/\x1b\[[0-9;]*m//g' > "$out" || true
    ok=$(grep -ac '\[ok\]' "$out" || true)
    bad=$(grep -acE '^\[(err|exception)\]' "$out" || true)
    echo "$file: $ok passed, $bad failed ($out)"
    passed=$((passed + ok))
    failed=$((failed + bad))
    stop_server
done
echo "in all: $passed passed, $failed failed; $whole without scripts pass on redis-server $version"
if [ $# -eq 0 ]; then
    awk '!/^#/ && $2 != "run" { printf "%s: left out:", $1; for (i = 2; i <= NF; i++) printf " %s", $i
        print "" }' "$list"
fi

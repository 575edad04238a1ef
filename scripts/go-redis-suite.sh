#!/bin/sh
# Runs the tests of go-redis against `hyades serve`, and counts what passes.
#
#   scripts/go-redis-suite.sh [PROGRAM] [FILE ..]
#
# PROGRAM is the server, by default target/release/hyades; `redis-server` measures the original.
# FILE is a file of its tests without _test.go, by default those for one server. The tests come with
# the module, by go, into target/go-redis-suite; nothing of it is kept in this repository. What is
# known to fail is in scripts/go-redis-known.txt, with a reason for each; the script ends with 1 if
# another test fails. For `redis-server` all failures are shown. The tests connect to port 6379,
# whatever they are told. Needs go, redis-cli, and Linux.
set -eu

cd "$(dirname "$0")/.."
program=${1:-target/release/hyades}
[ $# -gt 0 ] && shift
case $program in */*) program=$(realpath "$program") ;; esac
files=${*:-acl_commands bitmap_commands commands iterator pipeline pool pubsub redis tx command}
known=$PWD/scripts/go-redis-known.txt
place=$PWD/target/go-redis-suite
port=6379
version=v9.17.3
suite=$place/go-redis

if [ ! -x "$place/suite" ]; then
    mkdir -p "$place/module"
    # A module of its own, so that go finds this one's no less than any other's.
    (cd "$place/module" && { [ -f go.mod ] || go mod init suite; } \
        && go mod download "github.com/redis/go-redis/v9@$version" \
        && from=$(go env GOMODCACHE)/github.com/redis/go-redis/v9@$version \
        && rm -rf "$suite" && cp -r "$from" "$suite" && chmod -R u+w "$suite" \
        && cd "$suite" && go test -c -o "$place/suite" .) > "$place/go.log" 2>&1 \
        || { cat "$place/go.log" >&2; exit 1; }
fi

. scripts/suite-server.sh
start_server --enable-debug-command yes

out=$place/out.txt
: > "$out"
for file in $files; do
    log=$place/$file.log
    # What a test leaves does not spoil the next file.
    redis-cli -p "$port" flushall > "$place/flush.log"
    (cd "$suite" && RE_CLUSTER=true REDIS_VERSION=7.2 timeout "${LIMIT:-300}" "$place/suite" \
        -test.run TestGinkgoSuite --ginkgo.no-color "--ginkgo.focus-file=^.*/${file}_test.go") \
        > "$log" 2>&1 || true
    count=$(sed -n 's/.* \([0-9]*\) Passed .* \([0-9]*\) Failed .*/\1 passed, \2 failed/p' "$log")
    [ -n "$count" ] || count=$(sed -n 's/^\(Ran .*\)/\1/p' "$log" | head -1)
    echo "$file: ${count:-no result}, see $log"
    # It did not end, or not by itself: what would have failed is not known.
    [ -n "$count" ] || echo "$file gives no result" >> "$out"
    # The summary of failures names each: [FAIL] its place and words.
    sed -n 's/^  \[FAIL\] //p; s/^  \[PANICKED!\] //p; s/^  \[TIMEDOUT\] //p' "$log" | sort -u >> "$out"
done

case $program in
    *redis-server) cat "$out"; exit 0 ;;
esac
# A line of the file is the name of a test, as the summary shows it, and behind " # " the reason.
sed -n 's/^\([^#].*\) # .*/\1/p' "$known" | sort -u > "$place/known.txt"
sort -u "$out" > "$place/failed.txt"
comm -23 "$place/failed.txt" "$place/known.txt" > "$place/new.txt"
if [ -s "$place/new.txt" ]; then
    echo "failed, and not in $known:"
    cat "$place/new.txt"
    exit 1
fi
echo "failed as known: $(wc -l < "$place/failed.txt") (scripts/go-redis-known.txt)"

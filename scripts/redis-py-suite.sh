#!/bin/sh
# Runs the tests of redis-py against `hyades serve`, and counts what passes.
#
#   scripts/redis-py-suite.sh [PROGRAM] [ARGUMENT OF PYTEST ..]
#
# PROGRAM is the server, by default target/release/hyades; `redis-server` measures the original.
# redis-py comes from its source distribution, by pip, with pytest into an environment in
# target/redis-py-suite; nothing of it is kept in this repository. Tests of commands that are not
# there are left out: scripts/redis-py-skip.txt names them, with a reason for each. For
# `redis-server` none is left out. PROTOCOL=3 speaks RESP3. The port is 6379, unless PORT is set: some
# of the tests connect to it whatever they are told. Needs python3, pip, redis-cli, and Linux.
set -eu

cd "$(dirname "$0")/.."
program=${1:-target/release/hyades}
[ $# -gt 0 ] && shift
case $program in */*) program=$(realpath "$program") ;; esac
skip=$PWD/scripts/redis-py-skip.txt
place=$PWD/target/redis-py-suite
port=${PORT:-6379}
protocol=${PROTOCOL:-2}
version=5.2.1
suite=$place/redis-$version

if [ ! -x "$place/env/bin/pytest" ] || [ ! -d "$suite/tests" ]; then
    mkdir -p "$place"
    (cd "$place" && python3 -m venv env \
        && env/bin/pip download --no-binary :all: --no-deps "redis==$version" \
        && tar -xzf "redis-$version.tar.gz" \
        && env/bin/pip install "./redis-$version" 'pytest<9' packaging) > "$place/pip.log" 2>&1 \
        || { cat "$place/pip.log" >&2; exit 1; }
fi

. scripts/suite-server.sh
start_server --enable-debug-command yes

# A line of the file is the name of a test, as pytest shows it behind its file's, and the reason.
left_out=$place/left-out.txt
: > "$left_out"
case $program in
    *redis-server) ;;
    *) sed -n 's/^\(test_[^ ]*\) .*/--deselect=tests\/\1/p' "$skip" > "$left_out" ;;
esac
files=''
for file in commands pipeline lock pubsub connection connection_pool; do
    files="$files tests/test_$file.py"
done

cd "$suite"
# The original has tests for clusters, sentinels and modules: they need servers of their own.
# shellcheck disable=SC2046,SC2086 # these are several words
timeout "${LIMIT:-600}" "$place/env/bin/pytest" -q -p no:cacheprovider --tb=short \
    --redis-url "redis://localhost:$port/0" --redis-mod-url "redis://localhost:1" \
    --protocol "$protocol" -m 'not onlycluster and not redismod and not ssl and not asyncio' \
    $(cat "$left_out") $files "$@" > "$place/pytest.log" 2>&1 || true
grep -E '^(FAILED|ERROR)' "$place/pytest.log" || true
tail -1 "$place/pytest.log"
echo "left out: $(wc -l < "$left_out") (scripts/redis-py-skip.txt); more in $place/pytest.log"

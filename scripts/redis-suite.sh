#!/bin/sh
# Runs Redis's own test suite against `hyades serve`, file by file, and counts what passes.
#
#   scripts/redis-suite.sh [PROGRAM] [FILE ..]
#
# PROGRAM is the server, by default target/release/hyades; `redis-server` measures the original.
# FILE is a file of the suite without its ending, such as unit/expire; by default those that
# scripts/redis-suite-files.txt has to be run. That names each file of the suite, and why it is left
# out if it is. scripts/redis-suite-skip.txt names the tests of the other files that are left out,
# with the reason of each; this script runs the rest, and ends with 1 if one fails, or if a test that
# is named there does not exist. With ALL=1 it runs those as well, and so it does for `redis-server`.
#
# The suite starts its servers itself, as src/redis-server of its own directory; what stands there
# starts PROGRAM. It comes from Debian's source package of redis, by apt, into target/redis-suite;
# nothing of it is kept in this repository. Needs tclsh, redis-cli, apt, bash, and Linux.
set -eu

cd "$(dirname "$0")/.."
program=${1:-target/release/hyades}
[ $# -gt 0 ] && shift
list=scripts/redis-suite-files.txt
left=scripts/redis-suite-skip.txt
files=${*:-$(awk '$2 == "run" { print $1 }' "$list")}
place=${PLACE:-$PWD/target/redis-suite}
port=${PORT:-26000}
limit=${LIMIT:-600}
version=7.0.15

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

# Each file of the suite is named, and each that is left out has a reason.
named=$place/named
awk '!/^#/ { if (NF < 2) { print "no reason: " $1; bad = 1 } } END { exit bad }' "$list" >&2
awk '!/^#/ { print $1 }' "$list" | sort > "$named"
sed -n '/^set ::all_tests {/,/^}/p' "$suite/tests/test_helper.tcl" | grep -oE '(unit|integration)/\S+' \
    | sort | diff "$named" - > "$place/unnamed" || {
    echo "$list does not name the files of the suite (< too many, > missing):" >&2
    cat "$place/unnamed" >&2
    exit 1
}
if grep -vE '^(#.*|(unit|integration)/\S+ .* # .+)$' "$left" >&2; then
    echo "$left: these lines have no file, test or reason" >&2
    exit 1
fi

# What the suite starts, with a file of settings and further arguments. It waits for the number of
# the process, which Redis tells once it listens, and for the words of Redis. Two log streams save
# it the measurement of the best number.
ln -sf "$(command -v redis-cli)" "$(command -v redis-benchmark)" "$suite/src/"
rm -f "$suite/src/redis-server"
case $program in
    *redis-server) program=$(command -v "$program") ;;
    *) program=$(realpath "$program") ;;
esac
case $program in
    *redis-server) serve=; words= ;;
    *) serve=serve; words='s/^ready on/Ready to accept connections: &/
        s/^hyades: cannot listen/Failed listening on port: &/' ;;
esac
cat > "$suite/src/redis-server" << END
#!/bin/bash
echo \$\$ >> "$place/servers"
[ -z "$serve" ] && exec "$program" "\$@"
file=
case "\${1:--}" in -*) ;; *) file=\$1; shift ;; esac
export HYADES_STREAMS=2
pid="s/^listening on/ PID: \$\$, &/"
exec "$program" serve \$file "\$@" > >(exec sed -u -e "\$pid" -e '$words') 2>&1
END
chmod +x "$suite/src/redis-server"

# Ends the servers that a file has left running.
end_servers() {
    while read -r pid; do
        [ "$(readlink "/proc/$pid/exe" || true)" != "$program" ] || kill "$pid"
    done < "$place/servers"
}

# The names of the tests of a file that are left out.
names_of() {
    case $program in *redis-server) return ;; esac
    [ -z "${ALL:-}" ] || return 0
    sed -n "s|^$1 \(.*\) # .*|\1|p" "$left"
}

passed=0
failed=0
skipped=0
for file in $files; do
    log=$place/$(echo "$file" | tr / -).log
    tags="-needs:repl -large-memory"
    case $(awk -v file="$file" '$1 == file { print $3 }' "$list") in
        debug) ;;
        *) tags="-needs:debug $tags" ;;
    esac
    names_of "$file" > "$place/skip.txt"
    : > "$place/servers"
    (cd "$suite" && timeout "$limit" tclsh tests/test_helper.tcl --clients 1 --durable \
        --ignore-encoding --ignore-digest --baseport "$port" --portcount 2000 \
        --skipfile "$place/skip.txt" --tags "$tags" \
        --single "$file") 2>&1 | sed 's/\x1b\[[0-9;]*m//g' > "$log" || true
    end_servers
    ok=$(grep -ac '^\[ok\]' "$log" || true)
    # What a file fails with that has no name is its end before its last test.
    sed -n 's|^\[err\]: \(.*\) in tests/.*\.tcl$|\1|p' "$log" > "$place/failed.txt"
    bad=$(grep -acE '^\[(err|exception)\]' "$log" || true)
    if ! grep -aq 'The End' "$log"; then
        echo "$file does not end" >> "$place/failed.txt"
        bad=$((bad + 1))
    fi
    sed -n 's/^\[skip\]: //p' "$log" | sort -u > "$place/skipped.txt"
    out=$(wc -l < "$place/skipped.txt")
    echo "$file: $ok passed, $bad failed, $out left out ($log)"
    sed 's/^/    failed: /' "$place/failed.txt"
    if sort -u "$place/skip.txt" | comm -23 - "$place/skipped.txt" | grep .; then
        echo "    these do not exist, and are named in $left"
        bad=$((bad + 1))
    fi
    passed=$((passed + ok))
    failed=$((failed + bad))
    skipped=$((skipped + out))
done
echo "in all: $passed passed, $failed failed, $skipped left out with a reason in $left"
if [ $# -eq 0 ]; then
    awk '!/^#/ && $2 != "run" { printf "%s: left out:", $1; for (i = 2; i <= NF; i++) printf " %s", $i
        print "" }' "$list"
fi
[ "$failed" -eq 0 ]

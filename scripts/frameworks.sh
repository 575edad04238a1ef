#!/bin/bash
# Runs well-known software of Redis, unchanged and in its newest version, against a server that is
# killed in the middle, and shows what works.
#
#   scripts/frameworks.sh [PROGRAM] [NAME ..]
#
# PROGRAM is the server, by default target/release/hyades; `redis-server` measures the original, which
# syncs its file before each reply. NAME is a file of scripts/frameworks without its end, by default
# all of them. Each is a small program that uses one piece of software for what it is made for: its
# first lines say what it does, which packages it needs, and of which kind it is. They are installed
# from their registries into target/frameworks, where the logs are too.
#
#   queue  `main` adds jobs, `work` does them and writes a line into a journal for each. When the
#          journal has some lines, the server is killed with SIGKILL and started again. A worker that
#          ends is started again, as a supervisor does. Each job whose addition was acknowledged has
#          to be done, delayed ones not too early, failing ones once more. None is done twice, but
#          those that were under way at the kill, and none is lost, but where the software itself takes
#          jobs by a command whose answer a kill may swallow (`loses:`). When all are done, the server is
#          killed once more.
#   lock   processes of `work` count in a file, each under the lock, over the kill: nothing is counted
#          twice. `main` looks at expiry and extension.
#   limit  processes of `work` ask the limiter: as many as allowed pass, over the kill.
#   other  `main` looks at what it has written, before and after the kill.
#
# What is known to fail is in scripts/frameworks-known.txt; the script ends with 1 if something else
# does. Needs python3, node, go, java with maven, ruby-sidekiq, redis-cli, and Linux. It takes a
# quarter of an hour after the installation. FRESH=1 installs again.
set -euo pipefail

cd "$(dirname "$0")/.."
program=${1:-target/release/hyades}
[ $# -gt 0 ] && shift
case $program in */*) program=$(realpath "$program") ;; esac
programs=$PWD/scripts/frameworks
known=$PWD/scripts/frameworks-known.txt
homes=$PWD/target/frameworks
port=${PORT:-6399}
limit=${LIMIT:-120}
place=$homes/logs-$port
mkdir -p "$place"
# shellcheck source=scripts/suite-server.sh
. scripts/suite-server.sh

always=()
case $program in *redis-server) always=(--appendonly yes --appendfsync always) ;; esac

# What the first lines of a program say: field FILE NAME DEFAULT
field() {
    local value
    value=$(head -12 "$1" | sed -n "s/^[#/]* $2: //p" | paste -sd ' ')
    echo "${value:-$3}"
}

# Installs what FILE needs into HOME, and writes the version of its first package there.
install() {
    local file=$1 home=$2 packages package
    packages=$(field "$file" packages '')
    package=${packages%% *}
    rm -f "$home/version" "$home/installed"
    # shellcheck disable=SC2086 # these are several words
    case $file in
        *.py)
            [ -d "$home/env" ] || python3 -m venv --without-pip "$home/env"
            python3 -m pip --python "$home/env/bin/python" install --quiet --upgrade $packages
            "$home/env/bin/python" -c 'import sys, importlib.metadata as m
print(m.version(sys.argv[1]))' "${package%%[*}" > "$home/version"
            ;;
        *.js)
            npm install --silent --no-audit --no-fund --prefix "$home" $packages
            node -p 'require(process.argv[1]).version' "$home/node_modules/$package/package.json" \
                > "$home/version"
            ;;
        *.go)
            cp "$file" "$home/main.go"
            cp "$programs/shared/journal.go" "$home/journal.go"
            (cd "$home" && { [ -f go.mod ] || go mod init main; } && go get ${packages// /@latest }@latest \
                && go mod tidy && go build -o program . \
                && go list -m -f '{{.Version}}' "$package" > version)
            ;;
        *.java)
            cp "$file" "$home/Main.java"
            {
                echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
                echo '<groupId>main</groupId><artifactId>main</artifactId><version>1</version>'
                echo '<dependencies>'
                for name in $packages; do
                    echo "<dependency><groupId>${name%:*}</groupId><artifactId>${name#*:}</artifactId>"
                    echo '<version>RELEASE</version></dependency>'
                done
                echo '</dependencies></project>'
            } > "$home/pom.xml"
            (cd "$home" && mvn -q -B dependency:copy-dependencies -DoutputDirectory=jars \
                && javac -cp 'jars/*' -d classes Main.java "$programs/shared/Journal.java")
            for name in "$home/jars/${package#*:}"-[0-9]*.jar; do
                name=${name##*/"${package#*:}"-}
                echo "${name%.jar}"
            done > "$home/version"
            ;;
        *.rb) dpkg-query -W -f '${Version}' "$packages" > "$home/version" ;;
    esac
    [ -s "$home/version" ] && touch "$home/installed"
}

# Sets `command` to what runs FILE, installed in HOME.
command_of() {
    case $1 in
        *.py) command=("$2/env/bin/python" "$1") ;;
        *.js) command=(env "NODE_PATH=$2/node_modules" node "$1") ;;
        *.go) command=("$2/program") ;;
        *.java) command=(java -Xmx256m -cp "$2/classes:$2/jars/*" Main) ;;
        *.rb) command=(ruby "$1") ;;
    esac
}

workers=()
# Starts a worker, and again when it ends. Each has a group of processes of its own.
start_worker() {
    # shellcheck disable=SC2016 # that shell expands it
    setsid bash -c 'trap "ended=1" TERM; ended=
        while [ -z "$ended" ]; do
            "$@" work || true
            [ -n "$ended" ] || { echo ended >> "$WORK/restarts"; sleep 1; }
        done' worker "${command[@]}" >> "$WORK/work.log" 2>&1 &
    workers+=("$!")
}

# Stops the workers: they have ten seconds to end by themselves.
stop_workers() {
    local group
    for group in "${workers[@]}"; do kill -- "-$group" 2> "$place/kill.log" || true; done
    for _ in $(seq 100); do
        local left=
        for group in "${workers[@]}"; do
            kill -0 -- "-$group" 2> "$place/kill.log" && left=1
        done
        [ -n "$left" ] || break
        sleep 0.1
    done
    for group in "${workers[@]}"; do
        kill -9 -- "-$group" 2> "$place/kill.log" || true
        wait "$group" 2> "$place/kill.log" || true
    done
    workers=()
}

# shellcheck disable=SC2317 # it is called at the end
stop_all() {
    stop_workers
    clean_up
}
trap stop_all EXIT
trap 'exit 1' INT TERM

# Writes a line of its own into the journal.
mark() { echo "$1 - $(date +%s.%N)" >> "$WORK/journal"; }

# Kills the server, and starts it again a moment later.
kill_and_start() {
    mark "$1"
    kill_server
    sleep 0.5
    start_server_again "${settings[@]}"
    mark UP
}

judge() { python3 "$programs/shared/judge.py" "$kind" "$WORK" "$slots" "$loses" "$@"; }

# Runs one program; sets `result` to a line that begins with `works` or has the reason.
run() {
    local file=$1 home=$2 kind slots loses patience kill_at count waited code=0 main killed=
    kind=$(field "$file" kind other)
    slots=$(field "$file" slots 1)
    loses=$(field "$file" loses 0)
    patience=$(field "$file" patience 30)
    kill_at=$(field "$file" kill 40)
    count=$(field "$file" workers "$([ "$kind" = other ] && echo 0 || echo 1)")
    export WORK=$home/run PORT=$port PYTHONPATH=$programs/shared:$programs PYTHONDONTWRITEBYTECODE=1
    rm -rf "$WORK"
    mkdir -p "$WORK"
    touch "$WORK/journal" "$WORK/acked" "$WORK/restarts"
    read -ra settings <<< "${always[*]} $(field "$file" server '')"
    start_server "${settings[@]}"
    command_of "$file" "$home"
    for _ in $(seq "$count"); do start_worker; done
    timeout -k 5 "$limit" "${command[@]}" main > "$WORK/main.log" 2> "$WORK/main.err" &
    main=$!
    while kill -0 "$main" 2> "$place/kill.log"; do
        if [ -z "$killed" ] && [ "$(wc -l < "$WORK/journal")" -ge "$kill_at" ]; then
            kill_and_start KILL
            killed=1
        fi
        sleep 0.05
    done
    wait "$main" || code=$?
    if [ "$code" = 124 ]; then
        result="main has not ended in $limit s: $(tail -1 "$WORK/main.log")"
    elif [ "$code" != 0 ]; then
        result=$(tail -1 "$WORK/main.log")
        [ -n "$result" ] || result=$(grep -v '^ ' "$WORK/main.err" | tail -1)
    else
        # What is left to do is done. A worker that is not done after a while is started again.
        for ((waited = 0; waited < patience + 30; waited++)); do
            ! judge --complete || break
            if [ "$waited" = "$patience" ] && [ "$kind" = queue ]; then
                stop_workers
                mark STUCK
                for _ in $(seq "$count"); do start_worker; done
            fi
            sleep 1
        done
        if [ "$kind" = queue ] && judge --complete; then
            sleep 2
            kill_and_start END
            sleep 5
        fi
        result=$(judge) || true
        result="$result; $(tail -1 "$WORK/main.log")"
    fi
    stop_workers
    stop_server
    cp "$place/server.log" "$WORK/server.log"
}

main() {
    local file files=() name home title reason table=$place/table.txt failed=0
    if [ $# -gt 0 ]; then
        for name in "$@"; do files+=("$(ls "$programs/$name".*)"); done
    else
        files=("$programs"/*.*)
    fi

    : > "$table"
    for file in "${files[@]}"; do
        name=$(basename "${file%.*}")
        home=$homes/$name
        title=$(head -3 "$file" | sed -n 's/^[#/]* \([^:]*\): .*/\1/p' | head -1)
        # Programs in Go and Java are built, again when they have changed.
        if [ -n "${FRESH:-}" ] || [ ! -f "$home/installed" ] \
            || [ -n "$(find "$file" "$programs/shared" -type f -newer "$home/installed")" ]; then
            mkdir -p "$home"
            if ! install "$file" "$home" > "$home/install.log" 2>&1; then
                echo "$title | - | cannot be installed, see $home/install.log" | tee -a "$table"
                failed=1
                continue
            fi
        fi
        run "$file" "$home"
        case $result in
            works*) ;;
            *)
                reason=$(sed -n "s/^$name # //p" "$known")
                case $program in *redis-server) reason= ;; esac
                if [ -n "$reason" ]; then
                    result="fails as known ($reason): $result"
                else
                    result="FAILS: $result"
                    failed=1
                fi
                ;;
        esac
        echo "$title | $(cat "$home/version") | $result" | tee -a "$table"
    done
    echo
    echo "on $(basename "$program"):"
    column -t -s '|' -o '|' "$table"
    return "$failed"
}

main "$@"

# A server for a suite of tests, on a port and in a directory of its own. Sourced by the scripts that
# run suites, which set `program` (the server), `port` and `place` (a directory for logs) before.
# shellcheck shell=sh disable=SC2154

data=$(mktemp -d)
server=

stop_server() {
    [ -z "$server" ] || kill "$server" 2> "$place/kill.log" || true
    wait 2> "$place/kill.log" || true
    server=
}

# Ends it without a chance to write anything more.
kill_server() {
    kill -9 "$server"
    wait "$server" 2> "$place/kill.log" || true
    server=
}

clean_up() {
    stop_server
    rm -rf "$data"
}
trap clean_up EXIT INT TERM

# Starts it with an empty database, and waits until that is open. Further arguments are settings.
start_server() {
    if redis-cli -p "$port" ping > "$place/ping.log" 2>&1; then
        echo "another server uses port $port" >&2
        exit 1
    fi
    rm -rf "$data/db" "$data/appendonlydir"
    : > "$place/server.log"
    start_server_again "$@"
}

# Starts it with the database that is there.
start_server_again() {
    case $program in
        *redis-server) "$program" --port "$port" --save '' --dir "$data" "$@" \
            >> "$place/server.log" 2>&1 & ;;
        *) "$program" serve --port "$port" --dir "$data/db" "$@" >> "$place/server.log" 2>&1 & ;;
    esac
    server=$!
    for _ in $(seq 300); do
        # It listens before its database is open.
        if answer=$(redis-cli -p "$port" dbsize 2>&1) && case $answer in
            *LOADING* | *refused*) false ;;
        esac then return; fi
        sleep 0.1
    done
    echo "the server does not start:" >&2
    cat "$place/server.log" >&2
    exit 1
}

#!/bin/sh
# Starts a cluster of three NATS servers with JetStream on this machine, for tests and measurements of
# the replicated log.
#
#   scripts/nats-cluster.sh start [DIR]    prints the servers for an address, as 127.0.0.1:P,..
#   scripts/nats-cluster.sh stop [DIR]
#
# Files, logs and process ids are below DIR, by default target/nats, which `stop` removes. PORT is the
# first of nine ports, by default 42220. Every message is synced before its acknowledgement (SYNC=always;
# SYNC=2m is the servers' default). The program is NATS_SERVER, or nats-server of the path, or what
# `go install` brings into target/nats-server (version 2.15; Debian's is too old). Needs Linux.
set -eu

cd "$(dirname "$0")/.."
what=${1:-}
place=${2:-$PWD/target/nats}
port=${PORT:-42220}
version=v2.15.3

program() {
    if [ -n "${NATS_SERVER:-}" ]; then
        echo "$NATS_SERVER"
    elif command -v nats-server > /dev/null; then
        command -v nats-server
    else
        own=$PWD/target/nats-server/nats-server
        if [ ! -x "$own" ]; then
            echo "installing nats-server $version by go" >&2
            command -v go > /dev/null || {
                echo "nats-server is missing: install it, or go, or name it by NATS_SERVER" >&2
                exit 1
            }
            GOBIN=$PWD/target/nats-server go install "github.com/nats-io/nats-server/v2@$version" >&2
        fi
        echo "$own"
    fi
}

start() {
    server=$(program)
    mkdir -p "$place"
    routes="" servers=""
    for node in 0 1 2; do
        routes="$routes nats://127.0.0.1:$((port + 3 + node))"
        servers="$servers,127.0.0.1:$((port + node))"
    done
    for node in 0 1 2; do
        cat > "$place/$node.conf" << CONF
server_name: n$node
listen: 127.0.0.1:$((port + node))
http: 127.0.0.1:$((port + 6 + node))
max_payload: 8MB
jetstream { store_dir: "$place/$node", sync_interval: ${SYNC:-always} }
cluster { name: hyades, listen: 127.0.0.1:$((port + 3 + node)), routes: [$(echo $routes | tr ' ' ',')] }
CONF
        "$server" -c "$place/$node.conf" > "$place/$node.log" 2>&1 &
        echo $! > "$place/$node.pid"
    done
    for _ in $(seq 300); do
        ready=0
        for node in 0 1 2; do
            health=http://127.0.0.1:$((port + 6 + node))/healthz
            if curl -s "$health" 2> /dev/null | grep -q '"status":"ok"'; then ready=$((ready + 1)); fi
        done
        [ "$ready" = 3 ] && { echo "${servers#,}"; return; }
        sleep 0.1
    done
    echo "the servers are not ready after 30 s: see $place/*.log" >&2
    stop
    exit 1
}

stop() {
    for pid in "$place"/*.pid; do
        [ -e "$pid" ] && kill -9 "$(cat "$pid")" 2> /dev/null || true
    done
    rm -rf "$place"
}

case $what in
start) start ;;
stop) stop ;;
*) sed -n '2,/^set/{/^set/!p}' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2 ;;
esac

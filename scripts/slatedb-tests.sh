#!/usr/bin/env bash
# Tests the crate hyades-deuteronomy-slatedb, which is no member of the workspace: over object
# storage in memory, in a directory, and over a service that speaks the protocol of S3.
#
#   scripts/slatedb-tests.sh [s3://bucket]
#
# With a URL, the service and the credentials are those of the environment (AWS_ENDPOINT,
# AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION), and the tests leave their objects there.
# Without, moto's server is started: pip install 'moto[server]'.
set -euo pipefail
cd "$(dirname "$0")/../crates/deuteronomy-slatedb"

cargo test --release
cargo clippy --release --all-targets --features aws -- -D warnings

if [ $# -gt 0 ]; then
    export HYADES_SLATEDB_URL=$1
else
    if ! command -v moto_server >/dev/null; then
        echo "moto_server is missing: pip install 'moto[server]', or name a bucket" >&2
        exit 1
    fi
    port=${PORT:-5599} log=$(mktemp)
    moto_server -H 127.0.0.1 -p "$port" >"$log" 2>&1 &
    server=$!
    trap 'kill "$server" 2>/dev/null || true; rm -f "$log"' EXIT
    export AWS_ENDPOINT=http://127.0.0.1:$port AWS_ALLOW_HTTP=true AWS_REGION=us-east-1
    export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test
    export HYADES_SLATEDB_URL=s3://hyades
    for _ in $(seq 100); do
        if curl -fsS -X PUT "$AWS_ENDPOINT/hyades" >/dev/null 2>&1; then break; fi
        if ! kill -0 "$server"; then cat "$log" >&2; exit 1; fi
        sleep 0.2
    done
fi
cargo test --release --features aws --test s3 -- --test-threads=2

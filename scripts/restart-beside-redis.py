#!/usr/bin/env python3
"""Measures a restart after SIGKILL, of `hyades serve` and of redis-server beside it.

  scripts/restart-beside-redis.py [--program target/release/hyades] [--keys 10000000]
                                  [--rounds 3] [--dir DIR] [--without-redis]

Loads so many small keys (20 bytes, with values of 10), kills the server with SIGKILL, starts it again
on the same directory, and takes the time from the start of the process until PING is answered and
no LOADING any more. Each server is loaded once, and killed once a round. Servers and load run on all
processors of this machine. Files are below --dir, by default the temporary directory.
"""

import argparse
import importlib.util
import pathlib
import socket
import statistics
import sys
import time

spec = importlib.util.spec_from_file_location(
    "beside_redis", pathlib.Path(__file__).with_name("beside-redis.py")
)
beside_redis = importlib.util.module_from_spec(spec)
spec.loader.exec_module(beside_redis)

# Keys that one write to the socket has, each a command of its own.
BATCH = 2_000
VALUE = b"0123456789"


def command(*words):
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def read_lines(connection, count):
    """Reads so many replies of one line each."""
    left = count
    while left > 0:
        bytes_ = connection.recv(1 << 16)
        if not bytes_ or b"-" in bytes_:
            raise SystemExit(f"the load was refused: {bytes_[:200]!r}")
        left -= bytes_.count(b"\n")


def fill(port, keys):
    with socket.create_connection(("127.0.0.1", port), timeout=600) as of:
        for first in range(0, keys, BATCH):
            some = range(first, min(first + BATCH, keys))
            of.sendall(b"".join(command(b"SET", b"key:%016d" % n, VALUE) for n in some))
            read_lines(of, len(some))


def is_open(port):
    """Whether it serves: PING is answered, and a command on data as well. Hyades answers PING with
    PONG while it recovers, so a key is asked for, too."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=600) as of:
            of.sendall(b"PING\r\nEXISTS key:0000000000000000\r\n")
            said = b""
            while said.count(b"\n") < 2:
                more = of.recv(1024)
                if not more:
                    return False
                said += more
            return said == b"+PONG\r\n:1\r\n"
    except OSError:
        return False


def restart(server):
    """Kills it and starts it again: seconds until it serves."""
    server.kill()
    began = time.monotonic()
    server.start()
    while not is_open(server.port):
        if server.process.poll() is not None:
            raise SystemExit(f"{server.words[0]} has ended with {server.process.returncode}")
        time.sleep(0.002)
    return time.monotonic() - began


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--program", default="target/release/hyades")
    options.add_argument("--keys", type=int, default=10_000_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--dir")
    options.add_argument("--without-redis", action="store_true")
    options = options.parse_args()
    programs = {"hyades": [options.program, "serve"]}
    if not options.without_redis:
        programs["redis, append-only file"] = beside_redis.redis("everysec")
    print(f"{options.keys:,} keys, {options.rounds} restarts each, seconds until it serves")
    for name, words in programs.items():
        with beside_redis.Server(words, options.dir) as server:
            began = time.monotonic()
            fill(server.port, options.keys)
            loaded = time.monotonic() - began
            # What is not synced yet, under everysec.
            time.sleep(2)
            times = [restart(server) for _ in range(options.rounds)]
            count = beside_redis.ask(server.port, "DBSIZE\r\n").strip(b":\r\n")
            if int(count) != options.keys:
                raise SystemExit(f"{name}: {int(count):,} keys are there after the restart")
            shown = ", ".join(f"{of:.2f}" for of in times)
            print(f"  {name:24} median {statistics.median(times):8.2f}   ({shown}; loaded in {loaded:.0f})")


if __name__ == "__main__":
    beside_redis.ended_by_signals(main)
    sys.exit(0)

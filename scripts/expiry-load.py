#!/usr/bin/env python3
"""Measures what expiring keys cost `hyades serve`, and how soon they are gone.

  scripts/expiry-load.py [--program target/release/hyades] [--rounds 5] [--seconds 5] [--dir DIR]

It prints, with the medians of the rounds:

- p50 and p99 of GET, by turns beside SETs of keys that expire half a second later, and beside the same
  SETs of keys that do not expire in the time of the measurement, and the ratio;
- how long after its deadline the event `expired` of each key arrives, beside a million keys that expire
  later, half of the keys being due at the same moment of each second;
- after SETs of keys that live for half a second have stopped: when `used_memory` is back.

Needs redis-benchmark (Debian: redis-tools). Files are below --dir, by default the temporary directory.
"""

import argparse
import importlib.util
import os
import socket
import statistics
import sys
import threading
import time

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "beside-redis.py")
spec = importlib.util.spec_from_file_location("beside_redis", path)
beside_redis = importlib.util.module_from_spec(spec)
spec.loader.exec_module(beside_redis)
Server, load, result = beside_redis.Server, beside_redis.load, beside_redis.result

# Commands that a writer sends at once.
BATCH = 200
LATER_KEYS = 1_000_000
HOUR_MS = 3_600_000


def connect(port):
    of = socket.create_connection(("127.0.0.1", port), timeout=60)
    of.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return of


def info(port, *names):
    with connect(port) as of:
        of.sendall(b"INFO\r\n")
        lines = of.makefile("rb")
        text = lines.read(int(lines.readline()[1:])).decode()
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    return [float(fields[name]) for name in names]


def request(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Writer:
    """Sends batches of commands at a rate, as far as the server takes them, until it is stopped."""

    def __init__(self, port, rate, batches):
        self.of = connect(port)
        self.rate = rate
        self.batches = batches
        self.sent = 0
        self.ends = False
        self.threads = [threading.Thread(target=run) for run in (self.write, self.read)]

    def __enter__(self):
        self.began = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.threads[0].join()
        self.took = time.monotonic() - self.began
        self.of.shutdown(socket.SHUT_WR)
        self.threads[1].join()
        self.of.close()

    def write(self):
        number = 0
        while not self.ends:
            due = self.began + self.sent / self.rate
            time.sleep(max(0, due - time.monotonic()))
            batch = self.batches
            self.of.sendall(batch(number) if callable(batch) else batch[number % len(batch)])
            number += 1
            self.sent += BATCH

    def read(self):
        while self.of.recv(1 << 16):
            pass


def sets(keys, ttl_ms):
    """Batches that set so many keys, one after the other."""
    return [
        b"".join(request("SET", f"v:{at}", "x" * 16, "PX", ttl_ms) for at in range(n, n + BATCH))
        for n in range(0, keys, BATCH)
    ]


def gets(server, rate, ttl_ms, seconds):
    """p50 and p99 of GET beside SETs, the rate of those, and that of expired keys."""
    # Each key is set again when it has expired: as many keys as are set in a second.
    with Writer(server.port, rate, sets(rate, ttl_ms)) as writer:
        time.sleep(1.5)
        probe = result(load(server.port, "get", 8, 2_000))[0]
        before, began = info(server.port, "expired_keys")[0], time.monotonic()
        _, p50, p99 = result(load(server.port, "get", 8, max(int(probe * seconds), 1_000)))
        expired = (info(server.port, "expired_keys")[0] - before) / (time.monotonic() - began)
    return p50, p99, writer.sent / writer.took, expired


def measure_gets(options):
    found = {500: [], HOUR_MS: []}
    for _ in range(options.rounds):
        for ttl_ms, rows in found.items():
            with Server([options.program, "serve"], options.dir) as server:
                result(load(server.port, "set", 50, 100_000))
                rows.append(gets(server, options.rate, ttl_ms, options.seconds))
    median = lambda rows: [statistics.median(column) for column in zip(*rows)]
    for ttl_ms, rows in found.items():
        p50, p99, rate, expired = median(rows)
        print(
            f"GET, 8 clients, beside {rate:,.0f} SET/s with PX {ttl_ms}: p50 {p50:.3f} ms, "
            f"p99 {p99:.3f} ms; {expired:,.0f} keys expired a second"
        )
    pairs = zip(found[500], found[HOUR_MS])
    ratios = [expiring[1] / kept[1] for expiring, kept in pairs]
    print(f"p99 with expiry to that without: median {statistics.median(ratios):.2f}", flush=True)


def measure_events(options):
    with Server([options.program, "serve"], options.dir) as server:
        with connect(server.port) as of:
            lines = of.makefile("rb")
            for n in range(0, LATER_KEYS, 1_000):
                of.sendall(b"".join(request("SET", f"l:{at}", "x", "PX", HOUR_MS) for at in range(n, n + 1_000)))
                for _ in range(1_000):
                    assert lines.readline() == b"+OK\r\n"
            of.sendall(request("CONFIG", "SET", "notify-keyspace-events", "Ex"))
            assert lines.readline() == b"+OK\r\n"
        late = []

        def listen(of):
            lines = of.makefile("rb")
            try:
                for line in lines:
                    if line.startswith(b"e:"):
                        late.append(time.time() * 1e3 - int(line.split(b":")[1]))
            except OSError:
                pass

        of = connect(server.port)
        of.sendall(request("SUBSCRIBE", "__keyevent@0__:expired"))
        listener = threading.Thread(target=listen, args=(of,))
        listener.start()

        def batch(number):
            now = int(time.time() * 1e3)
            # Half of them at their own times, half at the next whole second.
            dues = [now + 500 if at % 2 else (now // 1_000 + 2) * 1_000 for at in range(BATCH)]
            return b"".join(
                request("SET", f"e:{due}:{number}:{at}", "x", "PXAT", due) for at, due in enumerate(dues)
            )

        with Writer(server.port, options.event_rate, batch) as writer:
            time.sleep(2 * options.seconds)
        time.sleep(4)
        of.shutdown(socket.SHUT_RDWR)
        listener.join()
        late.sort()
        at = lambda share: late[int((len(late) - 1) * share)]
        print(
            f"events `expired` beside {LATER_KEYS:,} keys that expire later: {len(late):,} of "
            f"{writer.sent:,}, at {writer.sent / writer.took:,.0f}/s; ms after the deadline: p50 {at(0.5):.0f}, "
            f"p99 {at(0.99):.0f}, longest {late[-1]:.0f}",
            flush=True,
        )


def measure_memory(options):
    for rate in options.memory_rate:
        times = []
        for _ in range(options.rounds):
            with Server([options.program, "serve"], options.dir) as server:
                result(load(server.port, "set", 50, 100_000))
                time.sleep(1)
                before = info(server.port, "used_memory")[0]
                with Writer(server.port, rate, sets(50 * rate, 500)) as writer:
                    time.sleep(options.seconds)
                began, most = time.monotonic(), info(server.port, "used_memory")[0]
                # All that they have added, but for a twentieth of it and 1 MiB.
                bound = before + max((most - before) / 20, 1 << 20)
                while info(server.port, "used_memory")[0] > bound:
                    if time.monotonic() - began > 60:
                        raise SystemExit("used_memory does not come back")
                    time.sleep(0.02)
                times.append(time.monotonic() - began)
        print(
            f"used_memory is back {statistics.median(times):.2f} s (at most {max(times):.2f} s) after "
            f"{writer.sent / writer.took:,.0f} SET/s with PX 500 have stopped; it was {(most - before) / 1e6:.0f} MB more",
            flush=True,
        )


def run():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--program", default="target/release/hyades")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--rate", type=int, default=100_000)
    options.add_argument("--event-rate", type=int, default=10_000)
    options.add_argument("--memory-rate", type=int, nargs="+", default=[20_000, 100_000])
    options.add_argument("--dir")
    options.add_argument("--part", choices=["gets", "events", "memory"])
    options = options.parse_args()
    parts = {"gets": measure_gets, "events": measure_events, "memory": measure_memory}
    for name, part in parts.items():
        if options.part in (None, name):
            part(options)


if __name__ == "__main__":
    beside_redis.ended_by_signals(run)
    sys.exit(0)

#!/usr/bin/env python3
"""Measures `hyades serve` beside redis-server: rounds in turn, medians, ratios.

  scripts/beside-redis.py [--program target/release/hyades] [--rounds 7] [--seconds 2] [--dir DIR]

Needs redis-server and redis-benchmark (Debian: redis-server, redis-tools). The servers, and the load,
run on all processors of this machine. Files are below --dir, by default the temporary directory:
give a directory of the disk that is meant.
"""

import argparse
import csv
import io
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

KEYS = 100_000
VALUE_BYTES = 64

# Name, command, clients, what runs beside it.
CASES = [
    ("SET, 1 client", "set", 1, None),
    ("SET, 50 clients", "set", 50, None),
    ("GET, 50 clients", "get", 50, None),
    ("GET, 8 clients, beside 8 of SET", "get", 8, ("set", 8)),
]


def redis(sync):
    return ["redis-server", "--appendonly", "yes", "--appendfsync", sync, "--save", ""]


def free_port():
    with socket.socket() as of:
        of.bind(("127.0.0.1", 0))
        return of.getsockname()[1]


def ask(port, text):
    with socket.create_connection(("127.0.0.1", port), timeout=5) as of:
        of.sendall(text.encode())
        return of.recv(1024)


class Server:
    """A server that runs on a directory of its own."""

    def __init__(self, words, place):
        self.port = free_port()
        self.dir = tempfile.mkdtemp(dir=place)
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.dir]
        self.process = subprocess.Popen(
            words + place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(2_000):
            try:
                if ask(self.port, "EXISTS a\r\n").startswith(b":"):
                    return
            except OSError:
                pass
            time.sleep(0.005)
        raise SystemExit(f"{words[0]} does not start")

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir)


def load(port, command, clients, count):
    words = ["redis-benchmark", "-p", str(port), "-t", command, "-c", str(clients)]
    words += ["-n", str(count), "-r", str(KEYS), "-d", str(VALUE_BYTES), "--csv"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def result(process):
    row = next(csv.DictReader(io.StringIO(process.communicate()[0])))
    return float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"])


def measure(server, command, clients, beside, seconds):
    """Runs a load for about these seconds: rate, p50 and p99 in milliseconds."""
    # More than it can do; stopped when the load that counts has ended.
    other = load(server.port, *beside, 10**9) if beside else None
    try:
        rate = result(load(server.port, command, clients, 200 * clients))[0]
        count = max(int(rate * seconds), 100 * clients)
        return result(load(server.port, command, clients, count))
    finally:
        if other:
            other.kill()
            other.communicate()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--program", default="target/release/hyades")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=2)
    options.add_argument("--dir")
    options = options.parse_args()
    programs = {
        "hyades": [options.program, "serve"],
        "redis always": redis("always"),
        "redis everysec": redis("everysec"),
    }
    print(f"medians of {options.rounds} rounds in turn; p50 and p99 in milliseconds")
    for name, command, clients, beside in CASES:
        found = {program: [] for program in programs}
        for _ in range(options.rounds):
            for program, words in programs.items():
                server = Server(words, options.dir)
                try:
                    if command == "get":
                        result(load(server.port, "set", 50, 2 * KEYS))
                    found[program].append(
                        measure(server, command, clients, beside, options.seconds)
                    )
                finally:
                    server.stop()
        print(name)
        medians = {of: [statistics.median(part) for part in zip(*rows)] for of, rows in found.items()}
        own = medians["hyades"]
        for program, (rate, half, most) in medians.items():
            line = f"  {program:16}{rate:12,.0f}/s   p50 {half:8.3f}   p99 {most:8.3f}"
            if program != "hyades":
                tail = own[2] / most if most else 0
                line += f"   hyades: {own[0] / rate:6.2f} of the rate, {tail:6.2f} of p99"
            print(line)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Measures `hyades serve` beside redis-server: rounds in turn, medians, ratios.

  scripts/beside-redis.py [--program target/release/hyades] [--before PROGRAM] [--rounds 7] [--seconds 2]
                          [--dir DIR | --sync-us MICROSECONDS[,JITTER][,shared]]

Needs redis-server and redis-benchmark (Debian: redis-server, redis-tools), and for transfers a load
generator of this repository, which is the same for all servers:

  cargo build --release -p hyades-server --example redis_transfers

The servers, and the load, run on all processors of this machine. Files are below --dir, by default the
temporary directory: give a directory of the disk that is meant. With --sync-us they are in memory, on a
file system whose syncs take as long (scripts/slow-sync.c, by FUSE; Debian: fuse3, libfuse3-dev, pkg-config).
When it is interrupted it ends the servers that it has started.
"""

import argparse
import csv
import io
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

KEYS = 100_000
ACCOUNTS = 10_000
VALUE_BYTES = 64

# Name, command, clients, what runs beside it. The command "transfer" is MULTI, DECRBY, INCRBY, EXEC;
# "script" is a transfer as an EVAL of five calls.
CASES = [
    ("SET, 1 client", "set", 1, None),
    ("SET, 50 clients", "set", 50, None),
    ("GET, 50 clients", "get", 50, None),
    ("GET, 8 clients, beside 8 of SET", "get", 8, ("set", 8)),
    ("MULTI transfer, 1 client", "transfer", 1, None),
    ("MULTI transfer, 50 clients", "transfer", 50, None),
    ("EVAL transfer, 1 client", "script", 1, None),
    ("EVAL transfer, 50 clients", "script", 50, None),
]
TRANSFERS = ("transfer", "script")


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
    """A server that runs on a directory of its own, and is killed at the end of `with`."""

    def __init__(self, words, place):
        self.words = words
        self.port = free_port()
        self.dir = tempfile.mkdtemp(dir=place)
        self.process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        for _ in range(2_000):
            try:
                if ask(self.port, "EXISTS a\r\n").startswith(b":"):
                    return self
            except OSError:
                pass
            time.sleep(0.005)
        self.stop()
        raise SystemExit(f"{self.words[0]} does not start")

    def __exit__(self, *_):
        self.stop()

    def start(self):
        place = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", self.dir]
        # In a group of its own: a Ctrl-C is for this script, which ends the server itself.
        self.process = subprocess.Popen(
            self.words + place,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()

    def stop(self):
        self.kill()
        shutil.rmtree(self.dir, ignore_errors=True)


class SlowSync:
    """A file system whose syncs take as long as asked for, mounted until the end of `with`."""

    def __init__(self, syncs):
        self.syncs = syncs
        self.dir = tempfile.mkdtemp(dir="/dev/shm")
        self.place = os.path.join(self.dir, "place")

    def __enter__(self):
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "slow-sync.c")
        program, files = os.path.join(self.dir, "slow-sync"), os.path.join(self.dir, "files")
        try:
            flags = ["pkg-config", "fuse3", "--cflags", "--libs"]
            flags = subprocess.run(flags, capture_output=True, text=True, check=True).stdout.split()
            subprocess.run(["cc", "-O2", "-o", program, source, *flags], check=True)
            os.mkdir(files)
            os.mkdir(self.place)
            subprocess.run([program, self.syncs, files, self.place], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise SystemExit(f"a file system by FUSE cannot be made here: {error}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if os.path.ismount(self.place):
            subprocess.run(["fusermount3", "-q", "-z", "-u", self.place])
        if not os.path.ismount(self.place):
            shutil.rmtree(self.dir, ignore_errors=True)

    def sync_ms(self):
        """What a write of a page and its sync take: the median of 50."""
        times = []
        with open(os.path.join(self.place, "probe"), "wb", buffering=0) as probe:
            for _ in range(50):
                began = time.perf_counter()
                probe.write(bytes(4096))
                os.fdatasync(probe.fileno())
                times.append(1_000 * (time.perf_counter() - began))
        return statistics.median(times)


def ended_by_signals(run):
    """Runs it; a signal that ends this script ends its servers first."""

    def end(number, _):
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        run()
    except KeyboardInterrupt:
        sys.exit(130)


def load(port, command, clients, count):
    words = ["redis-benchmark", "-p", str(port), "-t", command, "-c", str(clients)]
    words += ["-n", str(count), "-r", str(KEYS), "-d", str(VALUE_BYTES), "--csv"]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def result(process):
    row = next(csv.DictReader(io.StringIO(process.communicate()[0])))
    return float(row["rps"]), float(row["p50_latency_ms"]), float(row["p99_latency_ms"])


def transfers(program, port, clients, seconds, command):
    """Runs transfers for these seconds: rate, p50 and p99 in milliseconds."""
    words = [program, str(port), str(clients), str(seconds), str(ACCOUNTS)]
    words += ["script"] if command == "script" else []
    found = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    return tuple(float(part) for part in found.split(","))


def balance(port):
    """The sum of all accounts, which no transfer changes."""
    words = ["MGET"] + [f"account:{n}" for n in range(ACCOUNTS)]
    request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as of:
        of.sendall(request.encode())
        lines = of.makefile("rb")
        sum_ = 0
        for _ in range(int(lines.readline()[1:])):
            if int(lines.readline()[1:]) >= 0:
                sum_ += int(lines.readline())
        return sum_


def measure(server, command, clients, beside, seconds, program):
    """Runs a load for about these seconds: rate, p50 and p99 in milliseconds."""
    if command in TRANSFERS:
        transfers(program, server.port, clients, seconds / 10, command)
        found = transfers(program, server.port, clients, seconds, command)
        if balance(server.port) != 0:
            raise SystemExit(f"{server.words[0]}: a transfer has lost something")
        return found
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
    options.add_argument("--before", help="another build, measured in the same rounds")
    place = options.add_mutually_exclusive_group()
    place.add_argument("--dir")
    place.add_argument("--sync-us", help="the time of a sync, on a file system made for it")
    options.add_argument("--transfers", default="target/release/examples/redis_transfers")
    options.add_argument("--case", action="append", help="a part of the names of cases to run")
    options = options.parse_args()
    if options.sync_us is None:
        run(options)
        return
    with SlowSync(options.sync_us) as slow:
        options.dir = slow.place
        print(f"a write and a sync take {slow.sync_ms():.2f} ms")
        run(options)


def run(options):
    programs = {"hyades": [options.program, "serve"]}
    if options.before:
        programs["hyades before"] = [options.before, "serve"]
    programs |= {"redis always": redis("always"), "redis everysec": redis("everysec")}
    print(f"medians of {options.rounds} rounds in turn; p50 and p99 in milliseconds")
    cases = [of for of in CASES if not options.case or any(part in of[0] for part in options.case)]
    if any(of[1] in TRANSFERS for of in cases) and not os.path.exists(options.transfers):
        raise SystemExit("build redis_transfers: cargo build --release -p hyades-server --example redis_transfers")
    for name, command, clients, beside in cases:
        found = {program: [] for program in programs}
        for turn in range(options.rounds):
            # In turn from either end: what comes first in a round is slower.
            for program, words in list(programs.items())[:: 1 if turn % 2 == 0 else -1]:
                with Server(words, options.dir) as server:
                    if command == "get":
                        result(load(server.port, "set", 50, 2 * KEYS))
                    how = (command, clients, beside, options.seconds, options.transfers)
                    found[program].append(measure(server, *how))
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
    ended_by_signals(main)

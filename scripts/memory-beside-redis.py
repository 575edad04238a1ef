#!/usr/bin/env python3
"""Measures the memory of `hyades serve` beside redis-server: bytes for each key or element.

  scripts/memory-beside-redis.py [--program target/release/hyades] [--count 1000000] [--dir DIR]
                                 [--case NAME]..

Needs redis-server (Debian: redis-server). Each case begins with an empty server, stores `count` keys,
or elements of one collection, and as many again. Two figures: the resident memory above that of the
empty server, by the first `count`; and what the second half added, by `count`, which leaves out what
a server takes once, such as the buffers of a log.
"""

import argparse
import random
import shutil
import socket
import subprocess
import tempfile
import time

# Commands in flight at a time.
PIPELINED = 500


def key(number):
    return b"key:%012d" % number


def member(number):
    return b"member:%09d" % number


def value(number):
    return b"value:%010d" % number


# Name, and the command for the element of this number; `scores` are numbers in no order.
CASES = [
    ("keys", lambda n, scores: (b"SET", key(n), value(n))),
    ("hash", lambda n, scores: (b"HSET", b"hash", member(n), value(n))),
    ("set", lambda n, scores: (b"SADD", b"set", member(n))),
    ("zset", lambda n, scores: (b"ZADD", b"zset", b"%d" % n, member(n))),
    ("zset-random", lambda n, scores: (b"ZADD", b"zset", b"%d" % scores[n], member(n))),
    ("list", lambda n, scores: (b"RPUSH", b"list", value(n))),
]


def free_port():
    with socket.socket() as of:
        of.bind(("127.0.0.1", 0))
        return of.getsockname()[1]


def encoded(words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Server:
    """A server that runs on a directory of its own, and a connection to it."""

    def __init__(self, words, place):
        port = free_port()
        self.dir = tempfile.mkdtemp(dir=place)
        words = words + ["--bind", "127.0.0.1", "--port", str(port), "--dir", self.dir]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(words, stdout=quiet, stderr=quiet)
        for _ in range(2_000):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                self.replies = self.socket.makefile("rb")
                if self.run([(b"EXISTS", b"a")]) == [b":0"]:
                    return
            except OSError:
                pass
            time.sleep(0.005)
        raise SystemExit(f"{words[0]} does not start")

    def run(self, commands):
        """Runs commands whose replies have a line each."""
        self.socket.sendall(b"".join(encoded(words) for words in commands))
        return [self.replies.readline().rstrip() for _ in commands]

    def store(self, command, numbers, scores):
        for begin in range(numbers.start, numbers.stop, PIPELINED):
            some = range(begin, min(begin + PIPELINED, numbers.stop))
            for reply in self.run([command(number, scores) for number in some]):
                if not reply.startswith((b"+OK", b":")):
                    raise SystemExit(f"a command failed: {reply.decode()}")

    def resident(self):
        """Resident bytes, once they have settled."""
        last = 0
        for _ in range(20):
            with open(f"/proc/{self.process.pid}/status") as status:
                line = next(line for line in status if line.startswith("VmRSS"))
            now = int(line.split()[1]) * 1024
            if abs(now - last) < 64 << 10:
                break
            last = now
            time.sleep(0.5)
        return now

    def stop(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.dir)


def measure(words, place, command, count, scores):
    server = Server(words, place)
    try:
        empty = server.resident()
        server.store(command, range(count), scores)
        half = server.resident()
        server.store(command, range(count, 2 * count), scores)
        return (half - empty) / count, (server.resident() - half) / count
    finally:
        server.stop()


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--program", default="target/release/hyades")
    options.add_argument("--count", type=int, default=1_000_000)
    options.add_argument("--dir")
    options.add_argument("--case", action="append", choices=[name for name, _ in CASES])
    options = options.parse_args()
    scores = list(range(2 * options.count))
    random.Random(1).shuffle(scores)
    programs = {
        "hyades": [options.program, "serve"],
        "redis": ["redis-server", "--save", "", "--appendonly", "no"],
    }
    print(f"bytes of an element: the first {options.count:,} above an empty server; as many more")
    for name, command in CASES:
        if options.case and name not in options.case:
            continue
        found = {
            program: measure(words, options.dir, command, options.count, scores)
            for program, words in programs.items()
        }
        line = f"  {name:12}"
        for program, (first, more) in found.items():
            line += f"   {program} {first:7.1f} {more:7.1f}"
        ratios = [own / other for own, other in zip(found["hyades"], found["redis"])]
        print(line + f"   hyades: {ratios[0]:5.2f} {ratios[1]:5.2f} of redis")


if __name__ == "__main__":
    main()

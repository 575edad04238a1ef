#!/usr/bin/env python3
"""Fills redis-server with keys of all types, imports its files, and compares every key.

    scripts/import-beside-redis.py [--keys N] [--program target/release/hyades] [--append-only]

Prints how many keys a second the import takes, beside the time in which redis-server loads the same
file, and exits with 1 if a key differs. Needs redis-server.
"""

import argparse
import os
import socket
import subprocess
import tempfile
import time


class Client:
    """A connection; commands are sent in pipelines."""

    def __init__(self, port):
        deadline = time.time() + 600
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", port))
                self.file = self.socket.makefile("rb")
                if self.ask(["PING"])[0] == b"PONG" and not self.ask(["DBSIZE"])[0].startswith(
                    b"LOADING"
                ):
                    return
            except (OSError, AttributeError):
                pass
            if time.time() > deadline:
                raise SystemExit(f"no server at port {port}")
            time.sleep(0.05)

    def reply(self):
        line = self.file.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            length = int(rest)
            return None if length < 0 else self.file.read(length + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest

    def ask(self, *commands):
        out = bytearray()
        for words in commands:
            out += b"*%d\r\n" % len(words)
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                out += b"$%d\r\n%s\r\n" % (len(word), word)
        self.socket.sendall(out)
        return [self.reply() for _ in commands]


def command(number):
    """The command that makes a key."""
    kind, key = number % 10, f"key:{number}"
    value = f"value-{number}"
    if kind < 5:
        return ["SET", key, value] + (["PX", 9_000_000_000] if kind == 0 else [])
    if kind == 5:
        return ["RPUSH", key, value, number, "x" * (number % 50)]
    if kind == 6:
        return ["SADD", key, number, number + 1, value]
    if kind == 7:
        return ["HSET", key, "name", value, "number", number]
    if kind == 8:
        return ["ZADD", key, number, "a", number / 8, value]
    return ["SADD", key] + list(range(number % 40 + 1))


def fill(client, keys):
    for begin in range(0, keys, 1000):
        client.ask(*[command(number) for number in range(begin, min(begin + 1000, keys))])
    # Some that are large.
    for at in range(0, 20_000, 500):
        client.ask(*[["RPUSH", "large:list", f"element {n}"] for n in range(at, at + 500)])
        client.ask(*[["ZADD", "large:zset", n, f"member {n}"] for n in range(at, at + 500)])
        client.ask(*[["HSET", "large:hash", f"field {n}", n] for n in range(at, at + 500)])
    client.ask(["SET", "large:string", "x" * 3_000_000], ["SELECT", 3], ["SET", "other", 1], ["SELECT", 0])


READS = {
    b"string": lambda key: ["GET", key],
    b"list": lambda key: ["LRANGE", key, 0, -1],
    b"set": lambda key: ["SMEMBERS", key],
    b"hash": lambda key: ["HGETALL", key],
    b"zset": lambda key: ["ZRANGE", key, 0, -1, "WITHSCORES"],
}


def canonical(kind, value):
    if kind == b"set":
        return sorted(value)
    if kind == b"hash":
        return sorted(zip(value[::2], value[1::2]))
    return value


def contents(client, keys):
    kinds = client.ask(*[["TYPE", key] for key in keys])
    values = client.ask(*[READS.get(kind, lambda key: ["TYPE", key])(key) for key, kind in zip(keys, kinds)])
    expiries = client.ask(*[["PEXPIRETIME", key] for key in keys])
    return [(k, canonical(k, v), e) for k, v, e in zip(kinds, values, expiries)]


def differences(ours, theirs):
    sizes = [client.ask(["DBSIZE"])[0] for client in (ours, theirs)]
    if sizes[0] != sizes[1]:
        yield f"{sizes[0]} keys, and {sizes[1]} in redis-server"
    cursor = b"0"
    while True:
        cursor, keys = theirs.ask(["SCAN", cursor, "COUNT", 1000])[0]
        if keys:
            for key, a, b in zip(keys, contents(ours, keys), contents(theirs, keys)):
                if a != b:
                    yield f"{key}: {str(a)[:200]}, and {str(b)[:200]} in redis-server"
        if cursor == b"0":
            return


def redis(directory, port, append_only):
    settings = ["--port", str(port), "--dir", directory, "--save", "", "--appendonly", append_only]
    return subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--program", default="target/release/hyades")
    parser.add_argument("--append-only", action="store_true", help="append-only files, not an RDB file")
    parser.add_argument("--port", type=int, default=7431)
    options = parser.parse_args()
    append_only = "yes" if options.append_only else "no"
    with tempfile.TemporaryDirectory() as root:
        server = redis(root, options.port, append_only)
        client = Client(options.port)
        print(f"filling redis-server with {options.keys:,} keys", flush=True)
        fill(client, options.keys)
        if not options.append_only:
            client.ask(["SAVE"])
        server.terminate()
        server.wait()
        began = time.time()
        server = redis(root, options.port, append_only)
        theirs = Client(options.port)
        loading = time.time() - began
        source = os.path.join(root, "appendonlydir" if options.append_only else "dump.rdb")
        directory = os.path.join(root, "hyades")
        began = time.time()
        subprocess.run([options.program, "import", source, "--dir", directory], check=True)
        seconds = time.time() - began
        print(f"imported {options.keys / seconds:,.0f} keys a second, in {seconds:.1f} s; redis-server "
              f"loads them in {loading:.1f} s", flush=True)
        port = options.port + 1
        ours_server = subprocess.Popen(
            [options.program, "serve", "--dir", directory, "--port", str(port), "--metrics-port", "0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        found = []
        try:
            for difference in differences(Client(port), theirs):
                found.append(difference)
                if len(found) > 20:
                    break
        finally:
            for process in (ours_server, server):
                process.terminate()
                process.wait()
    for difference in found:
        print(difference)
    print("all keys are equal" if not found else f"{len(found)} differences")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Follows a redis-server under writes with REPLICAOF, kills the follower again and again, cuts over.

    scripts/replicaof-beside-redis.py [--keys N] [--kills N] [--program target/release/hyades]

Clients write to redis-server, and wait with WAIT 1 until the follower has acknowledged. Each kill is
SIGKILL; the follower is started again without its primary first, and everything that was
acknowledged has to be there. In one round the primary has lost what follows, so that all is sent
again. At the end REPLICAOF NO ONE, and all keys are compared. Exits with 1 if something is lost or
differs. Needs redis-server.
"""

import argparse
import atexit
import importlib.util
import os
import random
import signal
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = importlib.util.spec_from_file_location("beside", os.path.join(HERE, "import-beside-redis.py"))
beside = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(beside)

NOWHERE = ("127.0.0.1", 1)


class Follower:
    """The server that imports."""

    def __init__(self, options, root, primary):
        self.options, self.primary = options, primary
        self.directory = os.path.join(root, "hyades")
        self.log = open(os.path.join(root, "hyades.log"), "ab")
        self.port = options.port + 1
        self.process = None

    def start(self, primary=None):
        flags = ["--replicaof", f"{primary[0]} {primary[1]}"] if primary else []
        self.process = subprocess.Popen(
            [self.options.program, "serve", "--dir", self.directory, "--port", str(self.port),
             "--metrics-port", "0", *flags],
            stdout=subprocess.DEVNULL, stderr=self.log)
        atexit.register(self.process.kill)
        deadline = time.time() + 60
        while True:
            try:
                return beside.Client(self.port) if not primary else Client(self.port)
            except OSError:
                if time.time() > deadline:
                    raise
                time.sleep(0.02)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Client(beside.Client):
    """One that does not wait until values are loaded."""

    def __init__(self, port):
        import socket

        self.socket = socket.create_connection(("127.0.0.1", port))
        self.file = self.socket.makefile("rb")


def info(client, name):
    text = client.ask(["INFO", "everything"])[0].decode()
    for line in text.splitlines():
        if line.startswith(name + ":"):
            return line.split(":", 1)[1]
    return None


class Writer(threading.Thread):
    """Writes rounds of commands, and keeps the last round that the follower has acknowledged."""

    def __init__(self, number, port):
        super().__init__(daemon=True)
        self.number, self.client = number, beside.Client(port)
        self.round, self.acknowledged, self.waits = 0, 0, []
        self.commands = 0
        self.stopping = self.pausing = False
        self.waiting = True

    def commands_of(self, n):
        w, random_ = self.number, random.Random(n * 1_000 + self.number)
        slot = random_.randrange(400)
        yield ["SET", f"w{w}:last", n]
        yield ["INCRBY", f"w{w}:sum", n]
        yield ["RPUSH", f"w{w}:list:{slot % 40}", f"element {n}", n]
        yield ["LTRIM", f"w{w}:list:{slot % 40}", -50, -1]
        yield ["HSET", f"w{w}:hash:{slot % 40}", f"field {slot}", n]
        yield ["ZADD", f"w{w}:zset:{slot % 40}", n / 8, f"member {slot}"]
        yield ["SADD", f"w{w}:set:{slot % 40}", slot, n]
        yield ["SPOP", f"w{w}:set:{slot % 40}"]
        yield ["SET", f"w{w}:short:{slot}", n, "PX", random_.choice([5, 50, 500, 9_000_000])]
        yield ["XADD", f"w{w}:stream", "MAXLEN", "~", 200, "*", "n", n]
        yield ["INCRBYFLOAT", f"w{w}:float", "0.125"]
        yield ["EVAL", "redis.call('INCR', KEYS[1]) return redis.call('APPEND', KEYS[2], 'x')", 2,
               f"w{w}:script", f"w{w}:appended:{slot}"]
        yield ["MULTI"]
        yield ["DECRBY", f"w{w}:a", n]
        yield ["INCRBY", f"w{w}:b", n]
        yield ["EXEC"]
        if slot == 7:
            yield ["SELECT", 5]
            yield ["SET", f"w{w}:other", n]
            yield ["SELECT", 0]
        if slot == 8:
            yield ["DEL", f"w{w}:zset:{random_.randrange(40)}", f"w{w}:hash:{random_.randrange(40)}"]
        if slot == 9:
            yield ["RENAME", f"w{w}:float", f"w{w}:renamed"]

    def run(self):
        while not self.stopping:
            if self.pausing:
                time.sleep(0.005)
                continue
            batch = []
            for _ in range(8):
                self.round += 1
                batch.extend(self.commands_of(self.round))
            last = self.round
            self.client.ask(*batch)
            self.commands += len(batch)
            began = time.time()
            if self.waiting and int(self.client.ask(["WAIT", 1, 300])[0]) >= 1:
                self.waits.append(time.time() - began)
                self.acknowledged = last


def wait_until(what, done, seconds=120):
    deadline = time.time() + seconds
    while not done():
        if time.time() > deadline:
            raise SystemExit(f"never: {what}")
        time.sleep(0.02)


def is_up(client):
    return info(client, "master_link_status") == "up"


def quantile(values, share):
    values = sorted(values)
    return 1_000 * values[min(len(values) - 1, int(share * len(values)))] if values else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--program", default="target/release/hyades")
    parser.add_argument("--diskless", action="store_true")
    parser.add_argument("--port", type=int, default=7441)
    options = parser.parse_args()
    lost, primary = [], ("127.0.0.1", options.port)
    with tempfile.TemporaryDirectory() as root:
        server = subprocess.Popen(
            ["redis-server", "--port", str(options.port), "--dir", root, "--save", "",
             "--repl-backlog-size", "512mb", "--repl-diskless-sync-delay", "0",
             "--repl-diskless-sync", "yes" if options.diskless else "no",
             "--client-output-buffer-limit", "replica 0 0 0"],
            stdout=subprocess.DEVNULL)
        atexit.register(server.kill)
        theirs = beside.Client(options.port)
        print(f"filling redis-server with {options.keys:,} keys", flush=True)
        beside.fill(theirs, options.keys)
        theirs.ask(["FUNCTION", "LOAD", "#!lua name=l\nredis.register_function('f', function() return 7 end)"])
        follower = Follower(options, root, primary)
        began = time.time()
        client = follower.start(primary)
        writers = [Writer(number, options.port) for number in range(options.writers)]
        for writer in writers:
            writer.start()
        wait_until("the values are loaded", lambda: is_up(client))
        seconds = time.time() - began
        print(f"{options.keys / seconds:,.0f} keys a second loaded beside writes, in {seconds:.1f} s",
              flush=True)
        for kill in range(options.kills):
            time.sleep(random.uniform(0.3, 2.5))
            follower.kill()
            acknowledged = [writer.acknowledged for writer in writers]
            client = follower.start(NOWHERE)
            wait_until("it is open", lambda: info(client, "role") == "slave")
            if not str(client.ask(["GET", "w0:last"])[0]).count("LOADING"):
                for writer, known in zip(writers, acknowledged):
                    there = int(client.ask(["GET", f"w{writer.number}:last"])[0] or 0)
                    if there < known:
                        lost.append(f"writer {writer.number}: {known} was acknowledged, {there} is there")
                    a, b = client.ask(["MGET", f"w{writer.number}:a", f"w{writer.number}:b"])[0]
                    if int(a or 0) + int(b or 0) != 0:
                        lost.append(f"writer {writer.number}: half a transaction: {a} and {b}")
            if kill == options.kills // 2:
                # The primary has lost what follows.
                theirs.ask(["CONFIG", "SET", "repl-backlog-size", "16384"])
                time.sleep(0.3)
                theirs.ask(["CONFIG", "SET", "repl-backlog-size", str(512 << 20)])
            began, offset = time.time(), int(info(client, "slave_repl_offset"))
            client.ask(["REPLICAOF", *primary])
            if kill % 3 == 2:
                # Killed again while it catches up.
                continue
            wait_until("it is connected", lambda: is_up(client))
            target = int(info(theirs, "master_repl_offset"))
            wait_until("it has caught up", lambda: int(info(client, "slave_repl_offset")) >= target)
            print(f"kill {kill + 1}: {target - offset:,} bytes behind, caught up in "
                  f"{time.time() - began:.2f} s; full syncs {info(client, 'import_full_syncs')}, "
                  f"continued {info(client, 'import_partial_syncs')}", flush=True)
        # How fast a backlog is run.
        follower.kill()
        for writer in writers:
            writer.waiting = False
        time.sleep(4)
        for writer in writers:
            writer.waiting = writer.pausing = True
        time.sleep(0.5)
        client = follower.start(NOWHERE)
        wait_until("it is open", lambda: info(client, "role") == "slave")
        offset, target = (int(info(c, n)) for c, n in
                          ((client, "slave_repl_offset"), (theirs, "master_repl_offset")))
        began, ran = time.time(), int(info(client, "import_commands"))
        client.ask(["REPLICAOF", *primary])
        wait_until("it is connected", lambda: is_up(client))
        offset = max(offset, 0)
        wait_until("it has caught up", lambda: int(info(client, "slave_repl_offset")) >= target)
        seconds = time.time() - began
        ran = int(info(client, "import_commands")) - ran
        print(f"a backlog of {ran:,} commands was run in {seconds:.2f} s: {ran / seconds:,.0f} a second",
              flush=True)
        for writer in writers:
            writer.pausing = False
        before = sum(writer.commands for writer in writers)
        for writer in writers:
            writer.waits.clear()
        time.sleep(5)
        rate = (sum(writer.commands for writer in writers) - before) / 5
        waits = [wait for writer in writers for wait in writer.waits]
        print(f"{rate:,.0f} commands a second; WAIT 1 took {quantile(waits, 0.5):.2f} ms (median), "
              f"{quantile(waits, 0.99):.2f} ms (99 %)", flush=True)
        # The cut-over: writes end, the follower catches up, and takes over.
        for writer in writers:
            writer.stopping = True
        for writer in writers:
            writer.join()
        began = time.time()
        theirs.ask(["CLIENT", "PAUSE", 600_000, "WRITE"])
        target = int(info(theirs, "master_repl_offset"))
        wait_until("it has caught up", lambda: int(info(client, "slave_repl_offset")) >= target)
        reply = client.ask(["REPLICAOF", "NO", "ONE"])[0]
        print(f"cut over in {1_000 * (time.time() - began):.0f} ms: {reply.decode()}", flush=True)
        left_out = info(client, "import_left_out")
        if left_out != "0":
            lost.append(f"{left_out} commands were left out: {info(client, 'import_left_out_0')}")
        for writer in writers:
            there = int(client.ask(["GET", f"w{writer.number}:last"])[0] or 0)
            if there < writer.acknowledged:
                lost.append(f"writer {writer.number}: {writer.acknowledged} was acknowledged, {there} is there")
        if client.ask(["FCALL", "f", 0])[0] != b"7":
            lost.append("the function is missing")
        # Keys that have expired are removed here and there in their own time.
        def settled():
            return [c.ask(["DBSIZE"])[0] for c in (client, theirs)]
        theirs.ask(["CLIENT", "UNPAUSE"])
        for number in (0, 3, 5):
            for one in (client, theirs):
                one.ask(["SELECT", number])
            wait_until("what has expired is removed", lambda: len(set(settled())) == 1)
            found = list(differences(client, theirs))
            print(f"database {number}: {settled()} keys, {len(found)} differences", flush=True)
            lost.extend(found[:20])
        if client.ask(["SET", "after", 1])[0] != b"OK":
            lost.append("it takes no writes after the end")
        with open(os.path.join(root, "hyades.log"), "rb") as log:
            text = log.read().decode()
        for line in text.splitlines():
            if "left out" in line:
                lost.append(line)
        print(f"{sum(writer.round for writer in writers):,} rounds of the writers, "
              f"{sum(writer.commands for writer in writers):,} commands", flush=True)
        for process in (follower.process, server):
            process.terminate()
            process.wait()
    for text in lost:
        print(text)
    print("nothing is lost, and all keys are equal" if not lost else f"{len(lost)} faults")
    raise SystemExit(bool(lost))


def differences(ours, theirs):
    beside.READS.setdefault(b"stream", lambda key: ["XRANGE", key, "-", "+"])
    return beside.differences(ours, theirs)


if __name__ == "__main__":
    main()

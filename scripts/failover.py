#!/usr/bin/env python3
"""Three members of a replicated database, and clients that move money, while processes are killed.

    scripts/failover.py [--seconds 60] [--every 8] [--lease 3] [--seed N] [--hyades PROGRAM]

Starts three NATS servers (scripts/nats-cluster.sh) and three `hyades serve --replicated` on this
machine. Clients find the primary by SENTINEL, move money in MULTI .. EXEC, and note what was
acknowledged. Every few seconds the primary, a standby, a NATS server, or all members are killed, or
the primary is stopped for longer than its lease, or hands over. At the end nothing acknowledged may
be missing, the sum of all money is zero, and all members have the same. Prints how long clients waited
after each event; exits with 1 if anything is wrong. HYADES names the program, by default
target/release/hyades built with the feature replication.
"""
import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ACCOUNTS = 50


class Broken(Exception):
    """A connection that is of no use any more."""


class Client:
    """A connection that speaks RESP2."""

    def __init__(self, port, timeout=10.0):
        try:
            self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        except OSError as error:
            raise Broken(str(error)) from error
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, *commands):
        out = b""
        for words in commands:
            out += b"*%d\r\n" % len(words)
            for word in words:
                word = str(word).encode()
                out += b"$%d\r\n%s\r\n" % (len(word), word)
        try:
            self.socket.sendall(out)
            return [self.reply() for _ in commands]
        except OSError as error:
            raise Broken(str(error)) from error

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Broken("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return Exception(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if rest == b"-1":
                return None
            data = self.file.read(int(rest) + 2)
            if len(data) != int(rest) + 2:
                raise Broken("closed")
            return data[:-2].decode()
        if kind == b"*":
            return None if rest == b"-1" else [self.reply() for _ in range(int(rest))]
        raise Broken(f"not RESP: {line!r}")

    def close(self):
        self.socket.close()


class Member:
    """A process `hyades serve --replicated`."""

    def __init__(self, cluster, at):
        self.cluster, self.at, self.port = cluster, at, cluster.first_port + at
        self.process = None
        self.start()

    def start(self):
        c = self.cluster
        log = open(os.path.join(c.dir, f"n{self.at}.log"), "ab")
        command = [
            c.program, "serve", "--port", str(self.port), "--dir", os.path.join(c.dir, f"n{self.at}"),
            "--replicated", f"nats://{c.nats}/{c.name}", "--node", f"n{self.at}",
            "--announce", f"127.0.0.1:{self.port}", "--lease", str(c.lease),
        ]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def signal(self, number):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def ask(self, *words, timeout=2.0):
        client = Client(self.port, timeout)
        try:
            return client.send(words)[0]
        finally:
            client.close()


class Cluster:
    def __init__(self, options, directory):
        self.dir, self.program, self.lease = directory, options.hyades, options.lease
        self.first_port, self.name = options.port, f"failover-{os.getpid()}"
        self.nats_dir = os.path.join(directory, "nats")
        script = os.path.join(ROOT, "scripts", "nats-cluster.sh")
        started = subprocess.run([script, "start", self.nats_dir], stdout=subprocess.PIPE, text=True)
        if started.returncode:
            sys.exit("the NATS servers do not start")
        self.nats = started.stdout.strip()
        self.members = [Member(self, at) for at in range(3)]

    def primary(self):
        """The place of the member that two members, or the only one that answers, call primary."""
        for member in self.members:
            try:
                found = member.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
            except Broken:
                continue
            if isinstance(found, list) and len(found) == 2:
                return int(found[1]) - self.first_port
        return None

    def wait_for_primary(self, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = self.primary()
            if found is not None:
                try:
                    role = self.members[found].ask("ROLE")
                    if isinstance(role, list) and role[0] == "master":
                        return found
                except Broken:
                    pass
            time.sleep(0.05)
        return None

    def nats_server(self, at):
        with open(os.path.join(self.nats_dir, f"{at}.pid"), encoding="utf-8") as file:
            return int(file.read())

    def restart_nats(self, at):
        config = os.path.join(self.nats_dir, f"{at}.conf")
        server = os.readlink(f"/proc/{self.nats_server((at + 1) % 3)}/exe")
        with open(os.path.join(self.nats_dir, f"{at}.log"), "ab") as log:
            process = subprocess.Popen([server, "-c", config], stdout=log, stderr=log)
        with open(os.path.join(self.nats_dir, f"{at}.pid"), "w", encoding="utf-8") as file:
            file.write(str(process.pid))

    def stop(self):
        for member in self.members:
            if member.process.poll() is None:
                member.process.send_signal(signal.SIGCONT)
                member.process.kill()
                member.process.wait()
        script = os.path.join(ROOT, "scripts", "nats-cluster.sh")
        subprocess.run([script, "stop", self.nats_dir], check=False)


class Worker(threading.Thread):
    """A client that moves money for as long as it is let."""

    def __init__(self, cluster, number, seed):
        super().__init__(daemon=True)
        self.cluster, self.number, self.random = cluster, number, random.Random(seed)
        self.acknowledged, self.successes, self.errors = [], [], {}
        self.ends = False

    def run(self):
        client, sequence = None, 0
        while not self.ends:
            try:
                if client is None:
                    at = self.cluster.primary()
                    if at is None:
                        time.sleep(0.02)
                        continue
                    client = Client(self.cluster.members[at].port)
                sequence += 1
                a, b = self.random.sample(range(ACCOUNTS), 2)
                amount = self.random.randint(1, 9)
                replies = client.send(
                    ("MULTI",), ("DECRBY", f"account:{a}", amount), ("INCRBY", f"account:{b}", amount),
                    ("RPUSH", f"journal:{self.number}", sequence), ("EXEC",))
                if isinstance(replies[-1], list) and not any(
                        isinstance(reply, Exception) for reply in replies[-1]):
                    self.acknowledged.append(sequence)
                    self.successes.append(time.monotonic())
                    continue
                word = str(next(r for r in replies if isinstance(r, Exception))).split()[0]
            except Broken:
                word = "closed"
            self.errors[word] = self.errors.get(word, 0) + 1
            if client is not None:
                client.close()
            client = None
            time.sleep(0.01)


def journal_and_accounts(member, workers):
    client = Client(member.port)
    accounts = client.send(*[("GET", f"account:{at}") for at in range(ACCOUNTS)])
    journals = client.send(*[("LRANGE", f"journal:{w.number}", 0, -1) for w in workers])
    client.close()
    for reply in accounts + journals:
        if isinstance(reply, Exception):
            raise Broken(str(reply))
    return [int(balance or 0) for balance in accounts], journals


def event(cluster, kind, rng, lease):
    """Does what the kind says to a member or a server; returns what was done, and what ends it."""
    primary = cluster.wait_for_primary(20 + 4 * lease)
    if primary is None:
        return "no primary was found", lambda: None
    members = cluster.members
    others = [at for at in range(3) if at != primary]
    if kind == "primary":
        members[primary].signal(signal.SIGKILL)
        return f"primary n{primary} killed", members[primary].start
    if kind == "standby":
        at = rng.choice(others)
        members[at].signal(signal.SIGKILL)
        return f"standby n{at} killed", members[at].start
    if kind == "stopped":
        members[primary].signal(signal.SIGSTOP)
        return f"primary n{primary} stopped for a while", lambda: members[primary].signal(signal.SIGCONT)
    if kind == "nats":
        at = rng.randrange(3)
        os.kill(cluster.nats_server(at), signal.SIGKILL)
        return f"NATS server {at} killed", lambda: cluster.restart_nats(at)
    if kind == "all":
        for member in members:
            member.signal(signal.SIGKILL)

        def start():
            for member in members:
                member.start()
        return "all members killed", start
    answer = members[primary].ask("FAILOVER")
    return f"primary n{primary} hands over ({answer})", lambda: None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=8)
    parser.add_argument("--lease", type=float, default=3)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--port", type=int, default=7400)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--events", default="primary,standby,stopped,nats,all,handover")
    parser.add_argument("--hyades", default=os.environ.get(
        "HYADES", os.path.join(ROOT, "target", "release", "hyades")))
    options = parser.parse_args()
    rng, kinds = random.Random(options.seed), options.events.split(",")
    print(f"seed {options.seed}", flush=True)
    wrong = []
    with tempfile.TemporaryDirectory(prefix="hyades-failover-") as directory:
        cluster = Cluster(options, directory)
        try:
            if cluster.wait_for_primary(60) is None:
                sys.exit("no member becomes primary: see the logs\n" + logs(directory))
            workers = [Worker(cluster, n, rng.random()) for n in range(options.clients)]
            for worker in workers:
                worker.start()
            until, happened, turn = time.monotonic() + options.seconds, [], 0
            while time.monotonic() < until:
                time.sleep(options.every * rng.uniform(0.5, 1.0))
                kind, turn = kinds[turn % len(kinds)], turn + 1
                began = time.monotonic()
                what, ends = event(cluster, kind, rng, options.lease)
                happened.append((began, what))
                time.sleep(min(options.every / 2, 2 * options.lease))
                ends()
            last = time.monotonic() + 20
            while time.monotonic() < last and cluster.wait_for_primary(5) is None:
                pass
            time.sleep(2)
            for worker in workers:
                worker.ends = True
            for worker in workers:
                worker.join(20)
            report(cluster, workers, happened, wrong)
            if wrong:
                print(logs(directory))
        finally:
            cluster.stop()
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


def report(cluster, workers, happened, wrong):
    successes = sorted(at for worker in workers for at in worker.successes)
    bounds = [at for at, _ in happened] + [float("inf")]
    for (began, what), end in zip(happened, bounds[1:]):
        inside = [began] + [at for at in successes if began <= at < end]
        gap = max((b - a for a, b in zip(inside, inside[1:])), default=float("nan"))
        print(f"{what}: {len(inside) - 1} transfers, the longest time without one {gap:.2f} s")
    errors = {}
    for worker in workers:
        for word, count in worker.errors.items():
            errors[word] = errors.get(word, 0) + count
    print(f"{len(successes)} transfers acknowledged; errors that clients saw: {errors}")
    primary = cluster.wait_for_primary(30)
    if primary is None:
        wrong.append("no primary in the end")
        return
    until, shown = time.monotonic() + 30, None
    while time.monotonic() < until:
        try:
            shown = [journal_and_accounts(member, workers) for member in cluster.members]
            if all(one == shown[0] for one in shown):
                break
        except Broken:
            shown = None
        time.sleep(0.2)
    if shown is None:
        wrong.append("not all members can be read in the end")
        return
    if not all(one == shown[0] for one in shown):
        wrong.append("the members are not equal in the end")
    accounts, journals = shown[primary]
    missing = 0
    for worker, journal in zip(workers, journals):
        there = set(map(int, journal))
        missing += len(set(worker.acknowledged) - there)
        if len(there) != len(journal):
            wrong.append(f"transfers of client {worker.number} happened twice")
    print(f"missing: {missing}; sum of all money: {sum(accounts)}; members equal: "
          f"{all(one == shown[0] for one in shown)}")
    if missing:
        wrong.append(f"{missing} acknowledged transfers are missing")
    if sum(accounts):
        wrong.append(f"the sum of all money is {sum(accounts)}")


def logs(directory):
    """The last lines of the members' logs."""
    text = ""
    for at in range(3):
        path = os.path.join(directory, f"n{at}.log")
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                text += f"n{at}:\n" + "".join(file.readlines()[-12:])
    return text


if __name__ == "__main__":
    sys.exit(main())

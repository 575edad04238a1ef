#!/usr/bin/env python3
"""Three members of a replicated database, and clients that move money, while processes are killed.

    scripts/failover.py [--seconds 60] [--every 8] [--lease 3] [--seed N] [--hyades PROGRAM]

Starts three NATS servers (scripts/nats-cluster.sh) and three `hyades serve --replicated` on this
machine. Clients find the primary by SENTINEL, move money in MULTI .. EXEC, and note what was
acknowledged. Every few seconds the primary, a standby, a NATS server, or all members are killed, or a
member loses its disk, or the primary is stopped for longer than its lease, or hands over. At the end
nothing acknowledged may be missing, the sum of all money is zero, and all members have the same.
Prints how long clients waited after each event; exits with 1 if anything is wrong. HYADES names the
program, by default target/release/hyades built with the feature replication.
"""
import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time

from replicated import Broken, Client, Cluster, default_program, hand_over, logs

ACCOUNTS = 50


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
    if kind == "disk":
        at = rng.randrange(3)
        members[at].signal(signal.SIGKILL)
        members[at].lose_disk()
        return f"n{at} killed, and its disk lost", members[at].start
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
    answer = hand_over(members[primary])
    return f"primary n{primary} hands over ({answer})", lambda: None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--every", type=float, default=8)
    parser.add_argument("--lease", type=float, default=3)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--port", type=int, default=7400)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--events", default="primary,standby,stopped,nats,disk,all,handover")
    parser.add_argument("--hyades", default=default_program())
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


if __name__ == "__main__":
    sys.exit(main())

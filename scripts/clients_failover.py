#!/usr/bin/env python3
"""Clients of Redis, unchanged, on three members of a replicated database that fail over.

    scripts/clients_failover.py [--failovers 20] [--lease 1] [--mode sentinel|cluster]
                                [--clients redis-py,ioredis,go-redis,jedis] [--hyades PROGRAM]

Starts three NATS servers and three members on this machine. Each client, a small program in
scripts/clients on the newest version of its library, finds the primary by the library's support of
Sentinel, or of clusters: it counts, reads its count, and moves money in transactions. All clients run at
the same time, while the primary is killed, stopped for longer than its lease, and hands over, by turns
and as often as asked. `server` stands for connections of the script itself to all members, which try a
write every few milliseconds: what a client waits longer is its own.

Nothing acknowledged may be missing, no count may go back, and the sum of all money is zero. Prints the
errors that clients met, and for how long they had no success. Exits with 1 if anything is wrong; the
aims are printed beside. Needs python3, node, go, java with maven. Libraries and logs are in
target/clients.
"""
import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from replicated import ROOT, Broken, Client, Cluster, default_program, hand_over, logs

ACCOUNTS = 20
PROGRAMS = {"redis-py": ".py", "ioredis": ".js", "go-redis": ".go", "jedis": ".java"}
HOMES = os.path.join(ROOT, "target", "clients")
KINDS = ("killed", "stopped", "handover")


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()[-400:]}")
    return done.stdout.strip()


def packages(source):
    with open(source, encoding="utf-8") as file:
        return re.search(r"packages: (.*)", file.read()).group(1).split()


def install(name):
    """Installs a library and builds its program; returns the version and the command."""
    source = os.path.join(ROOT, "scripts", "clients", name + PROGRAMS[name])
    home, (package, *_) = os.path.join(HOMES, name), packages(source)
    os.makedirs(home, exist_ok=True)
    kind = PROGRAMS[name]
    if kind == ".py":
        python = os.path.join(home, "env", "bin", "python")
        if not os.path.exists(python):
            run(sys.executable, "-m", "venv", "--without-pip", os.path.join(home, "env"))
        run(sys.executable, "-m", "pip", "--python", python, "install", "-q", "--upgrade", package)
        version = f"import importlib.metadata as m; print(m.version('{package}'))"
        return run(python, "-c", version), [python, source]
    if kind == ".js":
        run("npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", home, package)
        modules = os.path.join(home, "node_modules")
        with open(os.path.join(modules, package, "package.json"), encoding="utf-8") as file:
            version = json.load(file)["version"]
        return version, ["env", f"NODE_PATH={modules}", "node", source]
    if kind == ".go":
        shutil.copy(source, os.path.join(home, "main.go"))
        if not os.path.exists(os.path.join(home, "go.mod")):
            run("go", "mod", "init", "main", cwd=home)
        run("go", "get", f"{package}@latest", cwd=home)
        run("go", "mod", "tidy", cwd=home)
        run("go", "build", "-o", "program", ".", cwd=home)
        version = run("go", "list", "-m", "-f", "{{.Version}}", package, cwd=home)
        return version, [os.path.join(home, "program")]
    group, artifact = package.split(":")
    with open(os.path.join(home, "pom.xml"), "w", encoding="utf-8") as file:
        file.write('<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0'
                   "</modelVersion><groupId>main</groupId><artifactId>main</artifactId>"
                   "<version>1</version><dependencies><dependency>"
                   f"<groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
                   "<version>RELEASE</version></dependency></dependencies></project>")
    shutil.rmtree(os.path.join(home, "jars"), ignore_errors=True)
    run("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", cwd=home)
    shutil.copy(source, os.path.join(home, "Main.java"))
    run("javac", "-cp", "jars/*", "-d", "classes", "Main.java", cwd=home)
    jar = next(jar for jar in os.listdir(os.path.join(home, "jars"))
               if re.match(artifact + r"-\d", jar))
    path = os.path.join(home, "classes") + ":" + os.path.join(home, "jars", "*")
    return jar[len(artifact) + 1:-4], ["java", "-Xmx128m", "-cp", path, "Main"]


class Probe(threading.Thread):
    """Writes at one member, whatever its role, every few milliseconds."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.successes, self.ends = port, [], False

    def run(self):
        client = None
        while not self.ends:
            try:
                client = client or Client(self.port, 0.5)
                if isinstance(client.send(("INCR", "{probe}"))[0], int):
                    self.successes.append(time.time())
            except Broken:
                if client is not None:
                    client.close()
                client = None
            time.sleep(0.01)


class Program:
    """A client's program, and its journal."""

    def __init__(self, name, cluster, mode):
        self.name, self.mode, self.behind = name, mode, 0
        self.version, command = install(name)
        self.journal = os.path.join(cluster.dir, f"{name}.journal")
        self.log = os.path.join(cluster.dir, f"{name}.log")
        nodes = ",".join(f"127.0.0.1:{member.port}" for member in cluster.members)
        self.environment = dict(os.environ, NODES=nodes, NAME=cluster.name, MODE=mode,
                                JOURNAL=self.journal, ACCOUNTS=str(ACCOUNTS))
        self.command, self.process = command, None

    def start(self):
        with open(self.journal, "w", encoding="utf-8"), open(self.log, "ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def lines(self):
        """Begin, end, request, whether it is acknowledged, and value or error, of each request."""
        with open(self.journal, encoding="utf-8") as file:
            for line in file:
                # The last line may be torn.
                if line.endswith("\n"):
                    began, ended, request, is_ok, value = line.rstrip("\n").split(" ", 4)
                    yield float(began), float(ended), request, is_ok == "ok", value

    def judge(self, final, wrong):
        """Adds what is wrong with the values that the client has seen."""
        counted = 0
        for _, ended, request, is_ok, value in self.lines():
            if not is_ok or request == "move":
                continue
            value = int(value)
            # A client of a cluster may read at a standby, if its connection to the primary is lost.
            if value < counted and request == "get" and self.mode == "cluster":
                self.behind += 1
            elif value < counted or value == counted and request == "incr":
                wrong.append(f"{self.name}: {request} returned {value} after {counted} at {ended}")
            counted = max(counted, value)
        if final < counted:
            wrong.append(f"{self.name}: the count is {final} in the end, and was {counted}")


def share(values, part):
    """The smallest value that this part of the values does not exceed."""
    values = sorted(values)
    return values[min(len(values) - 1, max(0, -(-int(part * 100 * len(values)) // 100) - 1))]


def gaps(successes, events):
    """By kind, the longest time without a success after each event."""
    found = collections.defaultdict(list)
    successes = sorted(successes)
    for (began, kind), end in zip(events, [at for at, _ in events[1:]] + [float("inf")]):
        inside = [began] + [at for at in successes if began <= at < end]
        found[kind].append(max((b - a for a, b in zip(inside, inside[1:])), default=float("inf")))
    return found


def standbys(cluster, primary):
    """The number of standbys that follow, as the primary knows."""
    try:
        info = cluster.members[primary].ask("INFO", "replication")
        found = re.search(r"connected_slaves:(\d+)", info if isinstance(info, str) else "")
        return int(found.group(1)) if found else 0
    except Broken:
        return 0


def wait_until_whole(cluster, seconds):
    """Waits for a primary and two standbys that are served."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        primary = cluster.wait_for_primary(5)
        if primary is not None and standbys(cluster, primary) == 2:
            roles = []
            for member in cluster.members:
                try:
                    info = member.ask("INFO", "replication")
                    roles.append(re.search(r"member_role:(\S+)", info).group(1))
                except (Broken, AttributeError, TypeError):
                    roles.append("none")
            if sorted(roles) == ["primary", "standby", "standby"]:
                return primary
        time.sleep(0.05)
    return None


def fail_over(cluster, kind):
    """One failover. Returns when it began; the cluster is whole again afterwards."""
    primary = wait_until_whole(cluster, 60)
    if primary is None:
        sys.exit("the members are not whole again after a minute:\n" + logs(cluster.dir))
    member, began = cluster.members[primary], time.time()
    if kind == "killed":
        member.signal(signal.SIGKILL)
        time.sleep(2 * cluster.lease + 1)
        member.start()
    elif kind == "stopped":
        member.signal(signal.SIGSTOP)
        time.sleep(2 * cluster.lease + 1)
        member.signal(signal.SIGCONT)
    else:
        answer, began = hand_over(member), time.time()
        if answer != "OK":
            print("FAILOVER:", answer)
    return began


def report(cluster, programs, probes, events):
    wrong = []
    primary = wait_until_whole(cluster, 60)
    if primary is None:
        return ["the members are not whole in the end"]
    client = Client(cluster.members[primary].port)
    finals = client.send(*[("GET", "{%s}:count" % program.name) for program in programs])
    money = client.send(*[("GET", "{bank}:%d" % at) for at in range(ACCOUNTS)])
    total = sum(int(balance or 0) for balance in money)
    if total:
        wrong.append(f"the sum of all money is {total}")
    aims = {"killed": cluster.lease + 1.5, "handover": 0.5}
    rows = [("client", "version", "failover", "times", "p50 s", "p95 s", "max s", "aim p95")]
    server = [at for probe in probes for at in probe.successes]
    seen = [("server", "-", gaps(server, events))]
    for program, final in zip(programs, finals):
        program.judge(int(final or 0), wrong)
        done = [ended for _, ended, _, is_ok, _ in program.lines() if is_ok]
        seen.append((program.name, program.version, gaps(done, events)))
        failed = collections.Counter(
            f"{value} ({request})" for _, _, request, is_ok, value in program.lines() if not is_ok)
        print(f"{program.name} {program.version}: {len(done)} requests acknowledged, "
              f"{program.behind} reads behind; errors: "
              f"{', '.join(f'{count} {error}' for error, count in failed.most_common()) or 'none'}")
    for name, version, found in seen:
        for kind, times in found.items():
            aim = aims.get(kind)
            kept = "-" if aim is None else f"{aim:g}{'' if share(times, 0.95) <= aim else ' missed'}"
            rows.append((name, version, kind, str(len(times)), f"{share(times, 0.5):.2f}",
                         f"{share(times, 0.95):.2f}", f"{max(times):.2f}", kept))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
    print(f"sum of all money: {total}; wrong: {len(wrong)}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--failovers", type=int, default=20, help="of each kind")
    parser.add_argument("--lease", type=float, default=1)
    parser.add_argument("--mode", choices=("sentinel", "cluster"), default="sentinel")
    parser.add_argument("--clients", default=",".join(PROGRAMS))
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--port", type=int, default=7420)
    parser.add_argument("--keep", help="a directory that gets the journals and the members' logs")
    parser.add_argument("--hyades", default=default_program())
    options = parser.parse_args()
    more = ("--cluster-enabled", "yes") if options.mode == "cluster" else ()
    wrong = []
    with tempfile.TemporaryDirectory(prefix="hyades-clients-") as directory:
        cluster = Cluster(options, directory, more)
        programs, probes = [], []
        try:
            for name in options.clients.split(","):
                try:
                    programs.append(Program(name, cluster, options.mode))
                except OSError as error:
                    wrong.append(f"{name} cannot be had: {error}")
            if wait_until_whole(cluster, 60) is None:
                sys.exit("the members do not become whole: see the logs\n" + logs(directory))
            probes = [Probe(member.port) for member in cluster.members]
            for started in programs + probes:
                started.start()
            time.sleep(3)
            events = []
            for turn in range(options.failovers):
                for kind in options.kinds.split(","):
                    events.append((fail_over(cluster, kind), kind))
                    time.sleep(random.uniform(1, 2) + cluster.lease)
                print(f"{turn + 1} of {options.failovers}", flush=True)
            for started in programs:
                started.stop()
            for probe in probes:
                probe.ends = True
            print(f"mode {options.mode}, lease {options.lease:g} s")
            wrong += report(cluster, programs, probes, events)
            with open(os.path.join(directory, "events"), "w", encoding="utf-8") as file:
                file.writelines(f"{began:.6f} {kind}\n" for began, kind in events)
        finally:
            for program in programs:
                if program.process is not None:
                    program.stop()
            cluster.stop()
            if options.keep:
                os.makedirs(options.keep, exist_ok=True)
                for name in os.listdir(directory):
                    if os.path.isfile(os.path.join(directory, name)):
                        shutil.copy(os.path.join(directory, name), options.keep)
    for line in wrong:
        print("WRONG:", line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

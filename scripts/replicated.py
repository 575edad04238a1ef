"""Starts NATS servers and members of a replicated database on this machine, for other scripts."""
import os
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def default_program():
    """The program, which HYADES names, or the one that `cargo build --release` makes."""
    return os.environ.get("HYADES", os.path.join(ROOT, "target", "release", "hyades"))


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
        self.dir = os.path.join(cluster.dir, f"n{at}")
        self.process = None
        self.start()

    def start(self):
        c = self.cluster
        log = open(os.path.join(c.dir, f"n{self.at}.log"), "ab")
        command = [
            c.program, "serve", "--port", str(self.port), "--dir", self.dir,
            "--replicated", f"nats://{c.nats}/{c.name}", "--node", f"n{self.at}",
            "--announce", f"127.0.0.1:{self.port}", "--lease", str(c.lease), *c.more,
        ]
        self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def wait(self, seconds):
        """Waits until it serves."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                info = self.ask("INFO", "replication")
            except Broken:
                info = None
            if any(f"member_role:{role}" in str(info) for role in ("primary", "standby")):
                return
            if self.process.poll() is not None:
                sys.exit(f"n{self.at} has ended: see its log\n" + logs(self.cluster.dir))
            time.sleep(0.1)

    def signal(self, number):
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def lose_disk(self):
        """Removes the files of a process that has ended."""
        shutil.rmtree(self.dir, ignore_errors=True)

    def ask(self, *words, timeout=2.0):
        client = Client(self.port, timeout)
        try:
            return client.send(words)[0]
        finally:
            client.close()


def hand_over(primary, within=10.0):
    """Hands the database over once a standby follows closely. Returns the last answer, or what kept
    the member from an answer."""
    until = time.monotonic() + within
    while True:
        try:
            answer = primary.ask("FAILOVER")
        except (Broken, OSError) as error:
            return f"{type(error).__name__}: {error}\n{logs(primary.cluster.dir)}"
        if answer == "OK" or time.monotonic() > until:
            return answer
        time.sleep(0.1)


class Cluster:
    """Three NATS servers, and three members with further settings `more`."""

    def __init__(self, options, directory, more=()):
        self.more = more
        self.dir, self.program, self.lease = directory, options.hyades, options.lease
        self.first_port, self.name = options.port, f"members-{os.getpid()}"
        self.nats_dir = os.path.join(directory, "nats")
        script = os.path.join(ROOT, "scripts", "nats-cluster.sh")
        started = subprocess.run([script, "start", self.nats_dir], stdout=subprocess.PIPE, text=True)
        if started.returncode:
            sys.exit("the NATS servers do not start")
        self.nats = started.stdout.strip()
        self.members = []
        for at in range(3):
            self.members.append(Member(self, at))
            self.members[at].wait(60)

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


def logs(directory):
    """The last lines of the members' logs."""
    text = ""
    for at in range(3):
        path = os.path.join(directory, f"n{at}.log")
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                text += f"n{at}:\n" + "".join(file.readlines()[-12:])
    return text

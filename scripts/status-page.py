#!/usr/bin/env python3
"""Opens the status page of `hyades serve` in headless Chromium, while the server recovers and after,
and compares its numbers with those of INFO before and after.

  scripts/status-page.py [--program target/release/hyades] [--keys 3000000] [--dir DIR]

Exit code 1 if a number of the page is outside of the two of INFO, or if the page was not seen while the
server recovered (then give more keys). Needs chromium, redis-cli and redis-benchmark.
"""

import argparse
import contextlib
import html.parser
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Units of the page.
SCALES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def free_port():
    with socket.socket() as of:
        of.bind(("127.0.0.1", 0))
        return of.getsockname()[1]


class Texts(html.parser.HTMLParser):
    """The text of each element that has an id, and of each tile by its heading."""

    def __init__(self, page):
        super().__init__()
        self.open, self.by_id, self.words = [], {}, []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "link"):
            self.open.append((tag, dict(attributes).get("id")))

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, text):
        if any(tag in ("style", "script") for tag, _ in self.open):
            return
        self.words.append(text.strip())
        for _, name in self.open:
            if name:
                self.by_id[name] = self.by_id.get(name, "") + text

    def tile(self, name):
        """Value and unit below a heading."""
        at = self.words.index(name)
        value, unit = [word for word in self.words[at + 1 :] if word][:2]
        return float(value.replace(",", "")) * SCALES.get(unit, 1)


class Server:
    """A server, its page and its INFO."""

    def __init__(self, program, place):
        self.port, self.page_port, self.place = free_port(), free_port(), place
        self.words = [program, "serve", "--port", str(self.port), "--metrics-port"]
        self.words += [str(self.page_port), "--dir", f"{place}/db", "--save", ""]
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def kill(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def info(self):
        words = ["redis-cli", "-p", str(self.port), "INFO", "all"]
        text = subprocess.run(words, capture_output=True, text=True).stdout
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def wait(self, is_there, seconds=60):
        end = time.monotonic() + seconds
        while not is_there(self.info()):
            if time.monotonic() > end:
                raise SystemExit("the server does not answer")
            time.sleep(0.01)

    def page(self):
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        words += [f"--user-data-dir={self.place}/chromium", "--virtual-time-budget=500"]
        words.append(f"http://127.0.0.1:{self.page_port}/")
        return Texts(subprocess.run(words, capture_output=True, text=True, timeout=60).stdout)


class Checks:
    """Compares numbers, and prints each."""

    def __init__(self):
        self.failed = 0

    def between(self, what, least, number, most, rounded=0.0):
        fits = least * (1 - rounded) <= number <= most * (1 + rounded)
        self.failed += not fits
        print(f"  {what:28}{number:16,.0f}   INFO {least:,.0f} to {most:,.0f}{'' if fits else '  WRONG'}")


def keys_of(info):
    return sum(int(re.match(r"keys=(\d+)", of)[1]) for name, of in info.items() if re.match(r"db\d+$", name))


def while_recovering(server, checks):
    seen = 0
    while (before := server.info()).get("loading") == "1":
        page, after = server.page(), server.info()
        if page.by_id.get("state") != "recovering" or after.get("loading") != "1":
            continue
        seen += 1
        percent = float(re.sub(r"\D", "", page.by_id["percent"]) or 0)
        parts = [float(of["loading_loaded_perc"]) for of in (before, after)]
        checks.between("percent recovered", int(parts[0]), percent, parts[1])
    print(f"the page was seen {seen} times while the server recovered")
    return seen


def after_it(server, checks):
    before, page, after = server.info(), server.page(), server.info()
    if page.by_id.get("state") != "ready":
        raise SystemExit(f"the page says {page.by_id.get('state')!r}")
    infos = (before, after)
    rounded = 0.006
    checks.between("keys", *(keys_of(before), page.tile("Keys"), keys_of(after)), rounded)
    memory = sorted(float(of["used_memory_rss"]) for of in infos)
    checks.between("memory", memory[0], page.tile("Memory"), memory[1], 0.03)
    # INFO's own connection is one of those that it counts.
    clients = sorted(float(of["connected_clients"]) - 1 for of in infos)
    checks.between("clients", clients[0], page.tile("Clients"), clients[1])
    ran = [float(of["total_commands_processed"]) for of in infos]
    told, unit = re.search(r"([\d.,]+) ?([kMG]?) ?since the start", page.by_id["rate"]).groups()
    checks.between("commands since the start", ran[0], float(told.replace(",", "")) * SCALES[unit], ran[1], rounded)


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--program", default="target/release/hyades")
    options.add_argument("--keys", type=int, default=3_000_000)
    options.add_argument("--dir")
    options = options.parse_args()
    place = tempfile.mkdtemp(dir=options.dir)
    server, checks = Server(options.program, place), Checks()
    try:
        server.start()
        server.wait(lambda info: info.get("loading") == "0")
        load = ["redis-benchmark", "-p", str(server.port), "-t", "set", "-P", "64", "-c", "16", "-q"]
        load += ["-n", str(2 * options.keys), "-r", str(options.keys), "-d", "32"]
        subprocess.run(load, stdout=subprocess.DEVNULL, check=True)
        server.kill()
        server.start()
        server.wait(lambda info: "loading" in info)
        seen = while_recovering(server, checks)
        subprocess.run([*load[:-6], "-n", "1000", "-r", "100", "-d", "8"], stdout=subprocess.DEVNULL, check=True)
        print("ready")
        after_it(server, checks)
    finally:
        server.kill()
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(1 if checks.failed or not seen else 0)


if __name__ == "__main__":
    main()

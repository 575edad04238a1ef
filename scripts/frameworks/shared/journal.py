# What the programs in Python share: the journal, and loops for queues, locks and limiters.
import asyncio
import os
import sys
import time
from pathlib import Path

WORK = Path(os.environ["WORK"])
PORT = int(os.environ["PORT"])
URL = f"redis://127.0.0.1:{PORT}/0"
JOBS = 120
DELAY = 3


def append(name, line):
    file = os.open(WORK / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, (line + "\n").encode())
    os.close(file)


def journal(word, name):
    append("journal", f"{word} {name} {time.time():.6f}")


def started_again():
    return "UP -" in (WORK / "journal").read_text()


def wait_for(what, seconds=60):
    """Waits until what() is true, whatever it raises meanwhile."""
    end = time.time() + seconds
    while True:
        try:
            value = what()
            if value:
                return value
        except Exception as error:
            if time.time() > end:
                raise
            print(repr(error), file=sys.stderr)
        if time.time() > end:
            raise TimeoutError("waited in vain")
        time.sleep(0.2)


def do_job(name):
    """What a job does. One whose name begins with r fails when it is done first."""
    time.sleep(0.02)
    if name.startswith("r"):
        try:
            os.close(os.open(WORK / f"failed-{name}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            journal("failed", name)
            raise RuntimeError("fails once")
    journal("done", name)


def add_jobs(put, delays=True, retries=True):
    """Calls put(name, delay in seconds) until enough jobs have been acknowledged. Returns the loop of
    events."""
    loop = asyncio.new_event_loop()
    end = time.time() + 100
    added = number = 0
    while added < JOBS:
        number += 1
        kind = "d" if delays and number % 6 == 3 else "r" if retries and number % 6 == 5 else "n"
        delay = DELAY if kind == "d" else 0
        start = time.time()
        try:
            result = put(f"{kind}{number}", delay)
            if asyncio.iscoroutine(result):
                loop.run_until_complete(result)
        except Exception as error:
            if time.time() > end:
                raise
            print(repr(error), file=sys.stderr)
            time.sleep(0.3)
            continue
        append("acked", f"{kind}{number} {start + delay:.6f} {start:.6f} {time.time():.6f}")
        added += 1
        time.sleep(0.02)
    return loop


def count_under(section, total=JOBS):
    """Counts in a file, in sections that a lock guards: section(body) runs body under it."""
    counter = WORK / "counter"
    finished = False

    def body():
        nonlocal finished
        number = int(counter.read_text()) if counter.exists() else 0
        if number >= total:
            finished = True
            return
        time.sleep(0.01)
        counter.write_text(str(number + 1))
        journal("done", str(number + 1))

    while not finished:
        try:
            section(body)
        except Exception as error:
            print(repr(error), file=sys.stderr)
            time.sleep(0.2)
        time.sleep(0.005)
    while True:
        time.sleep(1)


def wait_for_count(total=JOBS):
    wait_for(lambda: (WORK / "counter").read_text() == str(total), 100)


def ask(limiter, times=60):
    """Asks a limiter again and again: limiter() is true if the request passes."""
    while not (WORK / "allowed").exists():  # main begins
        time.sleep(0.05)
    for number in range(times):
        name = f"{os.getpid()}-{number}"
        try:
            journal("done" if limiter() else "failed", name)
        except Exception as error:
            print(repr(error), file=sys.stderr)
            journal("lost", name)
            time.sleep(0.3)
        time.sleep(0.03)
    append("asked", "all")
    while True:
        time.sleep(1)


def allow(number):
    (WORK / "allowed").write_text(str(number))


def wait_for_askers(count):
    wait_for(lambda: (WORK / "asked").read_text().count("all") == count, 100)


def refuse(what):
    """Ends the program: it has found something wrong."""
    print(what)
    sys.exit(1)

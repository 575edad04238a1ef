# Judges what one program of scripts/frameworks.sh has done, by the journal of its workers and by what
# was acknowledged to its `main`.
#
#   judge.py KIND DIRECTORY SLOTS LOSES [--complete]
#
# SLOTS is how many jobs may be under way at once, LOSES how many of them may be lost at a kill, where
# the software takes jobs off a list by a command whose answer may not arrive. Prints a line that begins with `works`, or the
# reason why not. With --complete it tells by its code alone whether nothing is left to do.
#
# A line of `journal` is a word, an identity and a time: `done` and `failed` of jobs, `lost` of requests
# without an answer; KILL, UP, END and STUCK are the script's. A line of `acked` is an identity, the
# time before which the job may not be done, and the times of its request and its answer.
import sys
from collections import Counter
from pathlib import Path

kind, place, slots, loses = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
lines = [line.split() for line in (place / "journal").read_text().splitlines()]
acked = [line.split() for line in (place / "acked").read_text().splitlines()]
words = [line[0] for line in lines]
done = Counter(line[1] for line in lines if line[0] == "done")
undone = [job[0] for job in acked if job[0] not in done]


def complete():
    return kind != "queue" or not undone


def queue():
    kill, up = words.index("KILL"), words.index("UP")
    killed, started = float(lines[kill][2]), float(lines[up][2])
    before = {job[0] for job in acked if float(job[3]) <= started}
    if len(undone) > loses or not before.issuperset(undone):
        return f"{len(undone)} of {len(acked)} acknowledged jobs have not been done: {undone[:5]}"
    first = {}
    for line in lines:
        if line[0] == "done":
            first.setdefault(line[1], float(line[2]))
    early = [job[0] for job in acked if job[0] in first and first[job[0]] < float(job[1]) - 0.05]
    if early:
        return f"{len(early)} delayed jobs were done too early: {early[:5]}"
    failed = {line[1] for line in lines if line[0] == "failed"}
    if {job[0] for job in acked if job[0].startswith("r")} - failed - set(undone):
        return "not every failing job has failed"
    # The last ones before the kill, and those that ended while the server was away, may not have been
    # acknowledged as done. A request without an answer may have been sent twice by the client.
    flight = {line[1] for line in [x for x in lines[:kill] if x[0] in ("done", "failed")][-slots:]}
    flight |= {line[1] for line in lines if line[0] in ("done", "failed") and killed <= float(line[2]) <= started + 2}
    asked = {job[0] for job in acked if float(job[2]) <= started and float(job[3]) >= killed}
    twice = [job for job in done if done[job] > 1]
    wrong = [job for job in twice if job not in flight | asked]
    if wrong:
        return f"{len(wrong)} jobs that had ended well before or after the kill were done again: {wrong[:5]}"
    notes = [f"works; {len(acked)} jobs, {sum(job[0].startswith('d') for job in acked)} delayed, "
             f"{sum(job[0].startswith('r') for job in acked)} failed once"]
    if undone:
        notes.append(f"{len(undone)} taken at the kill was lost: it takes jobs without a second copy")
    if twice:
        notes.append(f"{len(twice)} under way at the kill were done twice")
    restarts = len((place / "restarts").read_text().splitlines())
    if restarts:
        notes.append(f"the worker ended {restarts} times, and was started again")
    if "STUCK" in words and "done" in words[words.index("STUCK"):]:
        notes.append("the worker left something undone until it was started again")
    return "; ".join(notes)


def lock():
    twice = [number for number in done if done[number] > 1]
    if twice:
        return f"{len(twice)} numbers were counted twice: the lock was held by two"
    after = sum(1 for word in words[words.index("UP"):] if word == "done")
    return f"works; {sum(done.values())} sections one at a time, {after} of them after the kill"


def limit():
    allowed = int((place / "allowed").read_text())
    passed, lost = words.count("done"), words.count("lost")
    if not allowed - lost <= passed <= allowed:
        return f"{passed} passed, {lost} had no answer, {allowed} are allowed"
    return (f"works; {passed} of {passed + words.count('failed') + lost} passed, {lost} had no answer, "
            f"{allowed} allowed")


if "--complete" in sys.argv:
    sys.exit(not complete())
if "UP" not in words:
    print("the server was not killed: there were too few lines in the journal")
    sys.exit(1)
text = {"queue": queue, "lock": lock, "limit": limit, "other": lambda: "works"}[kind]()
print(text)
sys.exit(not text.startswith("works"))

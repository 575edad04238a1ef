#!/usr/bin/env python3
"""Measures a transaction component beside other stores of keys and values, and beside the engine:
rounds in turn, medians, ratios of the same round.

  scripts/beside-stores.py [--program target/release/hyades-lab] [--rounds 7] [--seconds 3]
                           [--rows 200000] [--dir DIR] [--dc memory|redb|fjall]

Files are below --dir, by default the temporary directory: give a directory of the disk that is meant.
Stores that the program was not built with are left out: build it with --features
redb,fjall,lmdb,rocksdb.

Each runs the same transactions (4 accesses to keys, of which 84 % read, 80/20), acknowledged when they
are durable, with the number of workers and of transactions in flight that served it best: before the
rounds each is tried with several. Transactions in flight of a store share a commit, and one writer
runs them. So each store is also measured with a commit for each transaction, and with up to 100 for
each. Exit code 1 if a ratio is below its aim.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile

# What is tried, for each: workers, and transactions in flight of each worker.
WORKERS = [2, 4]
IN_FLIGHT = [512, 2048, 8192, 32768]

# The ratio to the rate of each that the component is to reach, at least.
AIMS = {"engine": 0.45, "redb": 20, "lmdb": 10, "rocksdb": 5, "fjall": 5}
STORES = ["redb", "lmdb", "rocksdb", "fjall"]
# Transactions that share a commit, at most: workers, transactions in flight of each, and the aims.
SHARED = {
    "a commit each": (1, 1, {"redb": 20, "lmdb": 20, "rocksdb": 5, "fjall": 5}),
    "at most 100 of a commit": (2, 50, dict.fromkeys(STORES, 1.5)),
}
# The most that a read which finds its key in memory may cost, over one of a bare hash map.
AIM_OF_READS = 2.5
# Accesses of transactions that only read: so many that what a transaction costs counts little.
READS = 64


class Bench:
    """Runs `hyades-lab bench ycsb`."""

    def __init__(self, options):
        self.options = options

    def run(self, words, seconds):
        """The report of a run; None if the program was built without the store."""
        place = tempfile.mkdtemp(dir=self.options.dir)
        command = [self.options.program, "bench", "ycsb", "--json", *words]
        command += ["--rows", str(self.options.rows), "--seconds", str(seconds), "--warmup", "0.5"]
        command += ["--reserve-memory", "512MiB"]
        if "hash-map" not in words:
            command += ["--log-dir", f"{place}/files"]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        if "this build has no" in done.stderr:
            return None
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def rate(self, words, seconds):
        report = self.run(words, seconds)
        return report and report["acknowledged_per_s"]

    def best(self, name, words):
        """The words, with the workers and the transactions in flight that serve it best."""
        found = {}
        for workers in WORKERS:
            for in_flight in IN_FLIGHT:
                tried = words + ["--workers", str(workers), "--in-flight", str(in_flight)]
                rate = self.rate(tried, min(self.options.seconds, 1.5))
                if rate is None:
                    print(f"  {name:14}left out: not in this build")
                    return None
                found[tuple(tried)] = rate
        best = max(found, key=found.get)
        print(f"  {name:14}{' '.join(best[-4:]):36}{found[best]:12,.0f}/s", flush=True)
        return list(best)

    def in_turn(self, subjects):
        """The rates of each in each round."""
        rates = {name: [] for name in subjects}
        for turn in range(self.options.rounds):
            names = list(subjects) if turn % 2 == 0 else list(reversed(subjects))
            for name in names:
                rates[name].append(self.rate(subjects[name], self.options.seconds))
        return rates


def spread(values):
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def durable(bench):
    """The component beside what is durable, too. Returns whether it reaches its aims."""
    component = ["--engine", "deuteronomy", "--dc", bench.options.dc]
    rows = ["--theta", "0.9", "--accesses", "4", "--write-share", "0.16"]
    subjects = {
        "component": component,
        "engine": ["--engine", "memory", "--protocol", "taurus", "--record", "data", *rows],
        **{name: ["--engine", name] for name in STORES},
    }
    print("durable transactions: what serves each best")
    best = {name: bench.best(name, words) for name, words in subjects.items()}
    best = {name: words for name, words in best.items() if words}
    print(f"medians of {bench.options.rounds} rounds in turn (lowest to highest)")
    holds = compare(bench, best, AIMS)
    for shared, (workers, in_flight, aims) in SHARED.items():
        print(shared)
        words = ["--workers", str(workers), "--in-flight", str(in_flight)]
        stores = {name: ["--engine", name, *words] for name in STORES if name in best}
        holds &= compare(bench, {"component": best["component"], **stores}, aims)
    return holds


def compare(bench, subjects, aims):
    """The component beside others, in turn. Returns whether it reaches its aims."""
    rates, holds = bench.in_turn(subjects), True
    for name, of in rates.items():
        line = f"  {name:14}{spread(of)}/s"
        if name != "component":
            ratios = [own / other for own, other in zip(rates["component"], of)]
            reached = statistics.median(ratios) >= aims[name]
            holds &= reached
            line += f"   component: {spread(ratios)} times that, aim {aims[name]}"
            line += "" if reached else "  MISSED"
        print(line, flush=True)
    return holds


def reads(bench):
    """A read that finds its key in memory, beside a bare hash map. Returns whether it holds."""
    words = ["--write-share", "0", "--accesses", str(READS), "--workers", "2", "--in-flight", "256"]
    budget = ["--budget", "4GiB"]
    subjects = {
        "component": ["--engine", "deuteronomy", "--dc", "memory", *words, *budget],
        "hash map": ["--engine", "hash-map", *words, *budget],
    }
    report = bench.run(subjects["component"], bench.options.seconds)
    print(f"reads, {report['cache']['hit_rate']:.1%} in memory")
    rates = bench.in_turn(subjects)
    for name, of in rates.items():
        print(f"  {name:14}{spread([rate * READS for rate in of])} reads/s")
    costs = [other / own for own, other in zip(rates["component"], rates["hash map"])]
    holds = statistics.median(costs) <= AIM_OF_READS
    print(f"  a read costs {spread(costs)} times one of the map, aim at most {AIM_OF_READS}", end="")
    print("" if holds else "  MISSED")
    return holds


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--program", default="target/release/hyades-lab")
    options.add_argument("--rounds", type=int, default=7)
    options.add_argument("--seconds", type=float, default=3)
    options.add_argument("--rows", type=int, default=200_000)
    options.add_argument("--dir")
    options.add_argument("--dc", default="memory", choices=["memory", "redb", "fjall"])
    bench = Bench(options.parse_args())
    both = [durable(bench), reads(bench)]
    sys.exit(0 if all(both) else 1)


if __name__ == "__main__":
    main()

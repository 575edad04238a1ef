# dramatiq: jobs, with delay and with retries, by a process with two threads.
# packages: dramatiq[redis]
# kind: queue
# slots: 2
import os
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from journal import URL, add_jobs, do_job

# What a worker has not acknowledged is delivered again when its heartbeat is as old as this.
broker = RedisBroker(url=URL, heartbeat_timeout=5000, maintenance_chance=100000)
dramatiq.set_broker(broker)


@dramatiq.actor(max_retries=3, min_backoff=500, max_backoff=1000)
def job(name):
    do_job(name)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        os.execv(sys.executable, [sys.executable, "-m", "dramatiq", "dramatiq_jobs", "-p", "1", "-t", "2"])
    add_jobs(lambda name, delay: job.send_with_options(args=(name,), delay=delay * 1000 or None))
    print("acknowledged after they ran")

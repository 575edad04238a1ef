# saq: jobs, with a scheduled time and with retries, by a worker that does four at once.
# packages: saq[redis] typing_extensions
# kind: queue
# slots: 4
import os
import sys
import time

from saq import Queue

from journal import URL, add_jobs, do_job

queue = Queue.from_url(URL, name="jobs")


async def job(_, *, name):
    do_job(name)


settings = {"queue": queue, "functions": [job], "concurrency": 4,
            "timers": {"schedule": 1, "sweep": 15, "stats": 10, "worker_info": 10}}

if __name__ == "__main__":
    if sys.argv[1] == "work":
        os.execv(sys.executable, [sys.executable, "-m", "saq", "saq_jobs.settings"])

    def put(name, delay):
        return queue.enqueue("job", name=name, key=name, retries=3, timeout=10, retry_delay=0.5,
                             scheduled=int(time.time() + delay) + 1 if delay else 0)

    # A worker that starts does once more what it has fetched just then, but not begun.
    time.sleep(4)
    add_jobs(put)
    print("keys against doubles")

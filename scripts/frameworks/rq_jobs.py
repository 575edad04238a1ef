# rq: jobs, with enqueue_in and with Retry, by a worker with a scheduler.
# packages: rq
# kind: queue
# slots: 1
import sys
from datetime import timedelta

from redis import Redis
from rq import Queue, Retry, Worker

from journal import PORT, add_jobs, do_job, wait_for

connection = Redis(port=PORT)

if __name__ == "__main__":
    queue = Queue("jobs", connection=connection)
    if sys.argv[1] == "work":
        Worker([queue], connection=connection, maintenance_interval=5).work(with_scheduler=True)
        sys.exit(0)

    def put(name, delay):
        retry = Retry(max=3)
        if delay:
            queue.enqueue_in(timedelta(seconds=delay), do_job, name, retry=retry)
        else:
            queue.enqueue(do_job, name, retry=retry)

    add_jobs(put)
    wait_for(lambda: queue.finished_job_registry.count >= 120)
    print(f"{queue.finished_job_registry.count} jobs in the registry of finished ones")

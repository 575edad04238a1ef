# Celery: jobs, with countdown and with retries, by a worker with two processes that acknowledges late.
# packages: celery[redis]
# kind: queue
# slots: 2
# loses: 1
import os
import sys

from celery import Celery
from celery.exceptions import TimeoutError
from redis.exceptions import ConnectionError

from journal import URL, add_jobs, do_job

app = Celery("celery_jobs", broker=URL, backend=URL)
app.conf.update(
    task_acks_late=True,
    worker_prefetch_multiplier=1,
    # What a worker has not acknowledged is delivered again after this time.
    broker_transport_options={"visibility_timeout": 10},
    result_backend_always_retry=True,
    broker_connection_retry_on_startup=True,
)


@app.task(bind=True, name="job", max_retries=3)
def job(self, name):
    try:
        do_job(name)
    except RuntimeError as error:
        raise self.retry(exc=error, countdown=1)
    return name


if __name__ == "__main__":
    if sys.argv[1] == "work":
        os.execv(sys.executable, [sys.executable, "-m", "celery", "-A", "celery_jobs", "worker", "-c", "2"])
    results = {}

    def put(name, delay):
        results[name] = job.apply_async((name,), countdown=delay)

    add_jobs(put)
    values, errors = 0, 0
    for name, result in results.items():
        try:
            values += result.get(timeout=60 if errors == 0 else 1) == name
        except (ConnectionError, TimeoutError):  # of a job that ended, or was taken, while the server was away
            errors += 1
    print(f"{values} results read, {errors} missing")

# taskiq with streams: jobs in a stream of taskiq-redis, with retries, by a worker that acknowledges.
# packages: taskiq-redis taskiq
# kind: queue
# slots: 4
import os
import sys
import time

from taskiq import SimpleRetryMiddleware
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from journal import URL, add_jobs, do_job

broker = (
    # What a worker has not acknowledged for this time is claimed when the next message comes.
    RedisStreamBroker(URL, idle_timeout=5000)
    .with_result_backend(RedisAsyncResultBackend(URL))
    .with_middlewares(SimpleRetryMiddleware(default_retry_count=3))
)


@broker.task(task_name="job", retry_on_error=True)
async def job(name: str) -> None:
    do_job(name)


@broker.task(task_name="next")
async def next_message() -> None:
    pass


if __name__ == "__main__":
    if sys.argv[1] == "work":
        os.execv(sys.executable, [sys.executable, "-m", "taskiq", "worker", "taskiq_jobs:broker",
                                  "-w", "1", "--max-async-tasks", "4"])
    started = False

    async def put(name, _):
        global started
        if not started:
            await broker.startup()
            started = True
        await job.kiq(name)

    loop = add_jobs(put, delays=False)
    # Jobs that failed while there was no server are claimed with this message.
    time.sleep(6)
    loop.run_until_complete(next_message.kiq())
    print("streams with a group")

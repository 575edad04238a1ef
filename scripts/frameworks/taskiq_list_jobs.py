# taskiq with lists: jobs in a list of taskiq-redis, with retries. Its scheduler is not tried:
# what is due at a kill it may send twice.
# packages: taskiq-redis taskiq
# kind: queue
# slots: 4
# loses: 1
import os
import sys

from taskiq import SimpleRetryMiddleware
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from journal import URL, add_jobs, do_job

broker = (
    ListQueueBroker(URL)
    .with_result_backend(RedisAsyncResultBackend(URL))
    .with_middlewares(SimpleRetryMiddleware(default_retry_count=3))
)


@broker.task(task_name="job", retry_on_error=True)
async def job(name: str) -> None:
    do_job(name)


if __name__ == "__main__":
    if sys.argv[1] == "work":
        os.execv(sys.executable, [sys.executable, "-m", "taskiq", "worker", "taskiq_list_jobs:broker",
                                  "-w", "1", "--max-async-tasks", "4"])
    started = False

    async def put(name, _):
        global started
        if not started:
            await broker.startup()
            started = True
        await job.kiq(name)

    add_jobs(put, delays=False)
    print("lists, which have no acknowledgement")

# arq: jobs, deferred and with Retry, by a worker that does four at once.
# packages: arq
# kind: queue
# slots: 4
import asyncio
import sys

from arq import Retry, create_pool, run_worker
from arq.connections import RedisSettings

from journal import PORT, add_jobs, do_job

settings = RedisSettings(port=PORT)


async def job(_, name):
    try:
        do_job(name)
    except RuntimeError:
        raise Retry(defer=0.5)


class WorkerSettings:
    functions = [job]
    redis_settings = settings
    max_jobs = 4
    # A job of a worker that has died is done again after this time.
    job_timeout = 5
    poll_delay = 0.1


if __name__ == "__main__":
    asyncio.set_event_loop(asyncio.new_event_loop())
    if sys.argv[1] == "work":
        run_worker(WorkerSettings)
        sys.exit(0)
    pool = None

    async def put(name, delay):
        global pool
        pool = pool or await create_pool(settings)
        await pool.enqueue_job("job", name, _job_id=name, _defer_by=delay or None)

    add_jobs(put)
    print("identities against doubles")

# huey: jobs, with delay and with retries, by a consumer with two threads.
# packages: huey redis
# kind: queue
# slots: 2
# loses: 2
import os
import sys

from huey import RedisHuey

from journal import PORT, add_jobs, do_job

huey = RedisHuey("jobs", host="127.0.0.1", port=PORT)


@huey.task(retries=3, retry_delay=1)
def job(name):
    do_job(name)
    return name


if __name__ == "__main__":
    if sys.argv[1] == "work":
        os.execv(sys.executable, [sys.executable, "-m", "huey.bin.huey_consumer", "huey_jobs.huey", "-w", "2"])

    from huey_jobs import job  # the name of a job has that of its module

    def put(name, delay):
        if delay:
            job.schedule((name,), delay=delay)
        else:
            job(name)

    add_jobs(put)
    print("what was taken is not acknowledged")

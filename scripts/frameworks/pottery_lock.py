# pottery Redlock: exclusion of three processes, expiry, extension, a lock that is held over the kill.
# packages: pottery
# kind: lock
# workers: 3
import sys
import time

import redis
from pottery import Redlock
from pottery.exceptions import ExtendUnlockedLock, ReleaseUnlockedLock

from journal import PORT, count_under, refuse, started_again, wait_for, wait_for_count

masters = {redis.Redis(port=PORT)}

if sys.argv[1] == "work":
    def section(body):
        lock = Redlock(key="counter", masters=masters, auto_release_time=5)
        if lock.acquire(timeout=2):
            try:
                body()
            finally:
                lock.release()

    count_under(section)

held = Redlock(key="held", masters=masters, auto_release_time=100)
held.acquire() or refuse("a free lock was not given")
lock = Redlock(key="short", masters=masters, auto_release_time=4)
other = Redlock(key="short", masters=masters, auto_release_time=4)
lock.acquire() or refuse("a free lock was not given")
other.acquire(blocking=False) and refuse("a lock was given to two")
time.sleep(2.5)
lock.extend()
time.sleep(2.5)
other.acquire(blocking=False) and refuse("a lock that was extended has expired too early")
time.sleep(2.5)
other.acquire(blocking=False) or refuse("a lock has not expired")
try:
    lock.release()
    refuse("a lock was released by another than its owner")
except (ReleaseUnlockedLock, ExtendUnlockedLock):
    pass
wait_for(started_again)
time.sleep(0.5)
wait_for(lambda: held.locked() > 0)
Redlock(key="held", masters=masters).acquire(blocking=False) and refuse("a lock that is held was given to another")
held.extend()
held.release()
wait_for_count()
print("expiry, extension, a lock held over the kill")

# redis-py Lock: exclusion of three processes, expiry, extension, a lock that is held over the kill.
# packages: redis
# kind: lock
# workers: 3
import sys
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError

from journal import PORT, count_under, refuse, started_again, wait_for, wait_for_count

client = redis.Redis(port=PORT)

if sys.argv[1] == "work":
    def section(body):
        with client.lock("counter", timeout=5, blocking_timeout=2):
            body()

    count_under(section)

held = client.lock("held", timeout=100)
held.acquire() or refuse("a free lock was not given")
lock, other = client.lock("short", timeout=2), client.lock("short", timeout=2)
lock.acquire() or refuse("a free lock was not given")
other.acquire(blocking=False) and refuse("a lock was given to two")
lock.extend(1)
time.sleep(2.2)
other.acquire(blocking=False) and refuse("a lock that was extended has expired too early")
lock.reacquire()
time.sleep(2.2)
other.acquire(blocking_timeout=1) or refuse("a lock has not expired")
try:
    lock.release()
    refuse("a lock was released by another than its owner")
except (LockNotOwnedError, LockError):
    pass
other.release()
wait_for(started_again)
time.sleep(0.5)
wait_for(lambda: held.owned() or refuse("a lock was lost"))
client.lock("held", timeout=1).acquire(blocking=False) and refuse("a lock that is held was given to another")
held.extend(5)
held.release()
wait_for_count()
print("expiry, extension, a lock held over the kill")

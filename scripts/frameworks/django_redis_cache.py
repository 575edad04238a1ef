# django-redis: values, expiry, counters, patterns, sessions and a lock, before and after the kill.
# packages: django-redis
# kill: 40
import time

import django
from django.conf import settings

from journal import URL, journal, refuse, started_again, wait_for

settings.configure(
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": URL}},
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore  # noqa: E402 # it needs the settings
from django.core.cache import cache  # noqa: E402


def expect(value, expected, what):
    if value != expected:
        refuse(f"{what}: {value!r} in the place of {expected!r}")


session = SessionStore()
session["user"] = 7
session.save()
cache.set("short", 1, timeout=1)
cache.set("counter", 0, timeout=None)
expect(cache.add("counter", 1), False, "add to a key that is there")
for number in range(60):
    def write(number=number):
        cache.set_many({f"a{number}": [number], f"b{number}": {"n": number}}, timeout=600)
        return True
    wait_for(write)
    journal("done", number)
    time.sleep(0.02)
wait_for(started_again)
wait_for(lambda: cache.get("a0"))
for number in range(60):
    expect(cache.get_many([f"a{number}", f"b{number}"]), {f"a{number}": [number], f"b{number}": {"n": number}},
           "get_many")
expect(SessionStore(session.session_key).get("user"), 7, "the session")
expect(cache.get("short"), None, "an expired key")
expect([cache.incr("counter"), cache.incr("counter", 5), cache.decr("counter")], [1, 6, 5], "the counter")
expect(590 <= cache.ttl("a1") <= 600 or cache.ttl("a1") > 500, True, "the time to live")
expect(cache.ttl("counter"), None, "no time to live")
expect(len(list(cache.iter_keys("a*"))), 60, "keys of a pattern")
expect(cache.delete_pattern("b*"), 60, "deleted by a pattern")
expect(cache.touch("a2", 5), True, "touch")
with cache.lock("lock", timeout=5):
    expect(cache.lock("lock", timeout=5).acquire(blocking=False), False, "a lock that is held")
cache.clear()
expect(cache.get("a0"), None, "a cleared key")
print("120 values, a session, counters, patterns, a lock")

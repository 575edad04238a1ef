# Flask-Limiter: 50 requests of two processes pass in a moving window, and another after its time.
# packages: Flask-Limiter[redis]
# kind: limit
# workers: 2
import sys
import time

from flask import Flask
from flask_limiter import Limiter
from flask_limiter.util import get_remote_address

from journal import URL, allow, ask, refuse, wait_for, wait_for_askers

app = Flask(__name__)
limiter = Limiter(get_remote_address, app=app, storage_uri=URL, strategy="moving-window")


@app.route("/shared")
@limiter.limit("50 per day")
def shared():
    return "passed"


@app.route("/own")
@limiter.limit("2 per 2 seconds")
def own():
    return "passed"


def passes(path):
    status = app.test_client().get(path).status_code
    if status not in (200, 429):
        raise RuntimeError(f"status {status}")
    return status == 200


if sys.argv[1] == "work":
    ask(lambda: passes("/shared"))
if [passes("/own") for _ in range(3)] != [True, True, False]:
    refuse("2 in 2 s are allowed, and one is not as expected")
time.sleep(2.2)
wait_for(lambda: passes("/own"))
allow(50)
wait_for_askers(2)
print("and one more after its time")

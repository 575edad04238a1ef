# redis-py: its Sentinel, or its RedisCluster, on members that fail over. See clients_failover.py.
# packages: redis
import os
import random
import time

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

nodes = [node.split(":") for node in os.environ["NODES"].split(",")]
counter, accounts = "{redis-py}:count", int(os.environ["ACCOUNTS"])
if os.environ["MODE"] == "sentinel":
    sentinel = Sentinel([(host, int(port)) for host, port in nodes], socket_timeout=1)
    client = sentinel.master_for(os.environ["NAME"], socket_timeout=1, decode_responses=True)
else:
    client = None


def connected():
    """RedisCluster asks its nodes when it is made, so that may fail as well."""
    global client
    if client is None:
        start = [ClusterNode(host, int(port)) for host, port in nodes]
        client = RedisCluster(startup_nodes=start, socket_timeout=1, decode_responses=True)
    return client


def move():
    a, b = random.sample(range(accounts), 2)
    with connected().pipeline(transaction=True) as pipe:
        pipe.decrby("{bank}:%d" % a, 3)
        pipe.incrby("{bank}:%d" % b, 3)
        pipe.execute()
    return 0


requests = [("incr", lambda: connected().incr(counter)), ("get", lambda: connected().get(counter)),
            ("move", move)]
with open(os.environ["JOURNAL"], "a", buffering=1) as journal:
    while True:
        for name, request in requests:
            began = time.time()
            try:
                result = "ok %s" % (request() or 0)
            except (redis.exceptions.RedisError, redis.exceptions.RedisClusterException) as error:
                words = str(error).split() if type(error) is redis.exceptions.ResponseError else []
                result = "error %s" % ":".join([type(error).__name__] + words[:1])
            journal.write("%.6f %.6f %s %s\n" % (began, time.time(), name, result))
            time.sleep(0.01 if result.startswith("error") else 0.004)

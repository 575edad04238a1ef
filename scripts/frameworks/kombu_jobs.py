# kombu: messages in a queue, acknowledged after they were handled.
# packages: kombu[redis]
# kind: queue
# slots: 1
# loses: 1
import sys

from kombu import Connection, Exchange, Queue
from kombu.mixins import ConsumerMixin

from journal import URL, add_jobs, do_job

queue = Queue("jobs", Exchange("jobs"), routing_key="jobs")
# What was not acknowledged is delivered again after this time.
connection = Connection(URL, transport_options={"visibility_timeout": 10})


class Worker(ConsumerMixin):
    def __init__(self):
        self.connection = connection

    def get_consumers(self, Consumer, channel):
        return [Consumer([queue], callbacks=[self.handle], prefetch_count=1)]

    def handle(self, body, message):
        try:
            do_job(body["name"])
        except RuntimeError:
            message.requeue()
        else:
            message.ack()


if sys.argv[1] == "work":
    Worker().run()
producer = connection.Producer()


def put(name, _):
    producer.publish({"name": name}, exchange=queue.exchange, routing_key="jobs", declare=[queue])


add_jobs(put, delays=False)
print("requeued when they failed")

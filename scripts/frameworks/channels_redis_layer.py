# channels_redis: messages to channels and groups, by its layer of sorted sets and by publish.
# packages: channels_redis
# kill: 40
import asyncio
import time

from channels_redis.core import RedisChannelLayer
from channels_redis.pubsub import RedisPubSubChannelLayer

from journal import URL, journal, refuse, started_again


async def retried(what):
    for end in [time.time() + 60]:
        while True:
            try:
                return await what()
            except Exception as error:
                if time.time() > end:
                    raise error
                await asyncio.sleep(0.2)


async def stored():
    """Messages wait for their readers, also over the kill."""
    layer = RedisChannelLayer(hosts=[URL], capacity=1000)
    names = [await layer.new_channel() for _ in range(3)]
    for name in names:
        await layer.group_add("group", name)
    for number in range(60):
        await retried(lambda: layer.group_send("group", {"type": "text", "number": number}))
        journal("done", number)
        await asyncio.sleep(0.02)
    while not started_again():
        await asyncio.sleep(0.1)
    for name in names:
        numbers = []
        while not numbers or numbers[-1] < 59:
            message = await retried(lambda: asyncio.wait_for(layer.receive(name), 20))
            numbers.append(message["number"])
        # What had no answer is sent again by this program.
        if sorted(set(numbers)) != list(range(60)) or len(numbers) > 62:
            refuse(f"a channel has received {numbers}")
    await retried(lambda: layer.group_discard("group", names[0]))
    return layer


async def published():
    """Messages reach those that listen, and again after the kill."""
    layer = RedisPubSubChannelLayer(hosts=[URL])
    name = await layer.new_channel()
    await layer.group_add("group", name)
    for number in range(50):
        await retried(lambda: layer.group_send("group", {"type": "text", "number": number}))
        message = await asyncio.wait_for(layer.receive(name), 10)
        if message["number"] != number:
            refuse(f"{message} in the place of {number}")


async def main():
    layer = await stored()
    await published()
    await layer.flush()
    print("180 messages over the kill, 50 by publish")


asyncio.run(main())

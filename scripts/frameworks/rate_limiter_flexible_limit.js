// rate-limiter-flexible: 50 requests of two processes pass, and another after its time.
// packages: rate-limiter-flexible ioredis
// kind: limit
// workers: 2
const Client = require('ioredis');
const { RateLimiterRedis } = require('rate-limiter-flexible');
const { PORT, sleep, refuse, ask, allow, waitForAskers, forever } = require('./shared/journal.js');

const client = new Client(PORT, { maxRetriesPerRequest: 0, enableOfflineQueue: false });
client.on('error', (error) => console.error(error));
const passes = (limiter) => limiter.consume('client').then(() => true, (rejection) => {
  if (rejection instanceof Error) throw rejection;
  return false;
});

async function main() {
  while (client.status !== 'ready') await sleep(20);
  if (process.argv[2] === 'work') {
    const shared = new RateLimiterRedis({ storeClient: client, keyPrefix: 'shared', points: 50, duration: 3600 });
    await ask(() => passes(shared));
    await forever();
  }
  const own = new RateLimiterRedis({ storeClient: client, keyPrefix: 'own', points: 2, duration: 2 });
  for (const expected of [true, true, false]) {
    if (await passes(own) !== expected) refuse('2 in 2 s are allowed, and one is not as expected');
  }
  await sleep(2200);
  if (!await passes(own)) refuse('nothing passes after the time');
  allow(50);
  await waitForAskers(2);
  console.log('and one more after its time');
  process.exit(0);
}
main();

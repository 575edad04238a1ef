// redlock of npm: exclusion of three processes, expiry, extension, a lock that is held over the kill.
// packages: redlock ioredis
// kind: lock
// workers: 3
const Client = require('ioredis');
const Redlock = require('redlock');
const {
  PORT, sleep, startedAgain, refuse, waitFor, countUnder, waitForCount, forever,
} = require('./shared/journal.js');

const client = new Client(PORT);
client.on('error', (error) => console.error(error));
const patient = new Redlock([client], { retryCount: 20, retryDelay: 100 });
const locks = new Redlock([client], { retryCount: 0 });
locks.on('error', () => {});
patient.on('error', () => {});
const taken = (name, time) => locks.acquire([name], time).then(() => true, () => false);

async function main() {
  if (process.argv[2] === 'work') {
    await countUnder(async (body) => {
      const lock = await patient.acquire(['counter'], 5000);
      await body();
      await lock.unlock();
    });
    await forever();
  }
  const held = await locks.acquire(['held'], 100_000);
  const lock = await locks.acquire(['short'], 4000);
  if (await taken('short', 4000)) refuse('a lock was given to two');
  await sleep(2500);
  await lock.extend(4000);
  await sleep(2500);
  if (await taken('short', 4000)) refuse('a lock that was extended has expired too early');
  await sleep(2500);
  if (!await taken('short', 4000)) refuse('a lock has not expired');
  await waitFor(startedAgain);
  await sleep(500);
  if (await taken('held', 1000)) refuse('a lock that is held was given to another');
  await (await held.extend(5000)).unlock();
  if (!await taken('held', 1000)) refuse('a lock was not released');
  await waitForCount();
  console.log('expiry, extension, a lock held over the kill');
  process.exit(0);
}
main();

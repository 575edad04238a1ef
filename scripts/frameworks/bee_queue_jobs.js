// bee-queue: jobs, with delay and with retries. It loads its scripts once: where the server forgets them
// when it ends, the worker ends with NOSCRIPT and is started again, and the producer makes a new queue.
// packages: bee-queue
// kind: queue
// slots: 4
const Queue = require('bee-queue');
const { PORT, sleep, doJob, addJobs } = require('./shared/journal.js');

function open() {
  const queue = new Queue('jobs', {
    // Its client gives up by itself otherwise.
    redis: { host: '127.0.0.1', port: PORT, retry_strategy: () => 300 },
    activateDelayedJobs: true, stallInterval: 5000, isWorker: process.argv[2] === 'work',
  });
  queue.on('error', (error) => console.error(error));
  return queue;
}

process.on('unhandledRejection', (error) => {
  console.error(error);
  if (process.argv[2] === 'work') process.exit(1);
});

async function main() {
  let queue = open();
  if (process.argv[2] === 'work') {
    queue.on('error', (error) => { if (error.code === 'NOSCRIPT') process.exit(1); });
    queue.process(4, (job) => doJob(job.data.name));
    for (;;) {
      await queue.checkStalledJobs().catch((error) => {
        console.error(error);
        if (error.code === 'NOSCRIPT') process.exit(1);
      });
      await sleep(2000);
    }
  }
  await addJobs((name, delay) => {
    const job = queue.createJob({ name }).setId(name).retries(3).backoff('fixed', 500);
    if (delay) job.delayUntil(Date.now() + delay * 1000);
    return job.save().catch((error) => {
      if (error.code === 'NOSCRIPT') queue = open();
      throw error;
    });
  });
  console.log('stalled jobs looked for every 2 s');
  process.exit(0);
}
main();

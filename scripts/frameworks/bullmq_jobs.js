// BullMQ: jobs, with delay and with attempts.
// packages: bullmq ioredis
// kind: queue
// slots: 4
const { Queue, Worker } = require('bullmq');
const { PORT, sleep, doJob, addJobs, refuse } = require('./shared/journal.js');

const connection = { host: '127.0.0.1', port: PORT, maxRetriesPerRequest: null };

async function main() {
  if (process.argv[2] === 'work') {
    const worker = new Worker('jobs', (job) => doJob(job.data.name),
      { connection, concurrency: 4, lockDuration: 5000, stalledInterval: 2000 });
    worker.on('error', (error) => console.error(error));
    process.on('SIGTERM', async () => { await worker.close(); process.exit(0); });
    return;
  }
  const queue = new Queue('jobs', { connection });
  queue.on('error', (error) => console.error(error));
  await addJobs((name, delay) => queue.add('job', { name },
    { jobId: name, delay: delay * 1000, attempts: 3, backoff: { type: 'fixed', delay: 500 } }));
  for (let i = 0; i < 100 && (await queue.getCompletedCount()) < 120; i++) await sleep(300);
  const counts = await queue.getJobCounts();
  if (counts.failed) refuse(`the queue counts ${JSON.stringify(counts)}`);
  console.log(`the queue counts ${counts.completed} completed`);
  process.exit(0);
}
main();

// Bull: jobs, with delay and with attempts.
// packages: bull
// kind: queue
// slots: 4
const Queue = require('bull');
const { PORT, sleep, doJob, addJobs, refuse } = require('./shared/journal.js');

async function main() {
  const queue = new Queue('jobs', {
    redis: { host: '127.0.0.1', port: PORT },
    settings: { lockDuration: 5000, stalledInterval: 2000, guardInterval: 1000 },
  });
  queue.on('error', (error) => console.error(error));
  if (process.argv[2] === 'work') {
    queue.process(4, (job) => doJob(job.data.name));
    return;
  }
  await addJobs((name, delay) => queue.add({ name },
    { jobId: name, delay: delay * 1000, attempts: 3, backoff: 500 }));
  for (let i = 0; i < 100 && (await queue.getCompletedCount()) < 120; i++) await sleep(300);
  const counts = await queue.getJobCounts();
  if (counts.failed) refuse(`the queue counts ${JSON.stringify(counts)}`);
  console.log(`the queue counts ${counts.completed} completed`);
  process.exit(0);
}
main();

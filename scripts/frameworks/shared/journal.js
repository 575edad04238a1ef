// What the programs in JavaScript share: the journal, and loops for queues, locks and limiters.
const fs = require('fs');
const path = require('path');

const WORK = process.env.WORK;
const PORT = Number(process.env.PORT);
const JOBS = 120;
const DELAY = 3;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const now = () => (Date.now() / 1000).toFixed(3);
const append = (name, line) => fs.appendFileSync(path.join(WORK, name), line + '\n');
const journal = (word, name) => append('journal', `${word} ${name} ${now()}`);
const read = (name) => { try { return fs.readFileSync(path.join(WORK, name), 'utf8'); } catch { return ''; } };
const startedAgain = () => read('journal').includes('UP -');

// Ends the program: it has found something wrong.
function refuse(what) {
  fs.writeSync(1, what + '\n');
  process.exit(1);
}

// Waits until what() is true, whatever it throws meanwhile.
async function waitFor(what, seconds = 60) {
  for (const end = Date.now() + seconds * 1000; ;) {
    try {
      const value = await what();
      if (value) return value;
    } catch (error) {
      console.error(error);
    }
    if (Date.now() > end) refuse('waited in vain');
    await sleep(200);
  }
}

// What a job does. One whose name begins with r fails when it is done first.
async function doJob(name) {
  await sleep(20);
  if (name.startsWith('r') && !fs.existsSync(path.join(WORK, `failed-${name}`))) {
    append(`failed-${name}`, '');
    journal('failed', name);
    throw new Error('fails once');
  }
  journal('done', name);
}

// Calls put(name, delay in seconds) until enough jobs have been acknowledged.
async function addJobs(put, { delays = true, retries = true } = {}) {
  const end = Date.now() + 100_000;
  for (let added = 0, number = 1; added < JOBS; number++) {
    const kind = delays && number % 6 === 3 ? 'd' : retries && number % 6 === 5 ? 'r' : 'n';
    const delay = kind === 'd' ? DELAY : 0;
    const start = Date.now() / 1000;
    try {
      await put(kind + number, delay);
      append('acked', `${kind}${number} ${start + delay} ${start} ${now()}`);
      added++;
    } catch (error) {
      if (Date.now() > end) refuse(String(error));
      console.error(error);
      await sleep(300);
    }
    await sleep(20);
  }
}

// Counts in a file, in sections that a lock guards: section(body) runs body under it.
async function countUnder(section, total = JOBS) {
  const counter = path.join(WORK, 'counter');
  let finished = false;
  const body = async () => {
    const number = Number(read('counter'));
    if (number >= total) { finished = true; return; }
    await sleep(10);
    fs.writeFileSync(counter, String(number + 1));
    journal('done', number + 1);
  };
  while (!finished) {
    try {
      await section(body);
    } catch (error) {
      console.error(error);
      await sleep(200);
    }
    await sleep(5);
  }
}

const waitForCount = (total = JOBS) => waitFor(() => read('counter') === String(total), 100);

// Asks a limiter again and again: limiter() is true if the request passes.
async function ask(limiter, times = 60) {
  while (!read('allowed')) await sleep(50); // main begins
  for (let number = 0; number < times; number++) {
    const name = `${process.pid}-${number}`;
    try {
      journal(await limiter() ? 'done' : 'failed', name);
    } catch (error) {
      console.error(error);
      journal('lost', name);
      await sleep(300);
    }
    await sleep(30);
  }
  append('asked', 'all');
}

const allow = (number) => fs.writeFileSync(path.join(WORK, 'allowed'), String(number));
const waitForAskers = (count) => waitFor(() => read('asked').split('all').length - 1 === count, 100);
const forever = () => sleep(2 ** 31 - 1);

module.exports = {
  WORK, PORT, JOBS, sleep, journal, startedAgain, refuse, waitFor, doJob, addJobs, countUnder,
  waitForCount, ask, allow, waitForAskers, forever,
};

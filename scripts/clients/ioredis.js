// ioredis: its Sentinel support, or its Cluster, on members that fail over. See clients_failover.py.
// packages: ioredis
const fs = require("fs");
const Redis = require("ioredis");

const nodes = process.env.NODES.split(",").map((node) => {
  const [host, port] = node.split(":");
  return { host, port: Number(port) };
});
const timeouts = { connectTimeout: 1000, socketTimeout: 1000 };
const client =
  process.env.MODE === "sentinel"
    ? new Redis({ sentinels: nodes, name: process.env.NAME, ...timeouts })
    : new Redis.Cluster(nodes, { redisOptions: timeouts });
// Errors of connections are told by the commands.
client.on("error", () => {});

const accounts = Number(process.env.ACCOUNTS);
const counter = "{ioredis}:count";
const journal = fs.openSync(process.env.JOURNAL, "a");
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function move() {
  const a = Math.floor(Math.random() * accounts);
  const b = (a + 1 + Math.floor(Math.random() * (accounts - 1))) % accounts;
  const replies = await client.multi().decrby(`{bank}:${a}`, 3).incrby(`{bank}:${b}`, 3).exec();
  const failed = replies && replies.find(([error]) => error);
  if (!replies || failed) throw failed ? failed[0] : new Error("EXEC has replied nothing");
  return 0;
}

const requests = { incr: () => client.incr(counter), get: () => client.get(counter), move };

(async () => {
  for (;;) {
    for (const [name, request] of Object.entries(requests)) {
      const began = Date.now() / 1000;
      let result;
      try {
        result = `ok ${(await request()) || 0}`;
      } catch (error) {
        const words = error.name === "ReplyError" ? [error.message.split(" ")[0]] : error.message.split(" ").slice(0, 4);
        result = `error ${[error.name, ...words].join(":").replace(/[^A-Za-z:]/g, "")}`;
      }
      fs.writeSync(journal, `${began.toFixed(6)} ${(Date.now() / 1000).toFixed(6)} ${name} ${result}\n`);
      await sleep(result.startsWith("error") ? 10 : 4);
    }
  }
})();

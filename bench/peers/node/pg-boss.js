// pg-boss with the queue policy key_strict_fifo: https://pgboss.io/api/queues says that it holds back what
// follows in a key while a job of that key is active, waits for its retry, or has failed.
//
// Tuning: jobs are fetched and completed in batches (https://pgboss.io/api/jobs: fetch with batchSize, complete
// with many ids), in loops that never sleep. work() would do the same and sleep at least half a second after
// each batch that was not full (https://pgboss.io/api/workers), which here is every one at the end.
import { PgBoss } from "pg-boss";
import { setTimeout as sleep } from "node:timers/promises";
import { fail, main, payload, rows } from "./harness.js";

const queue = "bench";
let boss;

async function load(order) {
  boss = new PgBoss({ connectionString: process.env.DATABASE_URL, max: order.loops + 1, supervise: false, schedule: false });
  boss.on("error", fail);
  await boss.start();
  await boss.createQueue(queue, { policy: "key_strict_fifo" });
  for (const chunk of rows(order, 10_000)) {
    await boss.insert(
      queue,
      chunk.map(({ key, seq }) => ({ data: payload(key, seq), singletonKey: `key-${key}` })),
    );
  }
}

async function start(order, handle) {
  const loop = async () => {
    for (;;) {
      const jobs = await boss.fetch(queue, { batchSize: order.batch });
      if (jobs.length === 0) {
        await sleep(order.poll_ms);
        continue;
      }
      await Promise.all(jobs.map((job) => handle(job.data)));
      await boss.complete(queue, jobs);
    }
  };
  await Promise.all(Array.from({ length: order.loops }, loop));
}

main({ load, start }).catch(fail);

// graphile-worker: FIFO by queue_name.
//
// Tuning: https://worker.graphile.org/docs/performance (24 jobs at once, a pool of 25, completions batched
// without a delay, and the local queue); https://worker.graphile.org/docs/library/add-job says that jobs of one
// queue run one at a time, in order. The local queue keeps that promise since 0.18:
// https://github.com/graphile/worker/issues/621.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { fail, main, payload, rows } from "./harness.js";

const silent = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});
const connectionString = process.env.DATABASE_URL;

async function load(order) {
  const utils = await makeWorkerUtils({ connectionString, logger: silent });
  await utils.migrate();
  for (const chunk of rows(order, 10_000)) {
    await utils.addJobs(
      chunk.map(({ key, seq }) => ({ identifier: "bench", payload: payload(key, seq), queueName: `key-${key}` })),
    );
  }
  await utils.release();
}

async function start(order, handle) {
  const worker = {
    connectionString,
    concurrentJobs: 24,
    maxPoolSize: 25,
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    // After a fetch that found nothing the worker sleeps this long. The default of 2 s would be all that is
    // measured whenever every queue has its one job in flight.
    pollInterval: order.poll_ms,
  };
  if (order.local_queue > 0) worker.localQueue = { size: order.local_queue };
  await run({ logger: silent, noHandleSignals: true, preset: { worker }, taskList: { bench: handle } });
}

main({ load, start }).catch(fail);

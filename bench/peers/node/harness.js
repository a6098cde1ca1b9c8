// What every Node.js peer shares: the conversation with the driver (worker.go tells it whole) and the record
// of what the handler saw.
import { writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

// The payload is the one that postern bench posts.
export const payload = (key, seq) => ({
  key,
  seq,
  to: "B62qre3erTHfzQckNuibViWQGyyKwZseztqrjPZBv6SQF384Rg6ESAy",
  amount: "1000000",
});

const say = (event) => process.stdout.write(JSON.stringify({ event }) + "\n");

// Record keeps the begin and end of every call as pairs of 32-bit numbers: key, and seq * 2 (+ 1 for an end).
class Record {
  constructor(calls) {
    this.events = new Int32Array(calls * 4);
    this.length = 0;
    this.ended = 0;
  }
  add(key, word) {
    if (this.length === this.events.length) {
      const larger = new Int32Array(2 * this.length);
      larger.set(this.events);
      this.events = larger;
    }
    this.events[this.length++] = key;
    this.events[this.length++] = word;
  }
}

// rows yields what is loaded, in chunks of at most `most`, each for one transaction. It goes over all keys and
// then over all keys again, so that no chunk holds a key twice: both peers order by the time of a transaction.
export function* rows({ keys, depth }, most) {
  for (let seq = 0; seq < depth; seq++) {
    for (let from = 0; from < keys; from += most) {
      const chunk = [];
      for (let key = from; key < Math.min(from + most, keys); key++) chunk.push({ key, seq });
      yield chunk;
    }
  }
}

// main runs one system: load(order) fills its tables, start(order, handle) begins to work and returns at once.
export async function main({ load, start }) {
  const order = JSON.parse(process.argv[2]);
  const total = order.keys * order.depth;
  const record = new Record(total);
  const handle = async ({ key, seq }) => {
    record.add(key, seq * 2);
    if (order.hold_ms > 0) await sleep(order.hold_ms);
    record.add(key, seq * 2 + 1);
    if (++record.ended === total) say("handled");
  };
  await load(order);
  say("loaded");
  for await (const line of createInterface({ input: process.stdin })) {
    if (line === "go") start(order, handle).catch(fail);
  }
  writeFileSync(order.record, Buffer.from(record.events.buffer, 0, record.length * 4));
  say("stopped");
  process.exit(0);
}

export function fail(error) {
  console.error(error);
  process.exit(1);
}

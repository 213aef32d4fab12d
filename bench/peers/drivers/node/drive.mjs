// One process of one Node peer: `node drive.mjs PEER COMMAND [ARGUMENT...]`. Same commands, payload and record as drive.py.

import fs from 'node:fs';
import { createRequire } from 'node:module';

const PAD = 'x'.repeat(180);
const SPACING_MS = [20, 50];
const WARM_UPS = 20;

// Packages live beside the package.json that was installed, not beside this file.
export const require = createRequire(process.env.BENCH_NODE_PACKAGE);
export const url = process.env.BENCH_URL;
export const settings = JSON.parse(process.env.BENCH_SETTINGS);

export function* batches(items, size) {
  for (let start = 0; start < items.length; start += size) yield items.slice(start, start + size);
}

// Date.now() knows whole milliseconds only.
const now = () => (performance.timeOrigin + performance.now()) / 1000;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const payload = (number) => ({ number, pad: PAD });
const payloads = (count) => Array.from({ length: count }, (_, number) => payload(number));

let descriptor;
const row = Buffer.alloc(16);
export function append(number) {
  descriptor ??= fs.openSync(process.env.BENCH_RECORD, 'a');
  row.writeBigInt64LE(BigInt(number), 0);
  row.writeDoubleLE(now(), 8);
  fs.writeSync(descriptor, row);
}

const commands = {
  async setup(client) {
    await client.setup();
    return {};
  },
  async warm(client) {
    await client.submitOne(payload(-1));
    return {};
  },
  async submit(client, count) {
    const jobs = payloads(count);
    const beganAt = now();
    await client.submit(jobs);
    return { submit_s: now() - beganAt };
  },
  async trickle(client, count) {
    for (let i = 0; i < WARM_UPS; i++) {
      await client.submitOne(payload(-1));
      await sleep(20);
    }
    await sleep(1000);
    const calls = [];
    for (const job of payloads(count)) {
      const calledAt = now();
      await client.submitOne(job);
      calls.push([calledAt, now()]);
      await sleep(SPACING_MS[0] + Math.random() * (SPACING_MS[1] - SPACING_MS[0]));
    }
    return { calls };
  },
  async at(client, count, leadS, spanS) {
    const base = now() + leadS;
    const due = Array.from({ length: count }, (_, number) => base + (spanS * number) / count);
    await client.submitAt(due.map((at, number) => [payload(number), new Date(Math.round(at * 1000))]));
    return { due, submitted_at: now() };
  },
};

async function main() {
  const [name, command, ...words] = process.argv.slice(2);
  const { open, work } = await import(`./${name}.mjs`);
  if (command === 'work') return work();
  const client = await open(command);
  const answer = await commands[command](client, ...words.map(Number));
  await client.close();
  console.log(JSON.stringify(answer));
}

if (process.argv[1].endsWith('drive.mjs')) {
  main().catch((error) => {
    console.error(error);
    process.exit(1);
  });
}

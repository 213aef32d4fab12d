// pg-boss, with arrays of jobs, woken by NOTIFY, on a queue with a partition of its own.

import { append, batches, require, settings, url } from './drive.mjs';

const { PgBoss } = require('pg-boss');
const BATCH = 5000;

const start = async (options) => {
  const boss = new PgBoss({ connectionString: url, schedule: false, ...options });
  boss.on('error', (error) => console.error(error));
  return boss.start();
};

export async function open(command) {
  const boss = await start({ supervise: false, migrate: command === 'setup' });
  const insert = async (jobs) => {
    for (const batch of batches(jobs, BATCH)) await boss.insert('bench', batch);
  };
  return {
    setup: () => boss.createQueue('bench', { notify: true, partition: true }),
    submit: (payloads) => insert(payloads.map((data) => ({ data }))),
    submitOne: (payload) => boss.send('bench', payload),
    submitAt: (jobs) => insert(jobs.map(([data, startAfter]) => ({ data, startAfter }))),
    close: () => boss.stop({ graceful: false }),
  };
}

export async function work() {
  const boss = await start({ migrate: false, useListenNotify: true });
  await boss.work('bench', settings, async (jobs) => {
    for (const job of jobs) append(job.data.number);
  });
}

// Graphile Worker, with the preset that its page on performance gives for the highest rate.

import { append, batches, require, settings, url } from './drive.mjs';

const { makeWorkerUtils, run, runMigrations } = require('graphile-worker');
const BATCH = 1000;

export async function open(command) {
  if (command === 'setup') return { setup: () => runMigrations({ connectionString: url }), close: async () => {} };
  const utils = await makeWorkerUtils({ connectionString: url });
  const add = async (jobs) => {
    for (const batch of batches(jobs, BATCH)) await utils.addJobs(batch);
  };
  return {
    submit: (payloads) => add(payloads.map((payload) => ({ identifier: 'note', payload }))),
    submitOne: (payload) => utils.addJob('note', payload),
    submitAt: (jobs) => add(jobs.map(([payload, runAt]) => ({ identifier: 'note', payload, runAt }))),
    close: () => utils.release(),
  };
}

export async function work() {
  const taskList = { note: async ({ number }) => append(number) };
  const runner = await run({ preset: { worker: { connectionString: url, ...settings } }, taskList, noHandleSignals: true });
  await runner.promise;
}

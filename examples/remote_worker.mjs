// A Sexton worker in plain JavaScript: Node 18 or newer, no packages.
// SEXTON_API_URL=http://127.0.0.1:8474 node remote_worker.mjs
const api = process.env.SEXTON_API_URL ?? "http://127.0.0.1:8474";
const lease = Number(process.env.LEASE ?? 30); // seconds; without a heartbeat for this long, other workers take over the runs
const slots = 4;

// The tasks of this worker. A thrown error fails the attempt.
const tasks = {
  shout: async ({ text }) => text.toUpperCase(),
  nap: async ({ seconds }, tell) => {
    await tell({ fraction: 0 });
    await sleep(seconds);
  },
};

const sleep = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));
const held = new Map(); // run id -> run
const leaving = new AbortController();
let worker_id;

async function post(path, body, signal) {
  const headers = { "content-type": "application/json" };
  const response = await fetch(api + path, { method: "POST", headers, body: JSON.stringify(body), signal });
  return { status: response.status, ...(await response.json()) };
}

async function work(run) {
  const report = (verb, fields) => post(`/v1/runs/${run.run_id}/${verb}`, { lease: run.lease, ...fields });
  const outcome = await Promise.resolve(tasks[run.handler](run.payload, (progress) => report("heartbeat", { progress }))).then(
    (result) => ["complete", { result }],
    (error) => ["fail", { error: { type: error.name, message: error.message }, permanent: error instanceof TypeError }],
  );
  // The same report may be sent again after a lost answer: it counts once.
  while ((await report(...outcome).catch(() => ({ status: 503 }))).status === 503) await sleep(1);
  held.delete(run.run_id);
}

process.once("SIGTERM", () => leaving.abort());
setInterval(() => {
  if (worker_id) post(`/v1/workers/${worker_id}/heartbeat`, { holding: [...held.keys()] }).catch(() => {});
}, lease * 333);

while (!leaving.signal.aborted) {
  const asked = { worker_id, name: "node", tasks: Object.keys(tasks), limit: slots - held.size, wait: "20s", lease };
  const answer = held.size < slots && (await post("/v1/workers/acquire", asked, leaving.signal).catch(() => ({ status: 503 })));
  if (answer.status === 200) worker_id = answer.worker_id;
  else if (answer.code === "worker_lost") worker_id = undefined; // join again
  else await sleep(0.2);
  for (const run of answer.runs ?? []) {
    held.set(run.run_id, run);
    work(run);
  }
}
while (held.size) await sleep(0.1);
await fetch(`${api}/v1/workers/${worker_id}`, { method: "DELETE" });
process.exit();

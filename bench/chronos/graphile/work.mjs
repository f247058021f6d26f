// Works all jobs of a database with graphile-worker, and says how long that took.
// Usage: node work.mjs migrate|work URL COUNT
import { run, runMigrations } from "graphile-worker";
import { EventEmitter } from "node:events";

const [mode, connectionString, count] = process.argv.slice(2);

// The settings of its page on performance: https://worker.graphile.org/docs/performance
const preset = {
  worker: {
    connectionString,
    concurrentJobs: 24,
    maxPoolSize: 25,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

if (mode === "migrate") {
  await runMigrations({ preset });
} else {
  const wanted = Number(count);
  const events = new EventEmitter();
  let done = 0;
  const all = new Promise((resolve) => events.on("job:complete", () => ++done === wanted && resolve()));
  const began = process.hrtime.bigint();
  const runner = await run({ preset, events, noHandleSignals: true, taskList: { noop: async () => {} } });
  await all;
  await runner.stop(); // which ends the last batch of completions
  console.log(JSON.stringify({ done, seconds: Number(process.hrtime.bigint() - began) / 1e9 }));
}

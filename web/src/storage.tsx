// Storage: what takes room, what would prune delete and why, is it sound?
import type { JobMoved, PruneDone, PrunePlan } from "./answers";
import { useState } from "preact/hooks";
import { about, at, post, to, toFailure, useData, useLive, type Failure } from "./api";
import { Link, runPath } from "./router";
import { useTitle } from "./shell";
import { Command, Instead, Problem, Time, bytes, count, line, plural, visible } from "./text";

export function Storage() {
  const { data, error, reload } = useData(at("/api/storage"));
  const [prune, setPrune] = useState<PrunePlan | null>(null);
  const [typed, setTyped] = useState("");
  const [problem, setProblem] = useState<Failure | null>(null);
  const [done, setDone] = useState<PruneDone | null>(null);
  const [job, setJob] = useState<JobMoved | null>(null);
  useTitle("Storage", "holdfast stats");
  useLive((event) => { if (event.type === "job" && event.job === "verify") { setJob(event.done ? null : event); if (event.done) reload(); } });
  if (!data) return <Instead of={error} />;
  const fail = (caught: unknown) => setProblem(toFailure(caught));
  const { stats } = data;
  const most = Math.max(1, ...data.runs.map((one) => one.bytes));
  const mostDay = Math.max(1, ...data.by_day.map((one) => one[1]));
  const mostTrigger = Math.max(1, ...data.by_trigger.map((one) => one[1]));
  const verified = data.verified;
  return (
    <section class="storage" aria-labelledby="title">
      <div class="bar">
        <h1 id="title">Storage</h1>
        <span class="dim">{line(stats.engine)} · {line(stats.url)}</span>
        <span class="grow" />
        {job ? <span role="status">checking {line(job.what)} {count(job.count ?? 0)}</span> : verified && <span class={verified.sound ? "good" : "bad"}>{verified.sound ? "sound ✓" : plural(verified.faults.length, "fault")} <Time at={new Date(verified.at * 1000).toISOString()} /></span>}
        <button type="button" disabled={data.verifying || !!job} onClick={() => post(to("/api/verify")).then(reload, fail)}>verify</button>
      </div>
      <Problem of={problem} />
      <dl class="figures">
        <div><dt>on disk</dt><dd>{bytes(stats.file_bytes)}</dd></div>
        <div><dt>content</dt><dd>{bytes(stats.chunk_bytes)} <small class="dim">in {plural(stats.chunks, "chunk")}</small></dd></div>
        <div><dt>stored</dt><dd>{bytes(stats.stored_bytes)} <small class="dim">{stats.stored_bytes ? `×${(stats.chunk_bytes / stats.stored_bytes).toFixed(1)} saved` : ""}</small></dd></div>
        <div><dt>runs</dt><dd>{count(stats.runs)}</dd></div>
        <div><dt>checkpoints</dt><dd>{count(stats.checkpoints)}</dd></div>
        <div><dt>keys</dt><dd>{data.keys.length ? data.keys.map(line).join(", ") : "none"}</dd></div>
      </dl>
      {verified && !verified.sound && <ul class="faults">{verified.faults.map((one, n) => <li key={n} class="bad">{line(one.kind)} {line(one.run ?? "")} {line(one.checkpoint ?? "")} {line(one.section ?? "")}: {visible(one.detail)}</li>)}{verified.problem && <li class="bad">{visible(verified.problem)}</li>}</ul>}
      <div class="split even">
        <div class="pane"><h2>By run</h2>
          <ul class="bars">{data.runs.slice(0, 20).map((one) => <li key={one.run}><Link to={runPath(one.run)}>{line(one.run)}</Link><span class="gauge"><span style={{ width: `${(one.bytes / most) * 100}%` }} /></span><span>{bytes(one.bytes)}</span></li>)}</ul>
          {data.not_counted > 0 && <p class="dim">{plural(data.not_counted, "run")} not counted yet. <button type="button" onClick={reload}>count on</button></p>}
        </div>
        <div class="pane"><h2>By trigger</h2>
          <ul class="bars">{data.by_trigger.map(([name, size]) => <li key={name}><span class={`trigger t-${name}`}>{line(name)}</span><span class="gauge"><span style={{ width: `${(size / mostTrigger) * 100}%` }} /></span><span>{bytes(size)}</span></li>)}</ul>
          <h2>Growth a day</h2>
          <ul class="bars">{data.by_day.slice(-14).map(([day, size]) => <li key={day}><span>{day}</span><span class="gauge"><span style={{ width: `${(size / mostDay) * 100}%` }} /></span><span>{bytes(size)}</span></li>)}</ul>
        </div>
      </div>
      <div class="pane">
        <div class="bar small"><h2>Retention</h2><span class="grow" /><button type="button" onClick={() => post(to("/api/prune"), {}).then((plan) => { setPrune(plan); setDone(null); setProblem(null); }, fail)}>what would prune delete?</button></div>
        {prune && (
          <div>
            <p>{["delete", "archive", "keep"].map((action) => <span key={action} class={`tag a-${action}`}>{count(prune.counts[action] ?? 0)} {action}</span>)}</p>
            <ul class="reasons">{prune.reasons.map(([action, reason, n]) => <li key={`${action} ${reason}`}><strong>{action}</strong> {count(n)}: {line(reason)}</li>)}</ul>
            {about.value?.writes && (prune.counts.delete ?? 0) + (prune.counts.archive ?? 0) > 0 && !done && (
              <form onSubmit={(event) => { event.preventDefault(); post(to("/api/prune/{digest}/run", { digest: prune.digest }), { typed }).then((told) => { setDone(told); setProblem(null); reload(); }, fail); }}>
                <label>type <code>prune</code> to delete <input value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></label> <button disabled={typed !== "prune"}>Delete exactly these</button>
              </form>
            )}
            {done && <p role="status">{plural(done.deleted, "checkpoint")} deleted, {count(done.archived)} archived.</p>}
            <Command line={prune.command} />
          </div>
        )}
      </div>
    </section>
  );
}

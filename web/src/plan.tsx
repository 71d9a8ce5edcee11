// A recovery plan: what exactly will happen to my state and files, what is left to decide, how do I undo it?
import type { AskedAnswer, ChainAnswer, JobMoved, PlanDone, PlanFacts, Sides as SidesOf } from "./answers";
import { useEffect, useRef, useState } from "preact/hooks";
import { about, at, handOver, post, query, to, toFailure, useData, useLive, type Failure } from "./api";
import { Lanes } from "./lanes";
import { Link, checkpointPath, go, params, runPath, setParams } from "./router";
import { Pager } from "./runs";
import { useTitle } from "./shell";
import { Command, Instead, Problem, Time, bytes, count, line, plural, visible } from "./text";

const CHOICES = [["take", "take the checkpoint's"], ["keep", "keep mine"], ["merge", "merge"], ["both", "keep both"]] as const;

export function NewPlan() {
  const spec = params.value.get("spec") ?? undefined, undo = params.value.get("undo") ?? undefined;
  const [error, setError] = useState<Failure | null>(null);
  useTitle("Plan", `holdfast ${undo ? `undo ${undo}` : `resume ${spec}`} --dry-run`);
  useEffect(() => {
    post(to("/api/plans"), undo ? { undo } : { spec }).then((plan) => go(`/plan/${plan.digest}`, { replace: true }), (caught) => setError(toFailure(caught)));
  }, [spec, undo]);
  return error ? <Instead of={error} /> : <p class="dim">Planning; nothing is touched…</p>;
}

const PAGE = 200;

export function Plan({ digest }: { digest: string }) {
  const [turn, setTurn] = useState(0);
  const offset = Number(params.value.get("offset") ?? 0);
  const { data, error } = useData(at("/api/plans/{digest}", { digest }, { offset, limit: PAGE }), turn);
  const [problem, setProblem] = useState<Failure | null>(null);
  const [result, setResult] = useState<PlanDone | null>(null);
  const [running, setRunning] = useState(false);
  const [progress, setProgress] = useState<JobMoved | null>(null);
  const shown = params.value.get("path"); // in the address, so that a new decision leaves it open
  const show = (path: string | null) => setParams({ path });
  const cancel = useRef<HTMLButtonElement>(null);
  const plan = data?.plan;
  useTitle(plan ? `Plan for ${plan.run}` : "Plan", data?.command ?? "holdfast resume --dry-run");
  useLive((event) => {
    if (event.type === "run" && event.run === plan?.run && !running) setTurn((n) => n + 1);
    if (event.type === "job" && event.job === digest) setProgress(event);
  });
  useEffect(() => { // whether it still holds is looked at while it is open
    const timer = setInterval(() => { if (!document.hidden && !result && !running) setTurn((n) => n + 1); }, 2000);
    return () => clearInterval(timer);
  }, [digest, result, running]);
  useEffect(() => { if (data) cancel.current?.focus(); }, [digest, !!data]);
  if (!data || !plan) return <Instead of={error} />;
  const asked = data.asked, paths = asked.decisions.paths ?? {};
  const again = async (change: (asked: AskedAnswer) => void = () => undefined) => {
    const next = structuredClone(asked);
    change(next);
    try {
      const made = await post(to("/api/plans"), next);
      setProblem(null);
      go(`/plan/${made.digest}${query({ path: shown, offset: offset || null })}`, { replace: true });
      setTurn((n) => n + 1);
    } catch (caught) { setProblem(toFailure(caught)); }
  };
  const carryOut = async () => {
    setRunning(true);
    try { setResult(await post(to("/api/plans/{digest}/run", { digest }))); setProblem(null); } catch (caught) { setProblem(toFailure(caught)); setTurn((n) => n + 1); }
    setRunning(false);
  };
  if (result) return <Result of={result} />;
  const files = data.files;
  const blocked = plan.blockers.length > 0 || data.moved.length > 0 || !!data.owner;
  const counts = files ? Object.entries(files.counts) : [];
  return (
    <section class="plan" aria-labelledby="title">
      <div class="bar">
        <h1 id="title">{plan.kind === "undo" ? "Undo" : plan.head === plan.checkpoint ? "Resume" : "Go back"}: <Link to={runPath(plan.run)}>{line(plan.run)}</Link> → <Link to={checkpointPath(`${plan.run}@${plan.seq}`)}>@{count(plan.seq)}</Link></h1>
        <span class={`verdict v-${plan.verdict}`}>{plan.verdict}</span>
        <span class="dim">plan <code>{digest.slice(0, 12)}</code> made <Time at={plan.made_at} /></span>
        {data.moved.length === 0 ? <span class="good">still holds ✓</span> : <span class="bad">no longer holds</span>}
      </div>
      <Problem of={problem} />
      {data.moved.length > 0 && <div class="problem" role="alert"><p>The world moved since this plan was made; it will not be carried out:</p><ul>{data.moved.map((one) => <li key={one}>{visible(one)}</li>)}</ul><button type="button" onClick={() => void again()}>plan again</button></div>}
      {data.owner && <p class="problem">A process has this run now: {line(data.owner)}. Pause or end it first.</p>}
      {data.head_seq !== null && plan.seq > 0 && <Ghost plan={plan} head={data.head_seq} />}
      <ul class="will">
        {[plan.phase && `continues at phase ${plan.phase}`, plan.state && `state ${plan.state}`, plan.task && `task ${plan.task}`].filter(Boolean).map((one) => <li key={String(one)}>{line(one)}</li>)}
        <li>restores {plural(plan.sections.length, "section")}: <span class="dim">{plan.sections.map(line).join(", ")}</span></li>
        {plan.steps_done > 0 && <li>keeps {plural(plan.steps_done, "step")} that are done</li>}
        {plan.rerun.length > 0 && <li class="warn">runs again: {plan.rerun.slice(0, 20).map(line).join(", ")}{plan.rerun.length > 20 ? ` and ${plan.rerun.length - 20} more` : ""}</li>}
        {plan.pending_agents.length > 0 && <li>starts again: agents {plan.pending_agents.map(line).join(", ")}</li>}
        {plan.findings.map((one, n) => <li key={n} class={one.verdict === "resume" ? "" : "warn"}>{one.verdict}: {visible(one.detail)}</li>)}
        {plan.warnings.map((one) => <li key={one} class="warn">{visible(one)}</li>)}
        {plan.damage.map((one, n) => <li key={n} class="bad">damaged: @{one.seq} {visible(one.detail)} {visible(one.lost)}</li>)}
        {plan.git.map((one) => <li key={one}>git: {visible(one)}</li>)}
        {plan.blockers.map((one) => <li key={one} class="bad">cannot continue: {visible(one)}</li>)}
      </ul>
      {plan.unknown.map((one) => (
        <fieldset key={one.step} class="unknown"><legend>Step <strong>{line(one.step)}</strong>{one.effect ? ` (${line(one.effect)})` : ""} began and has no recorded end</legend>
          {[["ask", "ask when the run gets there"], ["retry", "do it again"], ["skip", "take it as done"]].map(([value, label]) => (
            <label key={value}><input type="radio" name={`unknown-${one.step}`} checked={one.treated === value} onChange={() => void again((next) => { next.unknown[one.step] = value; })} /> {label}</label>
          ))}
        </fieldset>
      ))}
      {files && (
        <div class="plan-files">
          <div class="bar small">
            <h2>Files in <code>{line(files.target)}</code></h2>
            {counts.length === 0 ? <span class="dim">as they are</span> : counts.map(([action, n]) => <span key={action} class={`tag a-${action}`}>{count(n)} {action}</span>)}
            <span class="grow" />
            {(files.counts.conflict > 0 || asked.decisions.conflicts) && <label>all conflicts <select value={asked.decisions.conflicts ?? ""} onChange={(event) => { const value = event.currentTarget.value; void again((next) => { if (value) next.decisions.conflicts = value; else delete next.decisions.conflicts; }); }}><option value="">decide each</option>{CHOICES.map(([value, label]) => <option key={value} value={value}>{label}</option>)}</select></label>}
          </div>
          <ul class="items">
            {files.items.map((one) => (
              <li key={one.path} class={`a-${one.action}`}>
                <div class="item">
                  <span class="action">{one.action === "conflict" ? "!" : ""} {one.action}</span>
                  <button type="button" class="quiet file" aria-expanded={shown === one.path} onClick={() => show(shown === one.path ? null : one.path)}>{line(one.path)}</button>
                  <span class="dim">{line(one.reason)}{one.beside ? ` → ${line(one.beside)}` : ""}</span>
                  {plan.kind !== "undo" && (one.action === "conflict" || paths[one.path]) && (
                    <span class="choices" role="group" aria-label={`Decide ${line(one.path)}`}>
                      {CHOICES.map(([value, label]) => <button key={value} type="button" aria-pressed={paths[one.path] === value} onClick={() => void again((next) => { next.decisions.paths = { ...paths, [one.path]: value }; })}>{label}</button>)}
                    </span>
                  )}
                </div>
                {shown === one.path && <Sides digest={digest} path={one.path} />}
              </li>
            ))}
          </ul>
          {files.total > PAGE && <Pager total={files.total} offset={offset} page={PAGE} words={["before", "next"]} go={(to) => setParams({ offset: to || null, path: null }, { push: true })} />}
        </div>
      )}
      <div class="do">
        <span class="dim">A safety checkpoint is taken first; <code>holdfast undo {line(plan.run)}</code> goes back.</span>
        <span class="grow" />
        {progress && running && <progress max={progress.total || 1} value={progress.count} aria-label="Progress" />}
        <button type="button" ref={cancel} onClick={() => go(runPath(plan.run))}>Cancel</button>
        {about.value?.writes
          ? <button type="button" class="primary" disabled={blocked || running} onClick={() => void carryOut()}>{running ? "Doing it…" : "Run exactly this plan"}</button>
          : <span class="dim">read-only: start <code>holdfast ui --write</code>, or use the command</span>}
      </div>
      <p><Command line={data.command} />{Object.keys(asked.decisions).length > 0 && <> <button type="button" onClick={() => handOver(new Blob([JSON.stringify(asked.decisions, null, 2)]), "decisions.json")}>download decisions.json</button></>}</p>
    </section>
  );
}

// The line that the plan would begin, drawn before it is there.
function Ghost({ plan, head }: { plan: PlanFacts; head: number }) {
  const made = head + 1, back = plan.seq !== head;
  const line0: ChainAnswer = { lane: 0, ranges: back ? [[made, made], [plan.seq, plan.seq]] : [[made, head]], joins: null, gaps: [] };
  const chains = back ? [line0, { lane: 1, ranges: [[head, head]], joins: plan.seq, gaps: [] } as ChainAnswer] : [line0];
  const between = head - plan.seq - 1;
  const spec = (seq: number) => <Link to={checkpointPath(`${plan.run}@${seq}`)}>@{count(seq)}</Link>;
  const row = (seq: number) => <Lanes chains={chains} seq={seq} height={28} head={seq === made} ghost={line0} />;
  return (
    <ol class="ghosts" aria-label="Where the run would stand">
      <li>{row(made)}<strong>new head</strong> <span class="dim">would stand here after the plan</span></li>
      {back && <li>{row(head)}{spec(head)} <span class="dim">head now: stays beside the new line{between > 0 ? `, with the ${plural(between, "checkpoint")} before it` : ""}; undo goes back to it</span></li>}
      <li>{row(plan.seq)}{spec(plan.seq)} <span class="dim">{back ? "state and files as they were here" : "head now: it continues from here"}</span></li>
    </ol>
  );
}

function Sides({ digest, path }: { digest: string; path: string }) {
  const { data, error } = useData(at("/api/plans/{digest}/item", { digest }, { path }));
  if (!data) return error ? <Problem of={error} /> : <p class="dim">…</p>;
  const sides: [keyof SidesOf, string][] = [["checkpoint", "in the checkpoint"], ["last", "when the run last knew it"], ["disk", "on disk now"], ["result", "result"]];
  return (
    <div class="sides">
      {sides.map(([name, label]) => (
        <figure key={name} class={name}><figcaption>{label}{data.sides[name].kind === "text" && <span class="dim"> {bytes(new Blob([data.sides[name].text]).size)}</span>}</figcaption>
          <pre tabIndex={0} aria-label={label}>{data.sides[name].kind === "absent" ? "(not there)" : visible(data.sides[name].text)}</pre></figure>
      ))}
      <p class="dim">{line(data.note)}</p>
    </div>
  );
}

function Result({ of }: { of: PlanDone }) {
  const title = useRef<HTMLHeadingElement>(null);
  useEffect(() => title.current?.focus(), []);
  return (
    <section class="plan" aria-labelledby="title">
      <h1 id="title" tabIndex={-1} ref={title}>Done: <Link to={runPath(of.run)}>{line(of.run)}</Link> stands at a new head</h1>
      {of.files && <p>Files: {of.files.written} written, {of.files.replaced} replaced, {of.files.deleted} deleted, {of.files.kept} kept.</p>}
      {of.warnings.map((one) => <p key={one} class="warn">{visible(one)}</p>)}
      <p><Link class="button" to={`/plan/new?undo=${encodeURIComponent(of.run)}`}>Undo…</Link> <Link class="button primary" to={runPath(of.run)}>Look at the run</Link></p>
      <p><Command line={of.command} /></p>
    </section>
  );
}

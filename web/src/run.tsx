// One run: how did it get here, where did time, money and files go, where could I go back?
import type { Why as WhyOf } from "./answers";
import { useEffect, useState } from "preact/hooks";
import { about, at as address, post, to as into, toFailure, useData, useMoves, type Failure } from "./api";
import { CheckpointPane } from "./checkpoint";
import { Checkpoints } from "./checkpoints";
import { ForkDialog } from "./fork";
import { Messages } from "./messages";
import { Link, comparePath, go, params, planPath, runPath, setParams } from "./router";
import { announce, side, useKeys, useTitle } from "./shell";
import { Bar, Command, Instead, Problem, Status, Time, count, duration, line, quoted, visible } from "./text";
import { Timeline } from "./timeline";

export function markSide(spec: string): void {
  if (side.value && side.value !== spec) {
    const first = side.value;
    side.value = null;
    go(comparePath(first, spec));
  } else side.value = spec;
}

export function Run({ name }: { name: string }) {
  const moves = useMoves(name);
  const { data, error } = useData(address("/api/runs/{run}", { run: name }), moves);
  const spans = useData(address("/api/runs/{run}/spans", { run: name }), moves);
  const samples = useData(address("/api/runs/{run}/samples", { run: name }, { n: 300 }), moves);
  const [forking, setForking] = useState(false);
  const [problem, setProblem] = useState<Failure | null>(null);
  const [lastSeen, setLastSeen] = useState(0);
  const last = data?.last_seq ?? 0;
  const gone = new Set<number>(data?.deleted ?? []);
  const snapped = (seq: number, by: number, without: number) => { // past what was deleted, and back if nothing is left that way
    let to = seq;
    while (gone.has(to)) to += by;
    return to < 1 || to > last ? without : to;
  };
  const asked = Number(params.value.get("at") ?? 0) || last;
  const at = snapped(asked, -1, last);
  const spec = `${name}@${at}`;
  const filter = { q: params.value.get("q") ?? "", trigger: params.value.get("trigger") ?? "", phase: params.value.get("phase") ?? "", path: params.value.get("touching") ?? "" };
  useTitle(name, at === last ? `holdfast log ${name}` : `holdfast show ${spec}`);
  const select = (seq: number) => setParams({ at: seq === last ? null : seq });
  useEffect(() => {
    if (lastSeen && last > lastSeen) announce(`${name} saved checkpoint ${last}`);
    setLastSeen(last);
  }, [last]);
  const step = (by: number) => select(snapped(Math.max(1, Math.min(last, at + by)), by, at));
  useKeys({
    j: () => step(-1), k: () => step(1), "]": () => step(1), "[": () => step(-1), "g h": () => select(last),
    x: () => markSide(spec), c: () => go(comparePath(`${name}@${Math.max(1, at - 1)}`, spec)), p: () => go(planPath(spec)),
    s: () => setParams({ tab: "state" }), f: () => setParams({ tab: "files" }), m: () => setParams({ tab: "messages" }), e: () => setParams({ tab: "events" }), o: () => setParams({ tab: "output" }),
    Enter: () => go(`/c/${encodeURIComponent(spec)}`), Escape: () => go("/"),
  });
  if (!data) return <Instead of={error} />;
  const tell = (what: string, body?: unknown) => post(into("/api/runs/{run}/tell/{what}", { run: name, what }), body).then(() => setProblem(null), (caught) => setProblem(toFailure(caught)));
  const origin = data.lineage?.[0];
  const { framework, thread } = data.attributes;
  const live = ["moving", "waiting", "open", "paused"].includes(data.shown);
  return (
    <section class="run" aria-labelledby="title">
      <div class="bar">
        <h1 id="title">{line(thread || name)}</h1>
        {framework && <span class="tag">{line(framework)}</span>}{thread && thread !== name && <code class="dim">{line(name)}</code>}
        <Status of={data.shown} detail={data.detail} />
        {data.phase && <span class="dim">phase <strong>{line(data.phase)}</strong></span>}
        {data.state && <span class="dim">state <strong>{line(data.state)}</strong></span>}
        <span class="dim">saved <Time at={data.saved_at ?? data.updated_at} /></span>
        {data.owner && <span class="dim" title={data.owner}>owner {line(data.owner).slice(0, 40)}</span>}
        {origin && <span class="dim">↱ forked from <Link to={runPath(origin.run ?? "")}>{line(`${origin.run}@${origin.seq ?? ""}`)}</Link></span>}
        <span class="grow" />
        {data.budget?.filter((one) => one.limit).map((one) => <Bar key={one.name} used={one.used} limit={one.limit} name={one.name} />)}
        {about.value?.writes && live && (data.shown === "paused" ? <button type="button" onClick={() => tell("unpause")}>continue</button> : <button type="button" onClick={() => tell("pause")}>pause</button>)}
        {about.value?.writes && <button type="button" onClick={() => setForking(true)}>fork…</button>}
        {about.value?.writes && data.can_undo && <Link class="button" to={`/plan/new?undo=${encodeURIComponent(name)}`}>undo…</Link>}
        {at === last ? data.shown !== "completed" && data.last_seq > 0 && <Link class="button primary" to={planPath(name)}>resume…</Link> : <Link class="button primary" to={planPath(spec)}>go back to @{count(at)}…</Link>}
      </div>
      <Problem of={problem ?? error} />
      {gone.has(asked) && <p class="dim" role="status">@{count(asked)} was deleted; this is @{count(at)}.</p>}
      {data.problem && (last > 0 || !framework) && <p class="problem">{visible(data.problem)}</p>}
      {data.unprotected && <p class="problem" role="alert">UNPROTECTED since <Time at={data.unprotected} />: its checkpoints cannot be stored. It continues; what it does now would be lost with its process.</p>}
      {data.shown === "open" && <p class="waits" role="status"><Status of="open" /> No process moves it: the one that did has ended without a word. <Command line={`holdfast resume ${quoted(name)}`} /></p>}
      {data.why && <Why of={data.why} />}
      {data.waits?.map((wait) => <p key={wait.id} class="waits"><Status of="waiting" /> “{line(wait.question)}” <Link class="button" to="/approvals">answer</Link></p>)}
      {data.recovery && !data.recovery.can_resume && <p class="problem">Cannot resume: {data.recovery.blockers.map(visible).join("; ")}</p>}
      {data.phases && data.phases.length > 0 && (
        <ol class="phases" aria-label="Phases">
          {data.phases.map((one) => <li key={one.name} class={`b-${one.status}`} title={visible(one.summary)}><span>{line(one.name)}</span> <small>{line(one.status)}{one.duration_s ? `, ${duration(one.duration_s)}` : ""}{one.attempt > 1 ? `, attempt ${one.attempt}` : ""}</small></li>)}
        </ol>
      )}
      {spans.data && samples.data && <Timeline spans={spans.data} samples={samples.data.samples} budget={data.budget ?? []} moving={data.shown === "moving"} at={at} select={select} />}
      {last > 1 && (
        <div class="scrub">
          <button type="button" aria-label="Earlier checkpoint" onClick={() => step(-1)} disabled={at <= 1}>◀</button>
          <input type="range" min={1} max={last} value={at} aria-label="Scrub through the checkpoints" aria-valuetext={`checkpoint ${at} of ${last}`} onInput={(event) => { const to = Number(event.currentTarget.value); select(snapped(to, to < at ? -1 : 1, at)); }} />
          <button type="button" aria-label="Later checkpoint" onClick={() => step(1)} disabled={at >= last}>▶</button>
          <output>@{count(at)} of {count(last)}</output>
        </div>
      )}
      {last > 1 && <details class="find"><summary>find the checkpoint that broke something</summary><p class="dim">The command runs on the files of a few checkpoints, in a directory of its own, and the first at which it fails is named with the call that made it.</p><Command line={`holdfast bisect ${quoted(name)} -- COMMAND`} /></details>}
      {last === 0 && framework && <div class="pane"><h2>Messages</h2><p class="dim small">This session keeps every message as it comes, and takes no checkpoints.</p><Messages run={name} at={null} moves={moves} /></div>}
      <div class="split" hidden={last === 0}>
        <div class="left">
          <div class="bar small">
            <h2>Checkpoints</h2>
            <input type="search" aria-label="Filter checkpoints by text" placeholder="filter  /" value={filter.q} onInput={(event) => setParams({ q: event.currentTarget.value })} />
            <input type="search" aria-label="Only checkpoints that touch this file" placeholder="only touching: src/a.py" value={filter.path} onChange={(event) => setParams({ touching: event.currentTarget.value })} />
            <select aria-label="Trigger" value={filter.trigger} onChange={(event) => setParams({ trigger: event.currentTarget.value })}>
              <option value="">any trigger</option>
              {about.value?.triggers.map((one) => <option key={one} value={one}>{one}</option>)}
            </select>
            {data.phases && data.phases.length > 0 && (
              <select aria-label="Phase" value={filter.phase} onChange={(event) => setParams({ phase: event.currentTarget.value })}>
                <option value="">any phase</option>
                {data.phases.map((one) => <option key={one.name} value={one.name}>{line(one.name)}</option>)}
              </select>
            )}
          </div>
          <Checkpoints run={name} at={at} moves={moves} forks={data.forks ?? {}} select={select} filter={filter} />
        </div>
        <div class="right-pane">{at > 0 && <CheckpointPane spec={at === last ? name : spec} label={spec} run={name} moves={at === last ? moves : 0} talks={!!framework} />}</div>
      </div>
      {forking && <ForkDialog spec={spec} onClose={() => setForking(false)} />}
    </section>
  );
}

export function Why({ of }: { of: WhyOf }) {
  return (
    <div class="why" role="group" aria-label="Why it failed">
      <h2>Why it failed</h2>
      <p>{visible(of.detail)}</p>
      {of.gates.map((gate, n) => (
        <details key={n} open><summary>gate <strong>{line(gate.description || gate.command)}</strong> {gate.exit_code !== null ? `ended with ${gate.exit_code}` : "failed"}</summary><pre>{visible(gate.output)}</pre></details>
      ))}
    </div>
  );
}

export function Events({ run, moves }: { run: string; moves: number }) {
  const [offset, setOffset] = useState(0);
  const { data, error } = useData(address("/api/runs/{run}/events", { run }, { offset, limit: 100 }), moves);
  if (!data) return <Problem of={error} />;
  return (
    <div class="events">
      <ul>{data.events.map((one, n) => (
        <li key={n}><Time at={one.at} /> <strong>{line(one.kind)}</strong> {line(one.what)}{one.by ? <span class="dim"> by {line(one.by)}</span> : null}{one.duration_s ? <span class="dim"> {duration(one.duration_s)}</span> : null}</li>
      ))}</ul>
      {data.total > offset + 100 && <button type="button" onClick={() => setOffset(offset + 100)}>older</button>}
      {offset > 0 && <button type="button" onClick={() => setOffset(Math.max(0, offset - 100))}>newer</button>}
      {data.total === 0 && <p class="dim">Nothing is recorded.</p>}
      {data.is_cut && <p class="dim">The newest part of a long journal; <code>holdfast events</code> has all.</p>}
    </div>
  );
}

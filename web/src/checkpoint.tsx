// One checkpoint: what was the whole position then? State and files at one point, side by side.
import type { CheckpointDetail } from "./answers";
import { useState } from "preact/hooks";
import { about, at, post, to as into, toFailure, useData, type Failure } from "./api";
import { DirectoryView } from "./files";
import { ForkDialog } from "./fork";
import { Link, checkpointPath, comparePath, go, params, planPath, runPath, setParams } from "./router";
import { Messages } from "./messages";
import { Output } from "./output";
import { Events, markSide } from "./run";
import { useKeys, useTitle } from "./shell";
import { Instead, Problem, Time, bytes, count, line, plural, visible } from "./text";
import { SectionTree } from "./tree";

const url = (spec: string) => at("/api/c/{spec}", { spec });

// The pane beside the list: tabs, because it is narrow.
export function CheckpointPane({ spec, label, run, moves, talks }: { spec: string; label: string; run: string; moves: number; talks: boolean }) {
  const { data, error } = useData(url(spec), moves);
  const tab = params.value.get("tab") ?? (talks ? "messages" : "state");
  if (!data) return error ? <Problem of={error} /> : <p class="dim">…</p>;
  const tabs = ["state", ...(data.workspace || data.workspace_problem ? ["files"] : []), "messages", "events", "output"];
  return (
    <div class="pane">
      <div class="bar small">
        <h2><Link to={checkpointPath(label)}>@{count(data.seq)}</Link></h2>
        <span class={`trigger t-${data.trigger}`}>{line(data.trigger)}</span>
        <Time at={data.created_at} />
        {data.has_later_entries && <span class="tag" title="with what the journal has since the checkpoint">+ journal</span>}
        <span class="grow" />
        {data.parent_at?.seq && <Link class="button" to={comparePath(`${data.parent_at.run}@${data.parent_at.seq}`, label)}>changes</Link>}
        <button type="button" onClick={() => markSide(label)}>compare…</button>
      </div>
      {data.reason && <p class="reason">{visible(data.reason)}</p>}
      <Facts data={data} />
      <div class="tabs" role="tablist" aria-label="What to see of it">
        {tabs.map((one) => <button key={one} type="button" role="tab" id={`tab-${one}`} aria-selected={tab === one} aria-controls="tab-panel" onClick={() => setParams({ tab: one })}>{one}{one === "files" && data.workspace?.changed_total ? ` ●${data.workspace.changed_total}` : ""}</button>)}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tabs.includes(tab) ? tab : "state"}`} tabIndex={0}>
        {tab === "files" && tabs.includes("files") ? <FilesOf data={data} spec={label} /> : tab === "messages" ? <Messages key={label} run={run} at={spec === label ? data.seq : null} moves={moves} /> : tab === "events" ? <Events run={run} moves={moves} /> : tab === "output" ? <Output run={run} moves={moves} /> : <SectionTree spec={spec} sections={data.sections} moves={moves} />}
      </div>
    </div>
  );
}

function Facts({ data }: { data: CheckpointDetail }) {
  const out = data.workspace?.left_out;
  const left = Object.values(out?.counts ?? {}).reduce((sum, n) => sum + n, 0);
  return (
    <p class="facts">
      {data.can_resume ? <span class="good">can resume</span> : <span class="bad">cannot resume: {data.blockers.map(visible).join("; ")}</span>}
      {data.recovery.warnings.length > 0 && <span class="warn" title={data.recovery.warnings.join("\n")}>{plural(data.recovery.warnings.length, "warning")}</span>}
      {left > 0 && <span title={out?.listed.slice(0, 30).map(([path, why]) => `${path}: ${why}`).join("\n")}>{count(left)} left out</span>}
      {data.redacted_count > 0 && <span title={data.redacted.map((one) => `${one.path}: ${one.rule}`).join("\n")}>{plural(data.redacted_count, "secret")} kept out</span>}
      {data.label && <span class="tag label">{line(data.label)}</span>}
      {data.pinned && <span class="tag">pinned</span>}
    </p>
  );
}

function FilesOf({ data, spec }: { data: CheckpointDetail; spec: string }) {
  const work = data.workspace, parent = data.parent_at;
  if (!work) return <p class="problem">{visible(data.workspace_problem)}</p>;
  return (
    <div>
      <p class="dim small">{plural(work.files, "file")}, {bytes(work.size_bytes)}{work.git.head !== "none" && <> · git {line(work.git.branch ?? "detached")} <code>{(work.git.commit ?? "").slice(0, 8)}</code>{work.git.dirty ? " dirty" : ""}</>}</p>
      {work.changed_total > 0 && parent && (
        <ul class="changed" aria-label="Changed since the parent">
          {work.changed.slice(0, 12).map((one) => <li key={one.path}><span class={`sign s-${one.status}`} aria-hidden="true">{SIGN[one.status]}</span><Link to={`${comparePath(`${parent.run}@${parent.seq}`, spec)}&tab=files&path=${encodeURIComponent(one.path)}`}>{line(one.path)}</Link> <span class="hidden">{one.status}</span></li>)}
          {work.changed_total > 12 && <li class="dim">and {count(work.changed_total - 12)} more</li>}
        </ul>
      )}
      <DirectoryView spec={spec} run={data.run} />
    </div>
  );
}

export const SIGN: Record<string, string> = { created: "+", modified: "~", deleted: "−", renamed: "→", mode: "m" };

// The whole screen: both panes at once.
export function Checkpoint({ spec }: { spec: string }) {
  const { data, error, reload } = useData(url(spec));
  const [forking, setForking] = useState(false);
  const [problem, setProblem] = useState<Failure | null>(null);
  const [label, setLabel] = useState<string | null>(null);
  useTitle(data ? `${data.run}@${data.seq}` : spec, `holdfast show ${spec}`);
  const name = data ? `${data.run}@${data.seq}` : spec;
  const to = (seq: number) => { if (data && seq >= 1 && seq <= data.last_seq) go(checkpointPath(`${data.run}@${seq}`), { replace: true }); };
  const talking = params.value.get("tab") === "messages";
  const parent = data?.parent_at?.seq ? `${data.parent_at.run}@${data.parent_at.seq}` : null;
  useKeys({
    "[": () => parent && go(checkpointPath(parent), { replace: true }), "]": () => to((data?.seq ?? 0) + 1), j: () => to((data?.seq ?? 0) - 1), k: () => to((data?.seq ?? 0) + 1),
    "g h": () => data && to(data.last_seq), x: () => markSide(name), c: () => parent && go(comparePath(parent, name)), p: () => go(planPath(name)),
    m: () => setParams({ tab: "messages" }), s: () => setParams({ tab: null }), Escape: () => data && go(runPath(data.run, `?at=${data.seq}`)),
  });
  if (!data) return <Instead of={error} />;
  const marks = (body: unknown) => post(into("/api/c/{spec}/marks", { spec }), body).then(() => { setProblem(null); setLabel(null); reload(); }, (caught) => setProblem(toFailure(caught)));
  return (
    <section class="checkpoint" aria-labelledby="title">
      <div class="bar">
        <h1 id="title"><Link to={runPath(data.run, `?at=${data.seq}`)}>{line(data.run)}</Link> @{count(data.seq)}</h1>
        <span class={`trigger t-${data.trigger}`}>{line(data.trigger)}</span>
        <Time at={data.created_at} />
        {data.is_head && <span class="tag head">head</span>}
        {parent && <span class="dim">parent <Link to={checkpointPath(parent)}>{line(parent)}</Link></span>}
        <span class="grow" />
        <span class="dim">compare with</span>
        {parent && <Link class="button" to={comparePath(parent, name)}>parent</Link>}
        {!data.is_head && <Link class="button" to={comparePath(name, data.run)}>head</Link>}
        {data.workspace && <Link class="button" to={comparePath(name, "now")}>now</Link>}
        <button type="button" onClick={() => markSide(name)}>another…</button>
        {about.value?.writes && <button type="button" onClick={() => setForking(true)}>fork…</button>}
        <Link class="button primary" to={planPath(name)}>go back here…</Link>
      </div>
      <Problem of={problem ?? error} />
      {data.reason && <p class="reason">{visible(data.reason)}</p>}
      <Facts data={data} />
      <div class="scrub">
        <button type="button" aria-label="Earlier checkpoint" onClick={() => to(data.seq - 1)} disabled={data.seq <= 1}>◀</button>
        <input type="range" min={1} max={data.last_seq} value={data.seq} aria-label="Scrub through the checkpoints" aria-valuetext={`checkpoint ${data.seq} of ${data.last_seq}`} onInput={(event) => to(Number(event.currentTarget.value))} />
        <button type="button" aria-label="Later checkpoint" onClick={() => to(data.seq + 1)} disabled={data.seq >= data.last_seq}>▶</button>
        <output>@{count(data.seq)} of {count(data.last_seq)}</output>
        {about.value?.writes && <button type="button" onClick={() => marks({ pinned: !data.pinned })}>{data.pinned ? "unpin" : "pin"}</button>}
        {about.value?.writes && (label === null
          ? <button type="button" onClick={() => setLabel(data.label ?? "")}>label…</button>
          : <form onSubmit={(event) => { event.preventDefault(); void marks({ label }); }}><input aria-label="Label" value={label} onInput={(event) => setLabel(event.currentTarget.value)} ref={(element) => { if (element && document.activeElement !== element) element.focus(); }} /> <button>save</button></form>)}
      </div>
      <div class="split even">
        <div class="pane">
          <div class="bar small"><h2>{talking ? "Messages" : "State"}</h2> <small class="dim">{bytes(data.size_bytes)}</small><span class="grow" /><button type="button" aria-pressed={talking} onClick={() => setParams({ tab: talking ? null : "messages" })}>messages</button></div>
          {talking ? <Messages key={name} run={data.run} at={data.seq} moves={0} /> : <SectionTree spec={spec} sections={data.sections} moves={0} />}
        </div>
        <div class="pane"><h2>Files</h2>{data.workspace || data.workspace_problem ? <FilesOf data={data} spec={name} /> : <p class="dim">This checkpoint holds no files.</p>}</div>
      </div>
      <details class="seal"><summary>seal</summary><dl>
        <dt>id</dt><dd><code>{data.id}</code></dd><dt>checksum</dt><dd><code>{data.checksum}</code></dd>
        <dt>stored</dt><dd>{bytes(data.stored_bytes)} of {bytes(data.size_bytes)}, {line(data.codec)}, by holdfast {line(data.program_version)}</dd>
      </dl></details>
      {forking && <ForkDialog spec={name} onClose={() => setForking(false)} />}
    </section>
  );
}

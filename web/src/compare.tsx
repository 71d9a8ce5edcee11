// Two points: what differs, and why did it go another way?
import type { CheckpointRowAnswer, Comparison, DifferenceAnswer as DifferenceOf, FileChange, SectionChange } from "./answers";
import { useEffect, useState } from "preact/hooks";
import { at as address, useData } from "./api";
import { SIGN } from "./checkpoint";
import { Files } from "./checkpoints";
import { DiffView } from "./diffview";
import { MessageChanges } from "./messages";
import { Link, checkpointPath, comparePath, go, params, runPath, setParams } from "./router";
import { useKeys, useTitle } from "./shell";
import { Instead, Problem, Time, bytes, count, duration, line, plural } from "./text";

const CALLS = "steps"; // the view of the journal that lists them
const differences = (sections: SectionChange[]) => sections.reduce((sum, one) => sum + one.count, 0);

export function Compare() {
  const a = params.value.get("a") ?? "", b = params.value.get("b") ?? "now";
  const { data, error } = useData(address("/api/compare", { a, b }));
  const said = useData(address("/api/compare/messages", { a, b, limit: 1 }));
  const saidTotal = said.data ? said.data.added + said.data.removed : 0;
  const fileTotal = data?.files_total ?? 0;
  const tab = params.value.get("tab") ?? (data && !data.sections.length && fileTotal ? "files" : "state");
  const path = params.value.get("path") ?? data?.files.find((one) => one.kind !== "directory")?.path ?? null;
  useTitle(`${a} and ${b}`, data?.command ?? `holdfast diff ${a}${b === "now" ? "" : ` ${b}`}`);
  const shown = (data?.files ?? []).filter((one) => one.kind !== "directory");
  const step = (by: number) => {
    const at = shown.findIndex((one) => one.path === path);
    const next = shown[Math.max(0, Math.min(shown.length - 1, at + by))];
    if (next) setParams({ tab: "files", path: next.path });
  };
  useKeys({ j: () => step(1), k: () => step(-1), s: () => setParams({ tab: "state" }), f: () => setParams({ tab: "files" }), m: () => setParams({ tab: "messages" }) });
  if (!data) return <Instead of={error} />;
  const calls = data.sections.filter((one) => one.name === CALLS), state = data.sections.filter((one) => one.name !== CALLS);
  const tabs: [string, string, number][] = [
    ["state", "State", differences(state)], ["files", "Files", fileTotal], ["messages", "Messages", saidTotal], ["calls", "Calls", differences(calls)],
    ["budget", "Budget", data.budget.length], ["agents", "Agents", data.agents.length],
  ];
  const tokens = data.budget.find((one) => one.name === "tokens");
  return (
    <section class="compare" aria-labelledby="title">
      <div class="bar">
        <h1 id="title" class="hidden">Compare</h1>
        <Side name="A" row={data.a} />
        {b !== "now" && <button type="button" aria-label="Swap both sides" onClick={() => go(comparePath(b, a))}>⇄</button>}
        {data.b ? <Side name="B" row={data.b} /> : <span class="side"><span class="tag">B</span> now: <code>{line(data.now)}</code></span>}
        <span class="grow" />
        <span class="presets">
        {data.since.phase && <Link class="button" to={comparePath(data.since.phase, b)}>this phase</Link>}
        {data.since.answer && <Link class="button" to={comparePath(data.since.answer, b)}>since the last answer</Link>}
        {data.b?.parent && <Link class="button" to={comparePath(data.b.parent, b)}>B with its parent</Link>}
        {data.b && <Link class="button" to={comparePath(a, "now")}>A with now</Link>}
        {data.a.run && <Link class="button" to={comparePath(`${data.a.run}@1`, data.b ? `${data.b.run}@${data.b.seq}` : data.a.run)}>whole run</Link>}
        </span>
      </div>
      <p class="overview">
        {plural(data.sections.length, "section")} differ{data.sections.length === 1 ? "s" : ""}, {plural(fileTotal, "file")}{fileTotal > 0 && <> <Files of={data.files_counts} /></>}
        {saidTotal > 0 && said.data && <> · messages +{count(said.data.added)}{said.data.removed > 0 && ` −${count(said.data.removed)}`}</>}
        {data.steps[0] !== data.steps[1] && <> · {plural(Math.abs(data.steps[1] - data.steps[0]), "call")} {data.steps[1] > data.steps[0] ? "more" : "fewer"}</>}
        {tokens && <> · tokens {tokens.spent >= 0 ? "+" : "−"}{count(Math.abs(tokens.spent))}</>}
        {data.seconds !== null && <> · {duration(Math.abs(data.seconds))} apart</>}
        {data.ancestor && <> · common ancestor <Link to={checkpointPath(`${data.ancestor.run}@${data.ancestor.seq}`)}>{line(data.ancestor.run)}@{count(data.ancestor.seq)}</Link></>}
      </p>
      <Problem of={error} />
      <div class="tabs" role="tablist" aria-label="What differs">
        {tabs.map(([name, label, n]) => <button key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={tab === name} aria-controls="tab-panel" onClick={() => setParams({ tab: name })}>{label} <span class="n">{count(n)}</span></button>)}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0}>
        {tab === "state" && (state.length ? state.map((one) => <Section key={one.name} a={a} b={b} of={one} />) : <p class="dim">No section differs.</p>)}
        {tab === "calls" && (calls.length ? calls.map((one) => <Section key={one.name} a={a} b={b} of={one} />) : <p class="dim">Both did the same calls.</p>)}
        {tab === "messages" && <MessageChanges a={a} b={b} />}
        {tab === "files" && <FilesTab a={a} b={b} data={data} files={shown} path={path} step={step} />}
        {tab === "budget" && <Table head={["Budget", "before", "after", "spent", "limit"]} rows={data.budget.map((one) => [one.name, one.used_before, one.used_after, one.spent, one.limit_after])} />}
        {tab === "agents" && <Table head={["Agent", "before", "after", "attempts", "tokens in", "tokens out"]} rows={data.agents.map((one) => [one.id, one.status_before, one.status_after, one.attempts, one.tokens_input, one.tokens_output])} />}
      </div>
    </section>
  );
}

function Side({ name, row }: { name: string; row: CheckpointRowAnswer }) {
  return <span class="side"><span class="tag">{name}</span> <Link to={checkpointPath(`${row.run}@${row.seq}`)}>{line(row.run)}@{count(row.seq)}</Link> <span class="dim">{line(row.reason || row.trigger).slice(0, 60)} <Time at={row.created_at} /></span></span>;
}

function Section({ a, b, of }: { a: string; b: string; of: SectionChange }) {
  const [offset, setOffset] = useState(0);
  const { data, error } = useData(address("/api/compare/section", { a, b, name: of.name, offset, limit: 100 }));
  return (
    <details class="section" open={of.count <= 200}>
      <summary><span class={`sign s-${of.kind}`} aria-hidden="true">{{ added: "+", removed: "−", changed: "~" }[of.kind]}</span> <strong>{line(of.name)}</strong> <span class="dim">{of.kind}, {plural(of.count, "difference")}</span></summary>
      <Problem of={error} />
      <ul class="differences">{data?.differences.map((one, n) => <Difference key={n} of={one} />)}</ul>
      {data && data.total > 100 && <p class="pager small"><button type="button" disabled={!offset} onClick={() => setOffset(offset - 100)}>before</button> <span>{count(offset)}–{count(Math.min(data.total, offset + 100))} of {count(data.total)}</span> <button type="button" disabled={offset + 100 >= data.total} onClick={() => setOffset(offset + 100)}>next</button></p>}
    </details>
  );
}

function Difference({ of }: { of: DifferenceOf }) {
  const sign = { added: "+", removed: "−", changed: "~" }[of.kind];
  return (
    <li class={`s-${of.kind}`}>
      <span class="sign" aria-hidden="true">{sign}</span><span class="hidden">{of.kind}: </span><code class="path">{line(of.path)}</code>
      {of.old !== undefined && <span class="old">{line(of.old)}</span>}{of.kind === "changed" && <span aria-hidden="true" class="dim"> → </span>}{of.new !== undefined && <span class="new">{line(of.new)}</span>}
    </li>
  );
}

function FilesTab({ a, b, data, files, path, step }: { a: string; b: string; data: Comparison; files: FileChange[]; path: string | null; step: (by: number) => void }) {
  const narrow = matchMedia("(max-width: 900px)").matches;
  const [split, setSplit] = useState(!narrow);
  const file = useData(path ? address("/api/compare/file", { a, b, path }) : null);
  const at = files.findIndex((one) => one.path === path);
  useEffect(() => document.querySelector(".filelist [aria-current]")?.scrollIntoView({ block: "nearest" }), [path]);
  if (!files.length) return <p class="dim">No file differs.</p>;
  return (
    <div class="split files-split">
      <ul class="filelist" aria-label="Files that differ">
        {files.slice(0, 500).map((one) => (
          <li key={one.path}><button type="button" class="quiet" aria-current={one.path === path ? "true" : undefined} onClick={() => setParams({ tab: "files", path: one.path })}>
            <span class={`sign s-${one.status}`} aria-hidden="true">{SIGN[one.status]}</span><span class="hidden">{one.status} </span>{line(one.path)}
          </button></li>
        ))}
        {data.files_total > 500 && <li class="dim">and {count(data.files_total - 500)} more</li>}
      </ul>
      <div class="pane">
        <div class="bar small">
          <h2>{line(path)}</h2>
          {file.data && <span><span class="plus">+{file.data.added}</span> <span class="minus">−{file.data.removed}</span></span>}
          <span class="grow" />
          <button type="button" aria-label="Previous file" onClick={() => step(-1)} disabled={at <= 0}>◀</button><span class="dim">{at + 1}/{files.length}</span><button type="button" aria-label="Next file" onClick={() => step(1)} disabled={at >= files.length - 1}>▶</button>
          <button type="button" aria-pressed={split} onClick={() => setSplit(!split)}>side by side</button>
          {path && <Link class="button" to={runPath(data.a.run, `/file?path=${encodeURIComponent(path)}`)}>history</Link>}
        </div>
        <Problem of={file.error} />
        {file.data?.old_path && file.data.old_path !== file.data.path && <p class="dim">renamed from {line(file.data.old_path)}</p>}
        {file.data?.note && <p class="dim">{line(file.data.note)}: {bytes(file.data.old_size)} → {bytes(file.data.size)}</p>}
        {file.data && !file.data.note && <DiffView text={file.data.diff} split={split} />}
        {file.data?.cut && <p class="dim">The rest is not shown; it is longer than 400 kB.</p>}
      </div>
    </div>
  );
}

function Table({ head, rows }: { head: string[]; rows: (string | number | null)[][] }) {
  if (!rows.length) return <p class="dim">Nothing differs.</p>;
  return <table class="list"><thead><tr>{head.map((one) => <th key={one}>{one}</th>)}</tr></thead><tbody>{rows.map((row, n) => <tr key={n}>{row.map((cell, m) => m === 0 ? <th key={m} scope="row">{line(cell)}</th> : <td key={m}>{cell === null ? "–" : typeof cell === "number" ? count(Math.round(cell * 1000) / 1000) : line(cell)}</td>)}</tr>)}</tbody></table>;
}

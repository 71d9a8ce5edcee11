// Captured files: a directory at a time, one file's text, and its history.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { at, download, query, useData } from "./api";
import { SIGN } from "./checkpoint";
import { Link, checkpointPath, comparePath, params, runPath, setParams } from "./router";
import { Dialog, useTitle } from "./shell";
import { Command, Problem, Time, bytes, count, line, plural, quoted, visible } from "./text";

const open = signal<ReadonlySet<string>>(new Set());

export function DirectoryView({ spec, run, under = "" }: { spec: string; run: string; under?: string }) {
  const [offset, setOffset] = useState(0);
  const asked = params.value.get("file"); // in the address, so that it can be linked to
  const shown = asked !== null && under === "" ? asked : null;
  const { data, error } = useData(at("/api/c/{spec}/files", { spec }, { under, offset, limit: 200 }));
  if (error) return <Problem of={error} />;
  if (!data) return <p class="dim">…</p>;
  const toggle = (path: string) => { const next = new Set(open.value); if (!next.delete(path)) next.add(path); open.value = next; };
  return (
    <>
      <ul class="tree files">
        {data.entries.map((one) => (
          <li key={one.path}>
            {one.kind === "directory"
              ? <button type="button" class="node" aria-expanded={open.value.has(one.path)} onClick={() => toggle(one.path)}><Sign of={one.change} /><span class="key">{line(one.name)}/</span> {one.entries !== null && <span class="dim">({count(one.entries)})</span>}</button>
              : <span class="node leaf"><Sign of={one.change} /><button type="button" class="quiet file" onClick={() => setParams({ file: one.path })}>{line(one.name)}</button> <span class="dim">{one.kind === "link" ? `→ ${line(one.target)}` : bytes(one.size)}</span></span>}
            {one.kind === "directory" && open.value.has(one.path) && <DirectoryView spec={spec} run={run} under={one.path} />}
          </li>
        ))}
        {data.deleted.map((path) => <li key={path}><span class="node leaf gone"><Sign of="deleted" />{line(path.split("/").pop())}</span></li>)}
      </ul>
      {data.total > data.entries.length && (
        <p class="pager small">
          <button type="button" disabled={!offset} onClick={() => setOffset(Math.max(0, offset - 200))}>before</button>
          <span>{count(offset)}–{count(Math.min(data.total, offset + 200))} of {count(data.total)}</span>
          <button type="button" disabled={offset + 200 >= data.total} onClick={() => setOffset(offset + 200)}>next</button>
        </p>
      )}
      {shown !== null && <FileDialog spec={spec} run={run} path={shown} onClose={() => setParams({ file: null })} />}
    </>
  );
}

function Sign({ of }: { of: string | null }) {
  if (!of) return <span class="sign" />;
  return <span class={`sign s-${of}`} title={of === "inside" ? "something inside changed" : of}><span aria-hidden="true">{SIGN[of] ?? "●"}</span><span class="hidden">{of}</span></span>;
}

function FileDialog({ spec, run, path, onClose }: { spec: string; run: string; path: string; onClose: () => void }) {
  const { data, error } = useData(at("/api/c/{spec}/file", { spec }, { path }));
  return (
    <Dialog title={`File ${path}`} onClose={onClose} class="wide">
      <div class="bar small">
        <h2>{line(path)}</h2> <span class="dim">{line(spec)} {data && bytes(data.size)}</span>
        <span class="grow" />
        <Link class="button" to={runPath(run, `/file?path=${encodeURIComponent(path)}`)}>history</Link>
        <button type="button" onClick={() => void download(`/api/c/${encodeURIComponent(spec)}/download${query({ path })}`, path.split("/").pop() ?? "file")}>download</button>
        <form method="dialog"><button>close</button></form>
      </div>
      <Problem of={error} />
      {data?.binary && <p class="dim">It is binary.</p>}
      {data?.text !== null && data?.text !== undefined && <pre class="text tall" tabIndex={0}>{visible(data.text)}</pre>}
      {data?.text && data.size > data.text.length + 1000 && <p class="dim">The first {bytes(data.text.length)}; download it for all.</p>}
    </Dialog>
  );
}

export function FileHistory({ run }: { run: string }) {
  const path = params.value.get("path") ?? "";
  const before = params.value.get("before");
  const { data, error } = useData(at("/api/runs/{run}/file-history", { run }, { path, before }));
  useTitle(`${path} in ${run}`, `holdfast history ${quoted(path)} ${quoted(run)}`);
  return (
    <section aria-labelledby="title">
      <div class="bar"><h1 id="title">{line(path)}</h1><span class="dim">in <Link to={runPath(run)}>{line(run)}</Link></span></div>
      <Problem of={error} />
      {data && <p class="dim">{plural(data.versions.length, "version")} in {plural(data.looked_at, "checkpoint")} of the line{data.next ? "; older ones follow" : ""}</p>}
      <ol class="versions">
        {data?.versions.map((one) => (
          <li key={one.seq}>
            <span class={`sign s-${one.status}`} aria-hidden="true">{SIGN[one.status] ?? "!"}</span>
              <Link data-row to={checkpointPath(`${one.run}@${one.seq}`)}>{line(one.run)}@{count(one.seq)}</Link>
              <span class={`trigger t-${one.trigger}`}>{line(one.trigger)}</span>
              <span class="reason">{line(one.reason)}</span>
              <span class="dim">{one.status}{one.phase ? `, phase ${line(one.phase)}` : ""}, {bytes(one.size)}</span> <Time at={one.at} />
              {one.parent && one.status !== "created" && <Link class="button" to={`${comparePath(one.parent, `${one.run}@${one.seq}`)}&tab=files&path=${encodeURIComponent(path)}`}>diff</Link>}
          </li>
        ))}
        {data?.damaged.map((one) => <li key={`damaged ${one.seq}`}><span class="sign" aria-hidden="true">!</span><span class="bad">@{count(one.seq)} {visible(one.damaged)}</span></li>)}
      </ol>
      {data?.next && <Link class="button" to={runPath(run, `/file${query({ path, before: data.next })}`)}>older</Link>}
      {data && data.versions.length > 0 && !before && <Blame run={run} path={path} />}
    </section>
  );
}

// Which checkpoint, and so which call and agent, each line came with.
function Blame({ run, path }: { run: string; path: string }) {
  const { data, error } = useData(at("/api/runs/{run}/blame", { run }, { path }));
  if (!data) return <Problem of={error} />;
  return (
    <section class="blame" aria-labelledby="blame">
      <div class="bar small"><h2 id="blame">Who wrote each line</h2><Command line={`holdfast blame ${quoted(path)} ${quoted(run)}`} /></div>
      {data.note && <p class="dim">{line(data.note)}</p>}
      <ol tabIndex={0} aria-label="Lines with where they came from">
        {data.lines.slice(0, 3000).map(([origin, text], n) => {
          const one = data.versions[origin];
          const first = n === 0 || data.lines[n - 1][0] !== origin;
          return (
            <li key={n} class={`o-${origin % 6}`}>
              <span class="from">{first && <><Link to={checkpointPath(`${one.run}@${one.seq}`)}>@{count(one.seq)}</Link> <span class="dim" title={visible(one.reason)}>{line(one.reason || one.trigger)}</span></>}</span>
              <span class="no" aria-hidden="true">{n + 1}</span><code>{visible(text)}</code>
            </li>
          );
        })}
      </ol>
    </section>
  );
}

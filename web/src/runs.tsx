// Runs: what runs, what needs me, what broke?
import type { RunRowAnswer } from "./answers";
import { useEffect } from "preact/hooks";
import { at, useData, useMoves } from "./api";
import { Link, params, runPath, setParams } from "./router";
import { announce, moveRow, useKeys, useTitle } from "./shell";
import { Bar, Problem, Status, Time, count, line, quoted, tightest } from "./text";

const PAGE = 50;
const STATUSES = ["moving", "waiting", "paused", "failed", "open", "completed", "cancelled", "forked", "ended", "saved", "damaged"];

export function Runs() {
  const status = params.value.get("status") ?? "";
  const text = params.value.get("q") ?? "";
  const order = params.value.get("order") ?? "moved";
  const offset = Number(params.value.get("offset") ?? 0);
  const moves = useMoves();
  const { data, error } = useData(at("/api/runs", { status, q: text, order, offset, limit: PAGE }), moves);
  useEffect(() => { if (data && moves) announce(`${data.total} runs; the last to move is ${data.runs[0]?.id ?? "none"}`); }, [data]);
  const standing = { moving: "running", open: "running", saved: "" }[status] ?? status;
  useTitle("Runs", `holdfast ls${standing ? ` --status ${standing}` : ""}${text ? ` --text ${quoted(text)}` : ""}`);
  useKeys({ j: () => moveRow(1), k: () => moveRow(-1) });
  return (
    <section class="runs" aria-labelledby="title">
      <div class="bar">
        <h1 id="title">Runs</h1>
        <input
          type="search"
          aria-label="Filter runs"
          placeholder="filter  /"
          value={text}
          onInput={(event) => setParams({ q: event.currentTarget.value, offset: null })}
        />
        <div class="chips" role="group" aria-label="Status">
          <Chip name="" label="all" count={data?.all} on={status === ""} />
          {STATUSES.filter((one) => data?.counts[one] || one === status).map((one) => (
            <Chip key={one} name={one} label={one} count={data?.counts[one] ?? 0} on={status === one} />
          ))}
        </div>
        <label>order{" "}
          <select value={order} onChange={(event) => setParams({ order: event.currentTarget.value })}>
            <option value="moved">last moved</option>
            <option value="begun">last begun</option>
            <option value="name">name</option>
          </select>
        </label>
      </div>
      <Problem of={error} />
      {data && data.runs.length === 0 && <p class="empty">{data.all || text || status ? "No run fits." : "No runs yet. `holdfast run FLOW`, or hf.run(...) in Python, begins one."}</p>}
      {data && data.runs.length > 0 && (
        <table class="list">
          <thead><tr><th>Run</th><th>Status</th><th>Where it stands</th><th>Budget</th><th>Saved</th><th class="right">Last</th></tr></thead>
          <tbody>{data.runs.map((run) => <Row key={run.id} run={run} />)}</tbody>
        </table>
      )}
      {data && <Pager total={data.total} offset={offset} page={PAGE} go={(to) => setParams({ offset: to || null }, { push: true })} />}
    </section>
  );
}

function Chip({ name, label, count: n, on }: { name: string; label: string; count?: number; on: boolean }) {
  return <button type="button" class={`chip is-${name}`} aria-pressed={on} onClick={() => setParams({ status: name, offset: null })}>{label} {n !== undefined && <span class="n">{count(n)}</span>}</button>;
}

function Row({ run }: { run: RunRowAnswer }) {
  const budget = tightest(run.budget);
  const where = run.question ? `“${run.question}”` : run.shown === "open" ? "no process moves it" : [run.phase, run.state].filter(Boolean).join(" ▸ ") || run.detail || run.reason || (run.last_seq ? "" : "in its journal alone, without a checkpoint");
  const bad = run.shown === "failed" || run.shown === "damaged";
  return (
    <tr>
      <th scope="row"><Link to={runPath(run.id)} data-row title={line(run.id)}>{line(run.attributes.thread || run.id)}</Link>{run.attributes.framework && <span class="tag">{line(run.attributes.framework)}</span>}</th>
      <td><Status of={run.shown} detail={run.detail} /></td>
      <td class="where">{run.unprotected ? <strong class="bad">UNPROTECTED since <Time at={run.unprotected} /></strong> : bad ? line(run.detail || where).slice(0, 240) : line(where)}</td>
      <td>{budget && <Bar used={budget.used} limit={budget.limit} name={budget.name} />}</td>
      <td><Time at={run.saved_at ?? run.updated_at} /></td>
      <td class="right mono">{run.last_seq > 0 && `@${count(run.last_seq)}`}{run.waits?.length ? <> <Link class="button" to="/approvals">answer</Link></> : null}</td>
    </tr>
  );
}

export function Pager({ total, offset, page, go, words: [before, after] = ["newer", "older"] }: { total: number; offset: number; page: number; go: (to: number) => void; words?: [string, string] }) {
  if (total <= page) return <p class="dim pager">{count(total)} in all</p>;
  return (
    <p class="pager">
      <button type="button" disabled={offset === 0} onClick={() => go(Math.max(0, offset - page))}>{before}</button>
      <span>{count(offset + 1)}–{count(Math.min(total, offset + page))} of {count(total)}</span>
      <button type="button" disabled={offset + page >= total} onClick={() => go(offset + page)}>{after}</button>
    </p>
  );
}

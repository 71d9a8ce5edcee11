// Approvals: who waits for me, since when, on what evidence?
import type { WaitCard } from "./answers";
import { useEffect, useState } from "preact/hooks";
import { about, at, post, to, toFailure, useData, useMoves, waiting, type Failure } from "./api";
import { Files } from "./checkpoints";
import { Link, comparePath, runPath } from "./router";
import { announce, moveRow, useKeys, useTitle } from "./shell";
import { Problem, Time, count, line, plural, quoted, visible } from "./text";

export function Approvals() {
  const moves = useMoves();
  const { data, error, reload } = useData(at("/api/waits"), moves);
  useTitle("Approvals", data?.waiting.length === 1 ? answering(data.waiting[0]) : "holdfast ls --status waiting");
  useKeys({ j: () => moveRow(1), k: () => moveRow(-1) });
  useEffect(() => { if (data) { if (data.total > waiting.value) announce(`${plural(data.total, "run")} waiting`); waiting.value = data.total; } }, [data]);
  return (
    <section class="approvals" aria-labelledby="title">
      <div class="bar"><h1 id="title">{data ? `${count(data.total)} waiting` : "Approvals"}</h1></div>
      <Problem of={error} />
      {data?.waiting.length === 0 && <p class="empty">Nothing waits for you.</p>}
      {data?.waiting.map((wait) => <Card key={`${wait.run} ${wait.id}`} wait={wait} done={reload} />)}
      {data && data.answered.length > 0 && (
        <>
          <h2>Answered in the last day</h2>
          <ul class="answered">{data.answered.map((one) => <li key={`${one.run} ${one.wait}`}><Link to={runPath(one.run)}>{line(one.run)}</Link> {line(one.wait)}: <strong>{line(one.choice)}</strong>{one.by && <> by {line(one.by)}</>} <Time at={one.at} />{one.note && <span class="dim"> “{line(one.note)}”</span>}</li>)}</ul>
        </>
      )}
    </section>
  );
}

const choices = (wait: WaitCard): string[] => (wait.options.length ? wait.options : wait.kind === "pause" ? ["resume"] : ["approve", "reject"]);
const answering = (wait: WaitCard): string => `holdfast answer ${quoted(choices(wait)[0])} ${quoted(wait.run)}`;

function Card({ wait, done }: { wait: WaitCard; done: () => void }) {
  const [note, setNote] = useState("");
  const [amount, setAmount] = useState("");
  const [error, setError] = useState<Failure | null>(null);
  const evidence = wait.evidence;
  const budget = wait.kind === "budget";
  const options = choices(wait);
  const answer = (choice: string) => post(to("/api/waits/{run}/{wait:path}", { run: wait.run, wait: wait.id }), { choice, note, ...(budget && amount ? { value: Number(amount) } : {}) }).then(done, (caught) => { setError(toFailure(caught)); done(); });
  return (
    <article class="card" aria-label={`${line(wait.run)} waits`}>
      <div class="bar small">
        <h2><Link data-row to={runPath(wait.run)}>{line(wait.run)}</Link></h2>
        <span class="tag">{line(wait.kind)}</span>
        {wait.phase && <span class="dim">phase {line(wait.phase)}</span>}
        <span class="dim">since <Time at={wait.since} /></span>
        {wait.until && <span class="warn">until <Time at={wait.until} /></span>}
      </div>
      <p class="question">{visible(wait.question)}</p>
      {wait.details && Object.keys(wait.details).length > 0 && <dl class="details">{Object.entries(wait.details).map(([name, value]) => <div key={name}><dt>{line(name)}</dt><dd>{line(typeof value === "object" ? JSON.stringify(value) : value)}</dd></div>)}</dl>}
      <p class="evidence">
        {evidence.files && evidence.base && evidence.head && <>{Object.values<number>(evidence.files).reduce((a, b) => a + b, 0) ? <Files of={evidence.files} /> : "no files changed"} since {line(evidence.base)} <Link class="button" to={`${comparePath(evidence.base, evidence.head)}&tab=files`}>diff</Link> </>}
        {evidence.gates?.map((gate, n) => <span key={n} class={gate.success ? "good" : gate.skipped ? "dim" : "bad"} title={visible(gate.output)}>{gate.success ? "✓" : gate.skipped ? "–" : "✗"} {line(gate.description)} </span>)}
        {evidence.problem && <span class="bad">{visible(evidence.problem)}</span>}
      </p>
      {evidence.base && evidence.head && <ul class="paths">{evidence.paths?.map((one) => <li key={one}><Link to={`${comparePath(evidence.base ?? "", evidence.head ?? "")}&tab=files&path=${encodeURIComponent(one)}`}>{line(one)}</Link></li>)}</ul>}
      <Problem of={error} />
      {about.value?.writes ? (
        <form class="answer" onSubmit={(event) => event.preventDefault()}>
          <label>note <input value={note} onInput={(event) => setNote(event.currentTarget.value)} /></label>
          {budget && <label>more <input type="number" min="0" step="any" value={amount} onInput={(event) => setAmount(event.currentTarget.value)} /></label>}
          {[...options].reverse().map((choice) => <button key={choice} type="button" class={choice === options[0] ? "primary" : ""} onClick={() => void answer(choice)}>{line(choice)}</button>)}
        </form>
      ) : <p class="dim">read-only: start <code>holdfast ui --write</code>, or <code>{answering(wait)}</code></p>}
    </article>
  );
}

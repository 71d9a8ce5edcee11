// What people, models and agents said, up to one point or between two.
import type { MessageAnswer as MessageOf } from "./answers";
import { useEffect, useRef, useState } from "preact/hooks";
import { at as address, useData } from "./api";
import { Problem, count, line, plural, visible } from "./text";

const PAGE = 50;

export function Messages({ run, at, moves }: { run: string; at: number | null; moves: number }) {
  const [offset, setOffset] = useState(0);
  const { data, error } = useData(address("/api/runs/{run}/messages", { run }, { at, offset, limit: PAGE }), moves);
  const list = useRef<HTMLOListElement>(null);
  useEffect(() => { // the newest are last, and seen first
    const panel = list.current?.closest("[role=tabpanel]");
    if (panel && offset === 0) panel.scrollTop = panel.scrollHeight;
  }, [data?.total, offset]);
  if (!data) return error ? <Problem of={error} /> : <p class="dim">…</p>;
  if (!data.total) return <p class="dim">Nobody said anything here: no messages between agents, no conversation in the state.</p>;
  return (
    <div class="conversation">
      {data.total > offset + PAGE && <button type="button" onClick={() => setOffset(offset + PAGE)}>{plural(Math.min(PAGE, data.total - offset - PAGE), "older message")}</button>}
      <ol ref={list} class="messages" aria-label={`Messages, oldest first, ${count(data.total)} in all`}>{data.messages.map((one, n) => <Message key={`${one.place} ${n}`} of={one} />)}</ol>
      {offset > 0 && <button type="button" onClick={() => setOffset(Math.max(0, offset - PAGE))}>newer</button>}
    </div>
  );
}

const SIGN = { added: "+", removed: "−" };

export function MessageChanges({ a, b }: { a: string; b: string }) {
  const [offset, setOffset] = useState(0);
  const { data, error } = useData(address("/api/compare/messages", { a, b, offset, limit: PAGE }));
  if (!data) return error ? <Problem of={error} /> : <p class="dim">…</p>;
  const total = data.added + data.removed;
  return (
    <div class="conversation">
      <p class="dim">{total === 0 ? "Both have the same messages" : <>{plural(data.added, "message")} only in B, {count(data.removed)} only in A</>}; {count(data.kept)} in both.</p>
      <ol class="messages" aria-label="Messages that differ">{data.changes.map((one, n) => <Message key={`${one.kind} ${one.message.place} ${n}`} of={one.message} kind={one.kind} />)}</ol>
      {total > PAGE && <p class="pager small"><button type="button" disabled={!offset} onClick={() => setOffset(offset - PAGE)}>before</button> <span>{count(offset)}–{count(Math.min(total, offset + PAGE))} of {count(total)}</span> <button type="button" disabled={offset + PAGE >= total} onClick={() => setOffset(offset + PAGE)}>next</button></p>}
    </div>
  );
}

function Message({ of, kind }: { of: MessageOf; kind?: "added" | "removed" }) {
  return (
    <li class={`m-${/^[a-z]+$/.test(of.by) ? of.by : "other"}${kind ? ` s-${kind}` : ""}`}>
      <p class="who">{kind && <><span class="sign" aria-hidden="true">{SIGN[kind]}</span><span class="hidden">{kind} </span></>}<strong>{line(of.by)}</strong>{of.to && <> → <strong>{line(of.to)}</strong></>}{of.note && <span class="tag">{line(of.note)}</span>} <span class="dim place">{line(of.place)}</span></p>
      <p class="said">{visible(of.text)}{of.cut && "…"}</p>
    </li>
  );
}

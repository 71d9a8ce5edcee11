// A list of any number of checkpoints: only the rows on the screen exist.
import type { ChainAnswer, CheckpointRowAnswer } from "./answers";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { at as address, get, useData } from "./api";
import { Lanes, laneWidth } from "./lanes";
import { Time, bytes, count, line, visible } from "./text";

const ROW = 30;
const PAGE = 100;
const MOST_PAGES = 12;
const TALLEST = 6_000_000; // browsers lose precision with taller pages; longer lists are scaled

interface Props { run: string; at: number; moves: number; forks: Record<string, string[]>; select: (seq: number) => void; filter: Record<string, string> }

export function Checkpoints({ run, at, moves, forks, select, filter }: Props) {
  const pages = useRef(new Map<number, CheckpointRowAnswer[]>());
  const asked = useRef(new Set<number>());
  const [total, setTotal] = useState(0);
  const [damaged, setDamaged] = useState<string[]>([]);
  const [, redraw] = useState(0);
  const where = useRef({ top: 0, scale: 1 });
  const [scroll, setScroll] = useState({ top: 0, height: 400 });
  const box = useRef<HTMLDivElement>(null);
  const searching = Object.values(filter).some(Boolean);
  const found = useData(searching ? address("/api/runs/{run}/checkpoints", { run }, { ...filter, limit: 200 }) : null, moves);
  const lanes = useData(searching ? null : address("/api/runs/{run}/lanes", { run }), moves);
  const chains: ChainAnswer[] = lanes.data?.chains ?? [];

  const forget = () => { // what is far from the screen is read again when somebody looks at it
    const here = Math.floor((where.current.top * where.current.scale) / ROW / PAGE);
    for (const page of [...pages.current.keys()]) if (page !== 0 && Math.abs(page - here) > 2) { pages.current.delete(page); asked.current.delete(page); }
  };
  const load = async (page: number, again = false) => {
    if (asked.current.has(page) && !again) return;
    asked.current.add(page);
    try {
      const data = await get(address("/api/runs/{run}/checkpoints", { run }, { offset: page * PAGE, limit: PAGE }));
      pages.current.set(page, data.rows);
      if (pages.current.size > MOST_PAGES) forget();
      setTotal(data.total ?? 0);
      if (data.damaged?.length) setDamaged(data.damaged);
      redraw((n) => n + 1);
    } catch { asked.current.delete(page); }
  };
  useEffect(() => {
    pages.current = new Map();
    asked.current = new Set();
    setTotal(0);
    setDamaged([]);
  }, [run]);
  useEffect(() => {
    const old = [...pages.current.keys()];
    asked.current = new Set();
    void load(0, true);
    forget();
    for (const page of old) if (page !== 0 && pages.current.has(page)) void load(page, true);
  }, [run, moves]);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const look = new ResizeObserver(() => setScroll((old) => ({ ...old, height: element.clientHeight })));
    look.observe(element);
    return () => look.disconnect();
  }, []);

  const rows: CheckpointRowAnswer[] = searching ? found.data?.rows ?? [] : [];
  const size = searching ? rows.length : total;
  const tall = Math.min(TALLEST, size * ROW);
  const scale = size * ROW > TALLEST ? (size * ROW - scroll.height) / Math.max(1, TALLEST - scroll.height) : 1;
  where.current = { top: scroll.top, scale };
  const first = Math.max(0, Math.floor((scroll.top * scale) / ROW) - 4);
  const last = Math.min(size, first + Math.ceil(scroll.height / ROW) + 8);
  const rowAt = (index: number): CheckpointRowAnswer | undefined => (searching ? rows[index] : pages.current.get(Math.floor(index / PAGE))?.[index % PAGE]);
  useEffect(() => {
    if (searching || !total) return;
    for (const page of new Set([Math.floor(first / PAGE), Math.floor(Math.max(0, last - 1) / PAGE)])) void load(page);
  }, [first, last, total, searching]);

  // The chosen one is brought into view; its place follows from its number where nothing was deleted.
  const place = useMemo(() => {
    for (let index = 0; index < size && index < 4000; index++) if (rowAt(index)?.seq === at) return index;
    const topSeq = rowAt(0)?.seq;
    return topSeq ? Math.max(0, Math.min(size - 1, topSeq - at)) : 0;
  }, [at, size, first]);
  useEffect(() => {
    const element = box.current;
    if (!element || !size) return;
    const y = place * ROW - element.scrollTop * scale; // where its row is drawn: a long list scrolls by more than it shows
    if (y < 0 || y + ROW > element.clientHeight) element.scrollTop = Math.max(0, (place * ROW - element.clientHeight / 2) / scale);
  }, [place, at]);

  const seqs = [];
  for (let index = first; index < last; index++) { const row = rowAt(index); if (row?.files) seqs.push(row.seq); }
  const touched = useData(seqs.length ? address("/api/runs/{run}/touched", { run }, { seqs: seqs.slice(0, 60).join(",") }) : null);
  const step = async (by: number) => {
    const here = searching ? rows.findIndex((row) => row.seq === at) : place;
    const to = Math.max(0, Math.min(size - 1, here + by));
    if (!rowAt(to) && !searching) await load(Math.floor(to / PAGE), true);
    const row = rowAt(to);
    if (row) select(row.seq);
  };
  const shift = scale === 1 ? 0 : scroll.top - scroll.top * scale;
  return (
    <div class="checkpoints">
      <div
        ref={box}
        class="scroll"
        role="listbox"
        tabIndex={0}
        aria-label="Checkpoints, newest first"
        aria-activedescendant={at ? `cp-${at}` : undefined}
        onScroll={(event) => setScroll({ top: event.currentTarget.scrollTop, height: event.currentTarget.clientHeight })}
        onKeyDown={(event) => {
          const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -size, End: size }[event.key];
          if (by !== undefined) { event.preventDefault(); void step(by); }
        }}
      >
        <div role="presentation" class="space" style={{ height: `${tall}px` }}>
          {Array.from({ length: Math.max(0, last - first) }, (_, n) => {
            const index = first + n;
            const row = rowAt(index);
            const style = { transform: `translateY(${index * ROW + shift}px)`, height: `${ROW}px` };
            if (!row) return <div key={index} class="row" role="presentation" style={style}><span class="dim">…</span></div>;
            const files = touched.data?.touched[row.seq];
            return (
              <div
                key={row.id}
                id={`cp-${row.seq}`}
                class={`row ${row.status === "archived" ? "archived" : ""}`}
                role="option"
                aria-selected={row.seq === at}
                aria-posinset={index + 1}
                aria-setsize={size}
                style={style}
                onClick={() => select(row.seq)}
              >
                {searching ? <span class="gap" /> : chains.length ? <Lanes chains={chains} seq={row.seq} height={ROW} head={row.is_head} /> : <span style={{ width: `${laneWidth([])}px` }} />}
                <span class="seq">@{count(row.seq)}</span>
                {row.is_head && <span class="tag head">head</span>}
                {row.label && <span class="tag label">{line(row.label)}</span>}
                {row.pinned && <span class="tag" title="kept whatever the retention says">pinned</span>}
                {row.status !== "valid" && <span class={`tag is-${row.status}`}>{row.status}</span>}
                <span class={`trigger t-${row.trigger}`}>{line(row.trigger)}</span>
                <span class="reason">{line(row.reason || [row.phase, row.state].filter(Boolean).join(", "))}</span>
                {forks[row.id] && <span class="tag fork">↱ {forks[row.id].map(line).join(", ")}</span>}
                {files && <Files of={files} />}
                <span class="size">{bytes(row.stored_bytes)}</span>
                <span class="when"><Time at={row.created_at} /></span>
              </div>
            );
          })}
        </div>
      </div>
      {damaged.map((one) => <p key={one} class="bad">{visible(one)}</p>)}
      {searching && found.data && <p class="dim">{count(rows.length)} found in the newest {count(found.data.looked_at ?? 0)}{found.data.next ? "; more may be further down" : ""}</p>}
    </div>
  );
}

export function Files({ of }: { of: Record<string, number> }) {
  const created = of.created ?? 0, deleted = of.deleted ?? 0;
  const changed = (of.modified ?? 0) + (of.renamed ?? 0) + (of.mode ?? 0);
  if (!created && !deleted && !changed) return null;
  return <span class="touched" title={`${created} new, ${changed} changed, ${deleted} deleted files`}>{created > 0 && <span class="plus">+{created}</span>} {changed > 0 && <span class="tilde">~{changed}</span>} {deleted > 0 && <span class="minus">−{deleted}</span>}</span>;
}

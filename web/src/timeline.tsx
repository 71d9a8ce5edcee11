// Time over a run: bars by phase, agent, task and wait, the budget, the saves; idle stretches are folded.
import type { BudgetLine, Sample, Spans, TimeBar } from "./answers";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { params, setParams } from "./router";
import { count, duration, line, now, plural, tightest } from "./text";

const LEFT = 132;
const LANE = 18;
const FOLD = 26;
const MOST_LANES = 14;

interface Props { spans: Spans; samples: Sample[]; budget: BudgetLine[]; moving: boolean; at: number; select: (seq: number) => void }

export function Timeline({ spans, samples, budget, moving, at, select }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  const [drag, setDrag] = useState<[number, number] | null>(null);
  useEffect(() => {
    const look = new ResizeObserver(() => setWidth(Math.max(240, box.current?.clientWidth ?? 800)));
    if (box.current) look.observe(box.current);
    return () => look.disconnect();
  }, []);
  const from = Number(params.value.get("from") ?? 0), to = Number(params.value.get("to") ?? 0);
  const axis = useMemo(() => makeAxis(spans, samples, moving ? now.value : 0, from, to, width - LEFT - 8), [spans, samples, moving && now.value, from, to, width]);
  const lanes = useMemo(() => makeLanes(spans.bars), [spans]);
  if (!axis) return null;
  const shown = lanes.slice(0, MOST_LANES);
  const limited = tightest(budget) ?? budget.find((one) => one.name === "tokens") ?? budget[0];
  const budgetTop = 22 + shown.length * LANE + 6;
  const budgetHeight = limited && samples.length > 1 ? 40 : 0;
  const touching = samples.filter((one, n) => one.files !== null && (n === 0 || samples[n - 1].files !== one.files));
  const filesTop = budgetTop + budgetHeight + 4;
  const savesTop = filesTop + (touching.length ? 18 : 0);
  const height = savesTop + 20;
  const most = limited ? Math.max(limited.limit ?? 0, ...samples.map((one) => one.used[limited.name] ?? 0), 1) : 1;
  const y = (used: number) => budgetTop + budgetHeight - (used / most) * (budgetHeight - 4);
  const points = limited ? samples.filter((one) => one.used[limited.name] !== undefined).map((one) => `${LEFT + axis.x(Date.parse(one.at))},${y(one.used[limited.name])}`).join(" ") : "";
  const chosen = samples.find((one) => one.seq === at) ?? nearest(samples, at);
  const pixel = (event: PointerEvent) => event.clientX - (box.current?.getBoundingClientRect().left ?? 0) - LEFT;
  return (
    <div class="timeline" ref={box}>
      <svg
        width={width}
        height={height}
        role="img"
        aria-label={`Timeline: ${lanes.length} lanes, ${spans.bars.length} bars, ${axis.folds.length} idle stretches folded`}
        onPointerDown={(event) => { const x = pixel(event); if (x >= 0) setDrag([x, x]); }}
        onPointerMove={(event) => { if (drag) setDrag([drag[0], pixel(event)]); }}
        onPointerUp={() => {
          if (!drag) return;
          const [low, high] = [Math.min(...drag), Math.max(...drag)];
          setDrag(null);
          if (high - low > 8) setParams({ from: Math.round(axis.time(low)), to: Math.round(axis.time(high)) });
          else { const one = nearestTime(samples, axis.time(low)); if (one) select(one.seq); }
        }}
      >
        {axis.ticks.map((tick) => (
          <g key={tick.at}>
            <line x1={LEFT + tick.x} x2={LEFT + tick.x} y1={16} y2={height} class="tick" />
            <text x={LEFT + tick.x + 3} y={12} class="axis">{tick.text}</text>
          </g>
        ))}
        {axis.folds.map((fold) => (
          <g key={fold.x}>
            <rect x={LEFT + fold.x} width={FOLD} y={16} height={height - 16} class="fold" />
            <text x={LEFT + fold.x + FOLD / 2} y={height / 2} class="axis middle">≈{duration(fold.seconds)}</text>
          </g>
        ))}
        {shown.map((lane, index) => (
          <g key={lane.key}>
            <text x={LEFT - 8} y={22 + index * LANE + 13} class={`name k-${lane.kind}`} text-anchor="end">{line(lane.name).slice(0, 19)}<title>{line(`${lane.kind} ${lane.name}`)}</title></text>
            {lane.bars.map((bar, n) => {
              const start = axis.x(Date.parse(bar.from ?? "")), end = axis.x(bar.to ? Date.parse(bar.to) : axis.end);
              const wide = Math.max(3, end - start);
              const told = `${bar.lane} ${bar.name}: ${bar.status}${bar.task ? `, ${bar.task}` : ""}${bar.by ? ` by ${bar.by}` : ""}${bar.error ? ` – ${bar.error}` : ""}`;
              return <rect key={n} x={LEFT + start} width={wide} y={22 + index * LANE + 3} height={LANE - 6} rx={2} class={`bar b-${bar.status} ${bar.to ? "" : "open"}`}><title>{line(told)}</title></rect>;
            })}
          </g>
        ))}
        {budgetHeight > 0 && (
          <g>
            <text x={LEFT - 8} y={budgetTop + 14} class="name" text-anchor="end">{line(limited.name)}</text>
            <text x={LEFT - 8} y={budgetTop + 28} class="axis" text-anchor="end">{count(Math.round(limited.used))}</text>
            {limited.limit && <line x1={LEFT} x2={width - 8} y1={y(limited.limit)} y2={y(limited.limit)} class="limit" />}
            {limited.limit && <text x={LEFT + 4} y={y(limited.limit) + 11} class="axis">limit {count(limited.limit)}</text>}
            <polyline points={points} class="line" />
          </g>
        )}
        {touching.length > 0 && <text x={LEFT - 8} y={filesTop + 12} class="name" text-anchor="end">files</text>}
        {touching.map((one) => <rect key={one.seq} x={LEFT + axis.x(Date.parse(one.at)) - 2} width={4} y={filesTop + 2} height={12} rx={1} class="touching"><title>{`files changed by @${one.seq}`}</title></rect>)}
        <text x={LEFT - 8} y={savesTop + 12} class="name" text-anchor="end">saves</text>
        {samples.map((one) => <line key={one.seq} x1={LEFT + axis.x(Date.parse(one.at))} x2={LEFT + axis.x(Date.parse(one.at))} y1={savesTop + 2} y2={savesTop + 14} class={`save t-${one.trigger}`} />)}
        {chosen && <line x1={LEFT + axis.x(Date.parse(chosen.at))} x2={LEFT + axis.x(Date.parse(chosen.at))} y1={16} y2={height} class="here" />}
        {drag && <rect x={LEFT + Math.min(...drag)} width={Math.abs(drag[1] - drag[0])} y={16} height={height} class="brush" />}
      </svg>
      {spans.is_cut && <p class="dim more">from the newest records of a long journal; <code>holdfast events</code> has all</p>}
      {lanes.length > shown.length && <p class="dim more">{plural(lanes.length - shown.length, "more lane")}: see the list</p>}
      {(from > 0 || to > 0) && <button type="button" class="quiet" onClick={() => setParams({ from: null, to: null })}>whole time</button>}
      {spans.bars.length > 0 && (
        <details class="as-list"><summary>as a list</summary>
          <ul>{spans.bars.slice(-200).map((bar, n) => <li key={n}><span class="dim">{bar.lane}</span> {line(bar.name)} <strong>{line(bar.status)}</strong>{bar.error ? ` – ${line(bar.error).slice(0, 200)}` : ""}</li>)}</ul>
        </details>
      )}
    </div>
  );
}

interface Lane { key: string; kind: string; name: string; bars: TimeBar[] }

function makeLanes(bars: TimeBar[]): Lane[] {
  const found = new Map<string, Lane>();
  for (const kind of ["phase", "agent", "task", "wait"]) {
    for (const bar of bars) {
      if (bar.lane !== kind) continue;
      const name = kind === "wait" ? "waits" : kind === "task" ? bar.name.split("/").pop() ?? "" : bar.name;
      const key = `${kind} ${name}`;
      const lane: Lane = found.get(key) ?? { key, kind, name: kind === "task" ? `· ${name}` : name, bars: [] };
      lane.bars.push(bar);
      found.set(key, lane);
    }
  }
  return [...found.values()];
}

// Time to pixels, with the idle stretches as wide as a folded edge.
function makeAxis(spans: Spans, samples: Sample[], end: number, from: number, to: number, width: number) {
  const times = [...spans.bars.flatMap((bar) => [bar.from, bar.to]), ...samples.map((one) => one.at), ...spans.marks.map((one) => one.at)].filter((one) => one !== null).map(Date.parse);
  if (!times.length) return null;
  const low = from || Math.min(...times);
  const high = Math.max(low + 1000, to || Math.max(end, ...times));
  const idle = spans.idle.map(([a, b]) => [Date.parse(a), Date.parse(b)]).filter(([a, b]) => a >= low && b <= high);
  const folded = idle.reduce((sum, [a, b]) => sum + b - a, 0);
  const scale = Math.max(10, width - idle.length * FOLD) / Math.max(1, high - low - folded);
  const x = (time: number) => {
    let at = 0, last = low;
    const wanted = Math.max(low, Math.min(high, time));
    for (const [a, b] of idle) {
      if (wanted <= a) break;
      at += (a - last) * scale;
      if (wanted < b) return at + FOLD * ((wanted - a) / (b - a));
      at += FOLD;
      last = b;
    }
    return at + (wanted - last) * scale;
  };
  const time = (pixels: number) => {
    let at = 0, last = low;
    for (const [a, b] of idle) {
      const wide = (a - last) * scale;
      if (pixels < at + wide) return last + (pixels - at) / scale;
      at += wide;
      if (pixels < at + FOLD) return a + ((pixels - at) / FOLD) * (b - a);
      at += FOLD;
      last = b;
    }
    return Math.min(high, last + (pixels - at) / scale);
  };
  const ticks = [];
  const many = Math.max(2, Math.floor(width / 130));
  const short = high - low < 120_000;
  for (let n = 0; n < many; n++) {
    const at = time((n * width) / many);
    const text = n > 0 && high - low < 30_000 ? `+${((at - low) / 1000).toFixed(high - low < 1000 * many ? 2 : 1)} s` : new Date(at).toLocaleTimeString([], short ? { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false } : { hour: "2-digit", minute: "2-digit", hour12: false });
    ticks.push({ at: n, x: (n * width) / many, text: high - low > 86_400_000 ? `${new Date(at).toLocaleDateString([], { day: "numeric", month: "short" })} ${text}` : text });
  }
  return { x, time, end: high, ticks, folds: idle.map(([a, b]) => ({ x: x(a), seconds: (b - a) / 1000 })) };
}

function nearest(samples: Sample[], seq: number): Sample | null {
  return samples.reduce((best: Sample | null, one) => (!best || Math.abs(one.seq - seq) < Math.abs(best.seq - seq) ? one : best), null);
}
function nearestTime(samples: Sample[], time: number): Sample | null {
  return samples.reduce((best: Sample | null, one) => (!best || Math.abs(Date.parse(one.at) - time) < Math.abs(Date.parse(best.at) - time) ? one : best), null);
}

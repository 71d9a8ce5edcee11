// A stored value as a tree that is read a page at a time; what changed since the last look flashes.
import type { Child, SectionPage } from "./answers";
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { at, useData } from "./api";
import { Problem, bytes, count, line, visible } from "./text";

const open = signal<ReadonlySet<string>>(new Set(["state", "phases"])); // stays open while one scrubs through checkpoints
const toggle = (key: string) => {
  const next = new Set(open.value);
  if (!next.delete(key)) next.add(key);
  open.value = next;
};

export function SectionTree({ spec, sections, moves }: { spec: string; sections: { name: string; size: number }[]; moves: number }) {
  if (!sections.length) return <p class="dim">It holds no sections.</p>;
  return (
    <ul class="tree">
      {sections.map((one) => {
        const is = open.value.has(one.name);
        return (
          <li key={one.name}>
            <button type="button" class="node" aria-expanded={is} onClick={() => toggle(one.name)}><span class="key">{line(one.name)}</span> <span class="dim">{bytes(one.size)}</span></button>
            {is && <Children spec={spec} section={one.name} steps={[]} moves={moves} />}
          </li>
        );
      })}
    </ul>
  );
}

function Children({ spec, section, steps, moves }: { spec: string; section: string; steps: (string | number)[]; moves: number }) {
  const [offset, setOffset] = useState(0);
  const { data, error, loading } = useData(at("/api/c/{spec}/section/{name}", { spec, name: section }, { path: steps.length ? JSON.stringify(steps) : null, offset, limit: 50 }), moves);
  if (error) return <Problem of={error} />;
  if (!data) return <p class="dim">{loading ? "…" : ""}</p>;
  if (data.kind === "text") {
    return <div><pre class="text">{visible(data.text)}</pre>{data.total > (data.text ?? "").length && <Turn data={data} page={65_536} set={setOffset} />}</div>;
  }
  if (data.kind !== "map" && data.kind !== "list") return <pre class="text">{visible(data.text)}</pre>;
  return (
    <>
      <ul class="tree">{(data.items ?? []).map((item) => <Item key={item.key} item={item} spec={spec} section={section} steps={[...steps, item.key]} moves={moves} />)}</ul>
      {data.total > (data.items ?? []).length && <Turn data={data} page={50} set={setOffset} />}
      {data.total === 0 && <p class="dim small">empty</p>}
    </>
  );
}

function Turn({ data, page, set }: { data: SectionPage; page: number; set: (offset: number) => void }) {
  const end = Math.min(data.total, data.offset + page);
  return (
    <p class="pager small">
      <button type="button" disabled={!data.offset} onClick={() => set(Math.max(0, data.offset - page))}>before</button>
      <span>{count(data.offset)}–{count(end)} of {count(data.total)}</span>
      <button type="button" disabled={end >= data.total} onClick={() => set(data.offset + page)}>next</button>
    </p>
  );
}

function Item({ item, spec, section, steps, moves }: { item: Child; spec: string; section: string; steps: (string | number)[]; moves: number }) {
  const key = `${section} ${JSON.stringify(steps)}`;
  const is = open.value.has(key);
  const before = useRef(item.preview);
  const [flash, setFlash] = useState(false);
  useEffect(() => {
    if (before.current === item.preview) return;
    before.current = item.preview;
    setFlash(true);
    const timer = setTimeout(() => setFlash(false), 1200);
    return () => clearTimeout(timer);
  }, [item.preview]);
  const nested = item.kind === "map" || item.kind === "list" || (item.kind === "text" && (item.count ?? 0) > 160);
  const size = item.kind === "map" ? `{${count(item.count ?? 0)}}` : item.kind === "list" ? `[${count(item.count ?? 0)}]` : item.kind === "text" && (item.count ?? 0) > 160 ? `${count(item.count ?? 0)} letters` : "";
  const inside = <><span class="key">{line(item.key)}</span> {size && <span class="dim">{size}</span>} {!is && <span class={`value v-${item.kind.replace(/ /g, "-")}`}>{line(item.preview)}</span>}</>;
  return (
    <li class={flash ? "flash" : ""}>
      {nested ? <button type="button" class="node" aria-expanded={is} onClick={() => toggle(key)}>{inside}</button> : <span class="node leaf">{inside}</span>}
      {nested && is && <Children spec={spec} section={section} steps={steps} moves={moves} />}
    </li>
  );
}

// What the tasks of a run print, as it comes.
import { useEffect, useRef } from "preact/hooks";
import { at, useData, usePrinted } from "./api";
import { params, setParams } from "./router";
import { Problem, line, visible } from "./text";

export function Output({ run, moves }: { run: string; moves: number }) {
  const printed = usePrinted(run);
  const task = params.value.get("task") ?? "";
  const { data, error } = useData(at("/api/runs/{run}/output", { run }, { task }), `${moves}.${printed}`);
  const text = useRef<HTMLPreElement>(null);
  const follows = useRef(true);
  useEffect(() => { // stays at the end, unless somebody scrolled up to read
    const shown = text.current;
    if (shown && follows.current) shown.scrollTop = shown.scrollHeight;
  }, [data?.text]);
  if (!data) return error ? <Problem of={error} /> : <p class="dim">…</p>;
  if (!data.is_kept) return <p class="dim">What tasks print is not written beside an encrypted store.</p>;
  if (data.tasks.length === 0) return <p class="dim">Its tasks printed nothing, or they ran on another machine.</p>;
  return (
    <div class="output">
      <label>task <select value={data.task ?? ""} onChange={(event) => setParams({ task: event.currentTarget.value })}>
        {data.tasks.map((one) => <option key={one} value={one}>{line(one)}</option>)}
      </select></label>
      {data.is_cut && <p class="dim small">The last 128 kB; <code>holdfast logs</code> has more.</p>}
      <pre ref={text} tabIndex={0} aria-label={`Output of ${data.task}`} onScroll={(event) => { const at = event.currentTarget; follows.current = at.scrollTop + at.clientHeight > at.scrollHeight - 24; }}>{visible(data.text)}</pre>
    </div>
  );
}

// A unified diff, shown in one column or two, with the words that differ within a line.
import { diffWordsWithSpace } from "diff";
import { visible } from "./text";

interface Line { kind: " " | "+" | "-" | "@" | "\\"; text: string; old: number | null; new: number | null }

export function parse(text: string): Line[] {
  const lines: Line[] = [];
  let old = 0, fresh = 0;
  for (const raw of text.replace(/\n$/, "").split("\n")) {
    if (raw.startsWith("--- ") && !lines.length) continue;
    if (raw.startsWith("+++ ") && !lines.length) continue;
    const hunk = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/.exec(raw);
    if (hunk) { old = Number(hunk[1]); fresh = Number(hunk[2]); lines.push({ kind: "@", text: raw, old: null, new: null }); continue; }
    const kind = raw[0] as Line["kind"];
    if (kind === "+") lines.push({ kind, text: raw.slice(1), old: null, new: fresh++ });
    else if (kind === "-") lines.push({ kind, text: raw.slice(1), old: old++, new: null });
    else if (kind === "\\") lines.push({ kind, text: raw.slice(2), old: null, new: null });
    else lines.push({ kind: " ", text: raw.slice(1), old: old++, new: fresh++ });
  }
  return lines;
}

// Pairs lines that were taken out with those that came in their place.
function paired(lines: Line[]): [Line | null, Line | null][] {
  const rows: [Line | null, Line | null][] = [];
  for (let at = 0; at < lines.length; ) {
    if (lines[at].kind !== "-" && lines[at].kind !== "+") { rows.push([lines[at], lines[at]]); at++; continue; }
    const out: Line[] = [], into: Line[] = [];
    while (at < lines.length && (lines[at].kind === "-" || lines[at].kind === "+" || lines[at].kind === "\\")) {
      if (lines[at].kind === "-") out.push(lines[at]);
      else if (lines[at].kind === "+") into.push(lines[at]);
      at++;
    }
    for (let n = 0; n < Math.max(out.length, into.length); n++) rows.push([out[n] ?? null, into[n] ?? null]);
  }
  return rows;
}

function Words({ line, other }: { line: Line; other: Line | null }) {
  if (!other || line.text.length + other.text.length > 4000) return <>{visible(line.text)}</>;
  const [before, after] = line.kind === "-" ? [line.text, other.text] : [other.text, line.text];
  return (
    <>
      {diffWordsWithSpace(before, after).map((part, n) => {
        if (part.added && line.kind === "-") return null;
        if (part.removed && line.kind === "+") return null;
        return part.added || part.removed ? <mark key={n}>{visible(part.value)}</mark> : <span key={n}>{visible(part.value)}</span>;
      })}
    </>
  );
}

const LABEL: Record<string, string> = { "+": "added", "-": "removed" };

export function DiffView({ text, split }: { text: string; split: boolean }) {
  const lines = parse(text);
  if (!lines.length) return <p class="dim">No text differs.</p>;
  const rows = paired(lines);
  if (split) {
    return (
      <div class="diff split-diff" tabIndex={0} role="group" aria-label="Both versions side by side">
        {rows.map(([left, right], n) => left?.kind === "@" ? <div key={n} class="hunk">{left.text}</div> : (
          <div key={n} class="pair">
            <Side line={left} other={right} kind="-" number={left?.old ?? null} />
            <Side line={right} other={left} kind="+" number={right?.new ?? null} />
          </div>
        ))}
      </div>
    );
  }
  const partner = new Map<Line, Line | null>();
  for (const [left, right] of rows) { if (left) partner.set(left, right); if (right && right !== left) partner.set(right, left); }
  return (
    <div class="diff" tabIndex={0} role="group" aria-label="Differences line by line">
      {lines.map((one, n) => one.kind === "@" ? <div key={n} class="hunk">{one.text}</div> : (
        <div key={n} class={`line d${one.kind === "+" ? "-in" : one.kind === "-" ? "-out" : ""}`}>
          <span class="no" aria-hidden="true">{one.old ?? ""}</span><span class="no" aria-hidden="true">{one.new ?? ""}</span>
          <span class="mark">{LABEL[one.kind] && <span class="hidden">{LABEL[one.kind]}: </span>}<span aria-hidden="true">{one.kind}</span></span>
          <span class="code">{one.kind === "+" || one.kind === "-" ? <Words line={one} other={partner.get(one) ?? null} /> : visible(one.text)}</span>
        </div>
      ))}
    </div>
  );
}

function Side({ line, other, kind, number }: { line: Line | null; other: Line | null; kind: string; number: number | null }) {
  if (!line) return <div class="line blank"><span class="no" /><span class="code" /></div>;
  const changed = line.kind === "+" || line.kind === "-";
  return (
    <div class={`line ${changed ? (kind === "+" ? "d-in" : "d-out") : ""}`}>
      <span class="no" aria-hidden="true">{number ?? ""}</span>
      <span class="code">{changed ? <Words line={line} other={other?.kind === line.kind ? null : other} /> : visible(line.text)}</span>
    </div>
  );
}

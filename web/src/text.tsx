// Stored text and figures, as people may see them.
import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import type { Failure } from "./api";

// Letters that steer a terminal, turn the writing direction or are not seen are written out.
const UNSAFE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udc7f]/g;

export function visible(text: unknown): string {
  return String(text ?? "").replace(UNSAFE, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
export const line = (text: unknown) => visible(text).replace(/\s*\n\s*/g, " ⏎ ");

// A word as a shell takes it.
export const quoted = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replace(/'/g, `'"'"'`)}'`);

export const now = signal(Date.now());
setInterval(() => (now.value = Date.now()), 1000);

export function ago(at: string | null | undefined): string {
  if (!at) return "–";
  const seconds = Math.max(0, (now.value - Date.parse(at)) / 1000);
  if (seconds < 2) return "now";
  return `${duration(seconds)} ago`;
}

export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

export function Time({ at }: { at: string | null | undefined }) {
  if (!at) return <span>–</span>;
  return <time dateTime={at} title={new Date(at).toLocaleString()}>{ago(at)}</time>;
}

export function bytes(size: number | null | undefined): string {
  if (size === null || size === undefined) return "";
  if (size < 1000) return `${size} B`;
  for (const unit of ["kB", "MB", "GB", "TB"]) {
    size /= 1000;
    if (size < 1000 || unit === "TB") return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${unit}`;
  }
  return "";
}

export const count = (n: number) => n.toLocaleString("en-US").replace(/,/g, "\u202f");
export const plural = (n: number, word: string) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

const SIGNS: Record<string, string> = {
  moving: "●", waiting: "?", paused: "‖", failed: "✗", open: "○", completed: "✓", cancelled: "⊘", damaged: "!", saved: "·", ended: "·",
};

export function Status({ of, detail }: { of: string; detail?: string }) {
  return <span class={`status is-${of}`} title={detail}><span aria-hidden="true">{SIGNS[of] ?? "·"}</span> {visible(of)}</span>;
}

export function Problem({ of }: { of: Failure | null }) {
  if (!of) return null;
  return (
    <div class="problem" role="alert">
      <p>{visible(of.message)}</p>
      {of.command && <Command line={of.command} />}
    </div>
  );
}

/** In place of a screen that cannot be shown. */
export function Instead({ of }: { of: Failure | null }) {
  return of ? <section><h1>Nothing to show here</h1><Problem of={of} /><p><a href="/">All runs</a></p></section> : <p class="dim">…</p>;
}

export function Command({ line: text }: { line: string }) {
  const [copied, setCopied] = useState(false);
  return (
    <span class="command">
      <code>{line(text)}</code>
      <button
        type="button"
        class="quiet"
        onClick={() => {
          void navigator.clipboard.writeText(text).then(() => setCopied(true));
          setTimeout(() => setCopied(false), 1500);
        }}
      >
        {copied ? "copied" : "copy"}<span class="hidden"> the command {line(text)}</span>
      </button>
    </span>
  );
}

// The budget that is nearest to its limit.
export function tightest(budgets: { name: string; used: number; limit: number | null }[] | undefined) {
  const limited = (budgets ?? []).filter((one) => one.limit);
  return limited.sort((a, b) => b.used / (b.limit ?? 1) - a.used / (a.limit ?? 1))[0] ?? null;
}

export function Bar({ used, limit, name: raw }: { used: number; limit: number | null; name: string }) {
  const name = line(raw).replace(/_s$/, "");
  const share = limit ? used / limit : 0;
  const level = share > 1 ? "over" : share > 0.8 ? "near" : "";
  const text = limit ? `${Math.round(share * 100)} % ${name}` : `${count(Math.round(used))} ${name}`;
  return (
    <span class="budget" title={`${name}: ${count(used)}${limit ? ` of ${count(limit)}` : ""}`}>
      {limit ? <span class={`gauge ${level}`}><span style={{ width: `${Math.min(100, share * 100)}%` }} /></span> : null}
      <span>{text}{share > 1 ? " !" : ""}</span>
    </span>
  );
}

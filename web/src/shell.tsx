// What every view has around it: the rail, the line above, the command below, keys and the palette.
import type { CheckpointRowAnswer, RunRowAnswer } from "./answers";
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { about, connection, at as address, get, version, waiting } from "./api";
import { Link, go, path, planPath, runPath } from "./router";
import { Command, Status, line, quoted } from "./text";

export const command = signal("holdfast ls");
export const paletteOpen = signal(false);
export const helpOpen = signal(false);
export const side = signal<string | null>(null); // marked with x, to be compared with the next

export function useTitle(title: string, commandLine: string): void {
  useEffect(() => {
    document.title = `${title} – Holdfast`;
    command.value = commandLine;
  }, [title, commandLine]);
}

// Says something to screen readers, once in five seconds at most.
const said = signal("");
let saidAt = 0;
export function announce(text: string): void {
  if (Date.now() - saidAt < 5000) return;
  saidAt = Date.now();
  said.value = text;
}

type Keys = Record<string, (event: KeyboardEvent) => void>;
const maps: Keys[] = [];
let prefix = "";

export function useKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    const map: Keys = new Proxy({} as Keys, { get: (_, name: string) => latest.current[name] });
    maps.push(map);
    return () => void maps.splice(maps.indexOf(map), 1);
  }, []);
}

window.addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    paletteOpen.value = true;
    return;
  }
  const target = event.target as HTMLElement;
  const typing = target.matches?.("input:not([type=range]):not([type=checkbox]):not([type=radio]), textarea, select");
  if (event.key === "Escape" && typing) { target.blur(); return; }
  if (event.metaKey || event.ctrlKey || event.altKey || typing || document.querySelector("dialog[open]")) return;
  const key = prefix + event.key;
  prefix = event.key === "g" && !prefix ? "g " : "";
  const common: Keys = {
    "?": () => (helpOpen.value = true),
    "g r": () => go("/"),
    "g a": () => go("/approvals"),
    "g s": () => go("/storage"),
    "/": () => document.querySelector<HTMLInputElement>("input[type=search]")?.focus(),
    Escape: () => history.back(),
  };
  const call = [...maps].reverse().map((map) => map[key]).find(Boolean) ?? common[key];
  if (call) {
    event.preventDefault();
    call(event);
  }
});

// Moves the focus between the rows of a list.
export function moveRow(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.indexOf(document.activeElement as HTMLElement);
  rows[Math.max(0, Math.min(rows.length - 1, at + by))]?.focus();
}

export function toggleTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("holdfast-theme", root.dataset.theme);
}
const kept = localStorage.getItem("holdfast-theme");
if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;

const WORDS = { connecting: "connecting", live: "live", lost: "not connected", locked: "locked" };

export function Shell({ children }: { children: ComponentChildren }) {
  const here = path.value;
  const on = (test: boolean) => (test ? "page" : undefined);
  return (
    <div class="shell">
      <a class="skip" href="#main">Skip to the content</a>
      <header>
        <Link to="/" class="mark"><strong>holdfast</strong></Link>
        <span class="store" title={about.value?.url}>{line(about.value?.project || about.value?.url || "")}</span>
        <span class={`badge ${about.value?.writes ? "writes" : ""}`}>{about.value?.writes ? "write" : "read-only"}</span>
        <span class={`live is-${connection.value}`}><span aria-hidden="true">●</span> {WORDS[connection.value]}</span>
        <span class="grow" />
        <button type="button" class="quiet" onClick={() => (paletteOpen.value = true)}>Search <kbd>Ctrl K</kbd></button>
        <button type="button" class="quiet" onClick={toggleTheme} aria-label="Dark or light">◐</button>
        <button type="button" class="quiet" onClick={() => (helpOpen.value = true)} aria-label="Keys">?</button>
      </header>
      <nav aria-label="Views">
        <Link to="/" aria-current={on(here === "/" || here.startsWith("/r/"))}>Runs</Link>
        <Link to="/approvals" aria-current={on(here === "/approvals")}>
          Approvals {waiting.value > 0 && <span class="count">{waiting.value}<span class="hidden"> waiting</span></span>}
        </Link>
        <Link to="/storage" aria-current={on(here === "/storage")}>Storage</Link>
        {side.value && <span class="marked">marked: {line(side.value)} <button type="button" class="quiet" onClick={() => (side.value = null)}>forget</button></span>}
      </nav>
      {connection.value === "lost" && <div class="banner" role="status">The server is not there. The page continues when it is back; nothing is lost.</div>}
      {connection.value === "locked" && <div class="banner" role="alert">This page belongs to another start of the server. Open the address that <code>holdfast ui</code> prints.</div>}
      <main id="main" tabIndex={-1}>{children}</main>
      <footer>
        <span class="hidden">The same on the command line:</span>
        <Command line={command.value} />
        <span class="grow" />
        <span class="dim">holdfast {version}</span>
      </footer>
      <div class="hidden" role="status" aria-live="polite">{said.value}</div>
      {paletteOpen.value && <Palette />}
      {helpOpen.value && <Help />}
    </div>
  );
}

export function Dialog({ title, onClose, children, class: kind = "" }: { title: string; onClose: () => void; children: ComponentChildren; class?: string }) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    element.current?.showModal();
    element.current?.querySelector<HTMLElement>("[data-focus]")?.focus();
  }, []);
  return (
    <dialog ref={element} class={kind} aria-label={title} onClose={onClose} onClick={(event) => { if (event.target === element.current) element.current?.close(); }}>
      <div class="inside">{children}</div>
    </dialog>
  );
}

interface Found { text: string; hint: string; status?: string; act: () => void }

function Palette() {
  const [text, setText] = useState("");
  const [runs, setRuns] = useState<RunRowAnswer[]>([]);
  const [labelled, setLabelled] = useState<CheckpointRowAnswer[]>([]);
  const [at, setAt] = useState(0);
  const run = /^\/r\/([^/]+)/.exec(path.value)?.[1];
  const close = () => (paletteOpen.value = false);
  useEffect(() => {
    const abort = new AbortController();
    get(address("/api/runs", { q: text.split("@")[0], limit: 8 }), abort.signal).then((found) => setRuns(found.runs), () => undefined);
    if (run && text) get(address("/api/runs/{run}/checkpoints", { run: decodeURIComponent(run) }, { q: text, limit: 8 }), abort.signal).then((found) => setLabelled(found.rows), () => undefined);
    else setLabelled([]);
    setAt(0);
    return () => abort.abort();
  }, [text]);
  const actions: Found[] = [
    { text: "Runs", hint: "g r", act: () => go("/") },
    { text: "Approvals", hint: "g a", act: () => go("/approvals") },
    { text: "Storage", hint: "g s", act: () => go("/storage") },
    { text: "Dark or light", hint: "", act: toggleTheme },
    { text: "Keys", hint: "?", act: () => (helpOpen.value = true) },
  ];
  if (run) {
    const bisect = `holdfast bisect ${quoted(decodeURIComponent(run))} -- COMMAND`;
    for (const tab of ["state", "files", "messages", "events", "output"]) actions.push({ text: `Show ${tab}`, hint: tab[0], act: () => go(runPath(decodeURIComponent(run), `?tab=${tab}`)) });
    actions.push({ text: "Plan: resume this run", hint: "p", act: () => go(planPath(decodeURIComponent(run))) });
    actions.push({ text: `Copy: ${bisect}`, hint: "find the checkpoint that broke something", act: () => void navigator.clipboard.writeText(bisect) });
  }
  const wanted = text.toLowerCase();
  const found: Found[] = runs.map((run) => ({ text: run.id, hint: `@${run.last_seq}`, status: run.shown, act: () => go(runPath(run.id)) }));
  if (/^(cp_|\S+@\d+$|\S+~\d+$)/.test(text)) found.unshift({ text: `checkpoint ${text}`, hint: "open", act: () => go(`/c/${encodeURIComponent(text)}`) });
  found.push(...labelled.map((row) => ({ text: `${row.run}@${row.seq} ${row.label ?? row.reason}`, hint: row.label ? "label" : row.trigger, act: () => go(runPath(row.run, `?at=${row.seq}`)) })));
  found.push(...actions.filter((one) => one.text.toLowerCase().includes(wanted)));
  const choose = (one: Found | undefined) => { if (one) { close(); one.act(); } };
  return (
    <Dialog title="Search and commands" onClose={close} class="palette">
      <input
        type="text"
        role="combobox"
        list={undefined}
        aria-label="Run, checkpoint or command"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={found.length ? `palette-${at}` : undefined}
        placeholder="Run, RUN@7, id, or a command"
        value={text}
        data-focus
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown" || event.key === "ArrowUp") {
            event.preventDefault();
            setAt((n) => Math.max(0, Math.min(found.length - 1, n + (event.key === "ArrowDown" ? 1 : -1))));
          } else if (event.key === "Enter") choose(found[at]);
        }}
      />
      <div id="palette-list" role="listbox" aria-label="Found">
        {found.map((one, index) => (
          <div key={one.text} id={`palette-${index}`} role="option" aria-selected={index === at} onClick={() => choose(one)}>
            <span>{line(one.text)}</span> {one.status && <Status of={one.status} />} <span class="dim">{one.hint}</span>
          </div>
        ))}
      </div>
    </Dialog>
  );
}

const KEYS = [
  ["j k", "next, previous row"], ["Enter", "open"], ["x", "mark this side; the second time compares"], ["c", "compare with the parent"],
  ["p", "plan going back here"], ["s f m e o", "state, files, messages, events, output"], ["[ ]", "parent, next"], ["g h", "head of the run"], ["/", "filter"],
  ["g r  g a  g s", "runs, approvals, storage"], ["Ctrl K", "search"], ["Esc", "back"],
];

function Help() {
  return (
    <Dialog title="Keys" onClose={() => (helpOpen.value = false)}>
      <h2>Keys</h2>
      <dl class="keys">{KEYS.map(([key, what]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}</dl>
      <form method="dialog"><button data-focus>Close</button></form>
    </Dialog>
  );
}

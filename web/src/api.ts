// Requests to the server, and its stream of events.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { About, ErrorAnswer, Gets, LiveEvent, Posts } from "./answers";

const meta = (name: string) => document.querySelector(`meta[name="holdfast-${name}"]`)?.getAttribute("content") ?? "";
export const base = meta("base");
export const version = meta("version");
const needsCode = meta("auth") === "code";
const KEY = `holdfast-token${base}`;

export class Failure extends Error {
  constructor(readonly status: number, readonly kind: string, sentence: string, readonly command: string | null) {
    super(sentence);
  }
}

export const about = signal<About | null>(null);
export const connection = signal<"connecting" | "live" | "lost" | "locked">("connecting");
export const waiting = signal(0);
let token = "";

export async function begin(): Promise<void> {
  const code = /[#&]code=([\w-]+)/.exec(location.hash)?.[1];
  if (code) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      const answer = await post(to("/api/session"), { code });
      localStorage.setItem(KEY, answer.token);
    } catch (error) {
      if (!localStorage.getItem(KEY)) throw error;
    }
  }
  token = localStorage.getItem(KEY) ?? "";
  if (needsCode && !token) throw new Failure(401, "NoToken", "Open this page with the address that `holdfast ui` prints.", "holdfast ui");
  about.value = await get(at("/api/about"));
}

interface Sent { method?: string; body?: unknown; signal?: AbortSignal }

async function send<T>(path: string, { method = "GET", body, signal }: Sent = {}): Promise<T> {
  const headers: Record<string, string> = token ? { Authorization: `Holdfast ${token}` } : {};
  if (method !== "GET") headers["Content-Type"] = "application/json";
  const answer = await fetch(base + path, { method, headers, signal, body: method === "GET" ? undefined : JSON.stringify(body ?? {}) });
  if (answer.ok) return answer.json();
  let told: Partial<ErrorAnswer> = {};
  try { told = await answer.json(); } catch { /* no JSON: the status says it */ }
  if (answer.status === 401) connection.value = "locked";
  throw new Failure(answer.status, told.error ?? "Error", told.sentence ?? `The server answered ${answer.status}.`, told.command ?? null);
}

// An address, which remembers the route that it was made from: the route decides what is answered.
export type Address<Route> = string & { readonly route?: Route };
type Name<Route> = Route extends `${string}{${infer Part}}${infer Rest}` ? (Part extends `${infer Plain}:path` ? Plain : Part) | Name<Rest> : never;
type Query = Record<string, string | number | null | undefined>;
type Parts<Route> = [Name<Route>] extends [never] ? [asked?: Query] : [parts: Record<Name<Route>, string>, asked?: Query];

function filled(route: string, given: Query[]): string {
  const parts = route.includes("{") ? given[0] : {}, asked = route.includes("{") ? given[1] : given[0];
  return route.replace(/\{(\w+)(?::path)?\}/g, (_, name: string) => encodeURIComponent(String(parts[name]))) + query(asked ?? {});
}
export const at = <Route extends keyof Gets>(route: Route, ...given: Parts<Route>): Address<Route> => filled(route, given as Query[]);
export const to = <Route extends keyof Posts>(route: Route, ...given: Parts<Route>): Address<Route> => filled(route, given as Query[]);
export const get = <Route extends keyof Gets>(path: Address<Route>, signal?: AbortSignal) => send<Gets[Route]>(path, { signal });
export const post = <Route extends keyof Posts>(path: Address<Route>, body?: unknown) => send<Posts[Route]>(path, { method: "POST", body });

export function query(values: Query): string {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== null && value !== undefined && value !== "") parts.set(name, String(value));
  const text = parts.toString();
  return text ? `?${text}` : "";
}

// A file comes as bytes with the token in a header, so it is fetched and then handed over.
export async function download(path: string, name: string): Promise<void> {
  const answer = await fetch(base + path, { headers: token ? { Authorization: `Holdfast ${token}` } : {} });
  if (!answer.ok) throw new Failure(answer.status, "Error", `The server answered ${answer.status}.`, null);
  handOver(await answer.blob(), name);
}

export function handOver(data: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export interface Data<T> { data: T | null; error: Failure | null; loading: boolean; reload: () => void }

// Fetches a path; what was shown stays until the next is there, so that nothing jumps.
export function useData<Route extends keyof Gets>(path: Address<Route> | null, extra: unknown = 0): Data<Gets[Route]> {
  const [state, setState] = useState<{ data: Gets[Route] | null; error: Failure | null; path: string | null }>({ data: null, error: null, path: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    get(path, abort.signal).then(
      (data) => setState({ data, error: null, path }),
      (error) => { if (!abort.signal.aborted) setState((old) => ({ data: old.path === path ? old.data : null, error: toFailure(error), path })); },
    );
    return () => abort.abort();
  }, [path, turn, extra]);
  return { data: state.data, error: state.error, loading: state.path !== path, reload: () => setTurn((n) => n + 1) };
}

export function toFailure(error: unknown): Failure {
  return error instanceof Failure ? error : new Failure(0, "Unreachable", "The server cannot be reached.", "holdfast ui");
}

type Listener = (event: LiveEvent) => void;
const listeners = new Set<Listener>();
let cursor = "";

export function useLive(listener: Listener): void {
  const latest = useRef(listener);
  latest.current = listener;
  useEffect(() => {
    const call: Listener = (event) => latest.current(event);
    listeners.add(call);
    return () => void listeners.delete(call);
  }, []);
}

// Counts the events that concern a run (or any, without one), at most five times a second.
export function useMoves(run?: string): number {
  const [turn, setTurn] = useState(0);
  const due = useRef(0);
  useLive((event) => {
    if (event.type !== "reset" && event.type !== "run" && event.type !== "marks") return;
    if (event.type !== "reset" && run !== undefined && event.run !== run) return;
    if (due.current) return;
    due.current = window.setTimeout(() => { due.current = 0; setTurn((n) => n + 1); }, 120);
  });
  return turn;
}

// Counts how often the tasks of a run printed something, at most five times a second.
export function usePrinted(run: string): number {
  const [turn, setTurn] = useState(0);
  const due = useRef(0);
  useLive((event) => {
    if (event.type !== "reset" && (event.type !== "output" || event.run !== run)) return;
    if (!due.current) due.current = window.setTimeout(() => { due.current = 0; setTurn((n) => n + 1); }, 200);
  });
  return turn;
}

function tell(event: LiveEvent): void {
  if (event.cursor) cursor = event.cursor;
  for (const listener of [...listeners]) listener(event);
}

// One page of a browser holds the stream and hands its events to the others: a browser allows six connections to one
// server. When that page is closed, the next one takes over from the cursor that it heard last.
export function follow(): void {
  if (!navigator.locks || !window.BroadcastChannel) { void stream(tell); return; }
  const channel = new BroadcastChannel(`holdfast-live${base}`);
  channel.onmessage = ({ data }) => {
    if (data.connection) connection.value = data.connection;
    if (data.event) tell(data.event);
    if (data.asks && leading) channel.postMessage({ connection: connection.peek() });
  };
  let leading = false;
  channel.postMessage({ asks: true });
  void navigator.locks.request(`holdfast-live${base}`, () => {
    leading = true;
    connection.subscribe((state) => channel.postMessage({ connection: state }));
    return stream((event) => { tell(event); channel.postMessage({ event }); });
  });
}

const SILENT = 45_000; // the server says something every 15 s; after a sleep the connection may be dead without a word

async function stream(give: Listener): Promise<void> {
  for (;;) {
    try {
      const abort = new AbortController();
      let silence = 0;
      const heard = () => { clearTimeout(silence); silence = window.setTimeout(() => abort.abort(), SILENT); };
      heard();
      const answer = await fetch(`${base}/api/live${query({ after: cursor })}`, { signal: abort.signal, headers: token ? { Authorization: `Holdfast ${token}` } : {} });
      if (answer.status === 401) { connection.value = "locked"; return; }
      if (!answer.ok || !answer.body) throw new Error(String(answer.status));
      connection.value = "live";
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        heard();
        const lines = (rest + value).split("\n");
        rest = lines.pop() ?? "";
        for (const line of lines) if (line.startsWith("data: ")) give(JSON.parse(line.slice(6)));
      }
    } catch { /* told below */ }
    connection.value = "lost";
    await new Promise((done) => setTimeout(done, 1000));
  }
}

// Where one is: the address is the truth, so that every view can be linked to.
import { computed, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { base } from "./api";

export const address = signal(read());
export const path = computed(() => address.value.path);
export const params = computed(() => new URLSearchParams(address.value.search));

function read() {
  return { path: location.pathname.slice(base.length) || "/", search: location.search };
}
window.addEventListener("popstate", () => (address.value = read()));

export function go(to: string, options: { replace?: boolean } = {}): void {
  history[options.replace ? "replaceState" : "pushState"](null, "", base + to);
  const before = address.value.path;
  address.value = read();
  if (address.value.path !== before) window.scrollTo(0, 0);
}

export function setParams(changes: Record<string, string | number | null>, options: { push?: boolean } = {}): void {
  const next = new URLSearchParams(address.value.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") next.delete(name);
    else next.set(name, String(value));
  }
  const text = next.toString();
  go(address.value.path + (text ? `?${text}` : ""), { replace: !options.push });
}

interface LinkProps { to: string; children: ComponentChildren; class?: string; [more: string]: unknown }

export function Link({ to, children, ...more }: LinkProps) {
  return (
    <a
      href={base + to}
      {...more}
      onClick={(event: MouseEvent) => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}

export const runPath = (run: string, more = "") => `/r/${encodeURIComponent(run)}${more}`;
export const checkpointPath = (spec: string) => `/c/${encodeURIComponent(spec)}`;
export const comparePath = (a: string, b: string) => `/compare?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`;
export const planPath = (spec: string) => `/plan/new?spec=${encodeURIComponent(spec)}`;

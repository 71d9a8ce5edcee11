import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Failure, at, begin, follow, get, toFailure, useLive, waiting } from "./api";
import { Approvals } from "./approvals";
import { Checkpoint } from "./checkpoint";
import { Compare } from "./compare";
import { FileHistory } from "./files";
import { NewPlan, Plan } from "./plan";
import { path } from "./router";
import { Run } from "./run";
import { Runs } from "./runs";
import { Shell } from "./shell";
import { Storage } from "./storage";
import "./style.css";
import { Problem } from "./text";

function View() {
  const here = path.value;
  const part = (pattern: RegExp) => { const found = pattern.exec(here); return found ? decodeURIComponent(found[1]) : null; };
  if (here === "/") return <Runs />;
  if (here === "/approvals") return <Approvals />;
  if (here === "/storage") return <Storage />;
  if (here === "/compare") return <Compare />;
  if (here === "/plan/new") return <NewPlan />;
  const digest = part(/^\/plan\/([0-9a-f]+)$/);
  if (digest) return <Plan key={digest} digest={digest} />;
  const file = part(/^\/r\/([^/]+)\/file$/);
  if (file) return <FileHistory run={file} />;
  const run = part(/^\/r\/([^/]+)$/);
  if (run) return <Run key={run} name={run} />;
  const spec = part(/^\/c\/([^/]+)$/);
  if (spec) return <Checkpoint spec={spec} />;
  return <p class="empty">There is nothing at this address.</p>;
}

function App() {
  const [state, setState] = useState<"starting" | "ready" | Failure>("starting");
  useEffect(() => { begin().then(() => { setState("ready"); follow(); void count(); }, (error) => setState(toFailure(error))); }, []);
  const count = () => get(at("/api/runs", { status: "waiting", limit: 1 })).then((found) => (waiting.value = found.total), () => undefined);
  useLive((event) => { if (event.type === "run" || event.type === "reset") void count(); });
  return <Shell>{state === "ready" ? <View /> : state === "starting" ? <p class="dim">…</p> : <Problem of={state} />}</Shell>;
}

const root = document.getElementById("root");
if (root) {
  root.textContent = "";
  render(<App />, root);
}

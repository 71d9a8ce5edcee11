// Builds the page into the Python package, and lists what of others is in it with the licence texts.
import { build } from "esbuild";
import { cpSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, "..", "src", "holdfast", "web", "static");
const ALLOWED = ["MIT", "BSD-3-Clause", "BSD-2-Clause", "ISC", "Apache-2.0", "0BSD"];
const MOST = { min: 150_000, gz: 50_000 };

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const result = await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  metafile: true,
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  outdir: out,
  logLevel: "warning",
});
cpSync(join(here, "src", "index.html"), join(out, "index.html"));
cpSync(join(here, "src", "icon.svg"), join(out, "icon.svg"));

const names = new Set();
for (const file of Object.keys(result.metafile.inputs)) {
  const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(file);
  if (found) names.add(found[1]);
}
const notices = [];
for (const name of [...names].sort()) {
  const folder = join(here, "node_modules", name);
  const about = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  if (!ALLOWED.includes(about.license)) throw new Error(`${name}: licence ${about.license} is not on the list`);
  const file = readdirSync(folder).find((one) => /^licen[cs]e/i.test(one));
  if (!file) throw new Error(`${name}: no licence text`);
  notices.push(`${name} ${about.version} (${about.license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`);
}
writeFileSync(join(out, "NOTICES.txt"), notices.join(`\n${"-".repeat(79)}\n\n`));

let min = 0;
let gz = 0;
for (const name of ["app.js", "app.css", "index.html"]) {
  const path = join(out, name);
  if (!existsSync(path)) continue;
  const data = readFileSync(path);
  min += data.length;
  gz += gzipSync(data).length;
}
console.log(`page: ${min} bytes, ${gz} compressed; with ${[...names].sort().join(", ")}`);
if (min > MOST.min || gz > MOST.gz) throw new Error(`the page is larger than ${MOST.min} bytes (${MOST.gz} compressed)`);

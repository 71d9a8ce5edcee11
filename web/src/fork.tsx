// A new run from a checkpoint, with one section edited as JSON.
import { useEffect, useState } from "preact/hooks";
import { at, post, to, toFailure, useData, type Failure } from "./api";
import { go, runPath } from "./router";
import { Dialog } from "./shell";
import { Problem, line, visible } from "./text";

export function ForkDialog({ spec, onClose }: { spec: string; onClose: () => void }) {
  const about = useData(at("/api/c/{spec}", { spec }));
  const [name, setName] = useState(`${spec.split("@")[0]}-fork`);
  const [section, setSection] = useState("");
  const whole = useData(section ? at("/api/c/{spec}/whole/{name}", { spec, name: section }) : null);
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState("");
  const [error, setError] = useState<Failure | null>(null);
  useEffect(() => { if (whole.data?.name === section) setText(JSON.stringify(whole.data.value, null, 2)); }, [whole.data, section]);
  const submit = async () => {
    const sections: Record<string, unknown> = {};
    if (section) {
      try { sections[section] = JSON.parse(text); } catch (caught) { setWrong(`${section}: ${(caught as Error).message}`); return; }
    }
    setWrong("");
    try {
      const made = await post(to("/api/fork"), { spec, name, sections });
      onClose();
      go(runPath(made.run));
    } catch (caught) { setError(toFailure(caught)); }
  };
  return (
    <Dialog title="Fork" onClose={onClose} class="wide">
      <h2>Fork {line(spec)}</h2>
      <form class="fork" onSubmit={(event) => { event.preventDefault(); void submit(); }}>
        <label>new run <input value={name} onInput={(event) => setName(event.currentTarget.value)} data-focus /></label>
        <label>edit a section <select value={section} onChange={(event) => setSection(event.currentTarget.value)}><option value="">none</option>{about.data?.sections.map((one) => <option key={one.name} value={one.name}>{line(one.name)}</option>)}</select></label>
        {section && <label>{line(section)} as JSON <textarea rows={16} spellcheck={false} value={text} onInput={(event) => setText(event.currentTarget.value)} /></label>}
        <Problem of={whole.error ?? error} />
        {wrong && <p class="problem" role="alert">{visible(wrong)}</p>}
        <div class="do"><span class="grow" /><button type="button" onClick={onClose}>Cancel</button><button class="primary">Fork</button></div>
      </form>
    </Dialog>
  );
}

// Nodes and numbers: elements in one call, figures as people read them, and the plate below an answer that says what it
// took. What is not known is called unknown; what an emulator or an estimate gave is marked.

// h("div", {class: "x", onclick: f}, "text", node, null): text becomes text nodes.
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child);
  }
  return element;
}

export const PHASES = ["queue", "wait", "prefill", "move", "keep", "verify", "decode"];
export const PHASE_MEANING = {
  queue: "waited to be let in", wait: "waited for lanes busy with others", prefill: "the prompt was read",
  move: "the state went to the decode unit", keep: "checkpoints were left for others", verify: "the bridge proof",
  decode: "token by token",
};

const is_number = (value) => typeof value === "number" && Number.isFinite(value);

export function bytes(value) {
  if (!is_number(value)) return "unknown";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) value /= 1024, ++unit;
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}
export function ms(value) {
  if (!is_number(value)) return "unknown";
  if (value >= 60_000) return `${Math.floor(value / 60_000)} min ${Math.round((value % 60_000) / 1000)} s`;
  if (value >= 1000) return `${(value / 1000).toFixed(value >= 10_000 ? 1 : 2)} s`;
  return `${value >= 100 ? Math.round(value) : value >= 1 ? value.toFixed(1) : value.toFixed(2)} ms`;
}
export function speed(value) {
  return is_number(value) ? `${value >= 100 ? Math.round(value) : value.toFixed(1)} tok/s` : "unknown";
}
export const count = (value) => (is_number(value) ? value.toLocaleString("en") : "unknown");
// A number, "unknown", or {value, quality}: measured is not said, estimated and emulated are.
export function joules(value, emulated = false) {
  if (emulated && joules(value) !== "unknown" && !joules(value).includes("(")) return `${joules(value)} (emulated)`;
  if (is_number(value)) return `${value >= 100 ? Math.round(value) : value.toPrecision(3)} J`;
  if (value && typeof value === "object" && is_number(value.value ?? value.joules)) {
    const quality = value.quality && value.quality !== "measured" ? ` (${value.quality})` : "";
    return joules(value.value ?? value.joules) + quality;
  }
  return "unknown";
}
export function clock(at) {
  const date = new Date(at), today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });
  return today ? time : `${date.toISOString().slice(0, 10)} ${time}`;
}

// Any JSON as a list of names and values.
export function facts(value, depth = 0) {
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "string" && value.length > 200) {
    return h("details", {}, h("summary", {}, `${value.length} characters`), h("pre", {}, value.slice(0, 20_000)));
  }
  if (typeof value !== "object" || depth > 5) {
    return is_number(value) && !Number.isInteger(value) ? String(Number(value.toPrecision(5)))
        : String(value).slice(0, 4000);
  }
  const entries = Array.isArray(value) ? value.map((each, i) => [String(i + 1), each]) : Object.entries(value);
  if (entries.length === 0) return "none";
  if (Array.isArray(value) && value.every((each) => typeof each !== "object")) return value.join(", ");
  return h("dl", { class: "facts" }, entries.slice(0, 200).map(([name, each]) => [
    h("dt", {}, name.replaceAll("_", " ")),
    h("dd", {}, !is_number(each) ? facts(each, depth + 1)
      : name.endsWith("bytes") ? bytes(each) : name.endsWith("ms") ? ms(each) : facts(each)),
  ]));
}

// The server's own words on an answer (`baton` of its last chunk, or the timeline's `done`), in one form.
function server_words(stats) {
  return { ...(stats.done ?? {}), ...(stats.baton ?? {}) };
}

function phases_of(words) {
  if (!Array.isArray(words.phases)) return [];
  return words.phases.filter((phase) => phase && PHASES.includes(phase.name) && is_number(phase.start_ms) &&
    is_number(phase.end_ms) && phase.end_ms >= phase.start_ms);
}

function marks_of(words) {
  const marks = [];
  const emulated = words.emulated === true || words.prefill?.emulated === true || words.decode?.emulated === true;
  if (emulated) marks.push(h("span", { class: "mark", title: "on another device than the unit stands for" },
      "emulated"));
  if (words.fallback) marks.push(h("span", { class: "mark bad", title: String(words.fallback) }, "fallback"));
  const bridge = words.bridge;
  if (bridge && bridge.kind !== undefined && bridge.kind !== "none") {
    const bad = bridge.proof_failed === true || bridge.verified === false;
    marks.push(h("span", { class: bad ? "mark bad" : "mark", title: "what is known of the state that was handed over" },
      `bridge ${bridge.level ?? "unknown"}${bad ? ", not verified" : ""}`));
  }
  return marks;
}

// stats: {usage, baton, done, ttft_ms, wall_ms, chunks}; the last three by this page's own clock. Null: nothing to say.
export function plate(stats) {
  if (!stats || typeof stats !== "object") return null;
  const words = server_words(stats), phases = phases_of(words), usage = stats.usage ?? {};
  const figure = (name, value) => h("span", {}, `${name} `, h("b", {}, value));
  const line = [];
  const done = usage.completion_tokens ?? words.completion_tokens;
  const prompt = usage.prompt_tokens ?? words.prompt_tokens;
  const cached = usage.prompt_tokens_details?.cached_tokens ?? words.cached_tokens;
  const rate = words.tokens_per_second ?? {};
  const decode_rate = rate.decode ?? words.decode?.tokens_per_second;
  const prefill_rate = rate.prefill ?? words.prefill?.tokens_per_second;
  const ttft = words.ttft_ms ?? stats.ttft_ms;
  if (is_number(ttft)) line.push(figure("TTFT", ms(ttft)));
  if (is_number(decode_rate)) line.push(figure("decode", speed(decode_rate)));
  else if (is_number(stats.wall_ms) && is_number(stats.ttft_ms) && done > 1 && stats.wall_ms > stats.ttft_ms) {
    line.push(figure("seen here", speed(((done - 1) * 1000) / (stats.wall_ms - stats.ttft_ms))));
  }
  if (is_number(prefill_rate)) line.push(figure("prefill", speed(prefill_rate)));
  if (is_number(prompt) && is_number(done)) line.push(figure("tokens", `${count(prompt)} + ${count(done)}`));
  if (cached > 0) line.push(figure("cached", count(cached)));
  const state = words.state_bytes;
  if (is_number(state)) line.push(figure("state", bytes(state)));
  const energy = words.joules ?? words.energy_joules;
  if (energy !== undefined) line.push(figure("energy", joules(energy, words.emulated)));
  line.push(...marks_of(words));
  if (line.length === 0) return null;

  const more = [];
  const say = (name, value, of = {}) => value !== undefined && value !== null && value !== "" &&
    more.push(h("dt", of, name), h("dd", {}, value));
  for (const phase of phases) {
    const where = phase.unit ? ` on ${phase.unit}` : "";
    say(phase.name, `${ms(phase.end_ms - phase.start_ms)}${where}: ${PHASE_MEANING[phase.name]}`,
        { class: `c-${phase.name}` });
  }
  for (const name of ["prefill", "via", "decode"]) {
    const phase = words[name];
    if (!phase?.unit_ran) continue;
    const as_asked = !phase.unit_asked || phase.unit_asked.split(":")[0] === phase.unit_ran;  // options stand behind it
    const asked = as_asked ? "" : `, asked of ${phase.unit_asked}`;
    const where = `${phase.unit_ran}${phase.emulated ? " (emulated)" : ""}${asked}`;
    say(`${name} unit`, `${count(phase.tokens)} tokens on ${where}, ${speed(phase.tokens_per_second)}`);
  }
  say("fallback", words.fallback ? String(words.fallback) : null);
  if (words.bridge) say("bridge", facts(words.bridge));
  if (energy !== undefined) say("energy", joules(energy, words.emulated));
  const told = new Set(["phases", "prefill", "via", "decode", "bridge", "fallback", "joules", "usage", "seq", "t_ms",
    "event", "tokens_per_second"]);
  const rest = Object.fromEntries(Object.entries(words).filter(([name]) => !told.has(name)));
  say("all else", Object.keys(rest).length > 0 ? facts(rest) : null);
  say("by this page's clock", is_number(stats.wall_ms)
      ? `first token ${ms(stats.ttft_ms)}, whole ${ms(stats.wall_ms)}` : null);

  const summary = h("summary",
      { "aria-label": `What this answer took: ${line.map((each) => each.textContent).join(", ")}` }, line);
  const total = phases.reduce((sum, phase) => sum + phase.end_ms - phase.start_ms, 0);
  const strip = total > 0 && h("div", { class: "strip", "aria-hidden": "true" }, phases.map((phase) => {
    const part = h("i", { class: `c-${phase.name}`, title: `${phase.name} ${ms(phase.end_ms - phase.start_ms)}` });
    part.style.flexGrow = String((phase.end_ms - phase.start_ms) / total);
    return part;
  }));
  return h("div", { class: "plate figures" }, strip, h("details", {}, summary, h("dl", { class: "facts" }, more)));
}

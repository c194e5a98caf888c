// What goes into a request beside the messages. All values are texts, as they were typed; an empty one is not sent, and
// the server's own default holds.
import { h } from "./figures.js";

const FIELDS = [
  { group: "Answer" },
  { key: "system", label: "System prompt", kind: "text", wide: true },
  { key: "max_tokens", label: "Most tokens", min: 1, max: 1e9, whole: true },
  { key: "thinking", label: "Reasoning", choices: [["", "as the model does"], ["on", "on"], ["off", "off"]] },
  { group: "Sampling" },
  { key: "temperature", label: "Temperature", min: 0, max: 2 },
  { key: "top_p", label: "Top p", min: 0, max: 1 },
  { key: "top_k", label: "Top k", min: 0, max: 1e6, whole: true },
  { key: "min_p", label: "Min p", min: 0, max: 1 },
  { key: "repetition_penalty", label: "Repetition penalty", min: 0.01, max: 10 },
  { key: "presence_penalty", label: "Presence penalty", min: -2, max: 2 },
  { key: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2 },
  { key: "seed", label: "Seed", min: 0, max: Number.MAX_SAFE_INTEGER, whole: true },
  { key: "stop", label: "Stop at", kind: "text", wide: true, mono: true, hint: "one text a line, four at most" },
  { group: "Request" },
  { key: "extra", label: "Further fields", kind: "text", wide: true, mono: true,
    hint: "a JSON object, sent as it is: tools, response_format, logit_bias" },
];

const OURS = new Set(["messages", "stream", "stream_options", "model"]);

// {value} to send, {error}, or null: nothing.
function read_field(field, text) {
  if (text === undefined || text.trim() === "") return null;
  if (field.key === "stop") {
    const stops = text.split("\n").filter((line) => line !== "");
    return stops.length > 4 ? { error: "four at most" } : { value: stops };
  }
  if (field.key === "extra") {
    let value;
    try {
      value = JSON.parse(text);
    } catch (error) {
      return { error: error.message };
    }
    const object = value !== null && typeof value === "object" && !Array.isArray(value);
    if (!object) return { error: "it must be a JSON object" };
    const ours = Object.keys(value).find((key) => OURS.has(key));
    return ours ? { error: `${ours} is set by this page` } : { value };
  }
  if (field.kind === "text" || field.choices) return { value: text };
  const value = Number(text);
  if (!Number.isFinite(value)) return { error: "it must be a number" };
  if (field.whole && !Number.isInteger(value)) return { error: "it must be a whole number" };
  if (value < field.min || value > field.max) return { error: `from ${field.min} to ${field.max}` };
  return { value };
}

// {body: fields of a request}, or {error: text} that names the setting.
export function request_fields(settings) {
  const body = {};
  let extra = {};
  for (const field of FIELDS) {
    if (!field.key || field.key === "system") continue;
    const read = read_field(field, settings[field.key]);
    if (read === null) continue;
    if (read.error !== undefined) return { error: `Settings, ${field.label}: ${read.error}` };
    if (field.key === "extra") extra = read.value;
    else if (field.key === "thinking") body.chat_template_kwargs = { enable_thinking: read.value === "on" };
    else body[field.key] = read.value;
  }
  return { body: { ...body, ...extra } };
}

// Fills `form`; `changed(key, text)` hears of each edit. Returns a function that shows other settings.
export function settings_form(form, changed, page) {
  const inputs = new Map();
  let set = null;
  for (const field of FIELDS) {
    if (field.group) {
      set = h("fieldset", {}, h("legend", {}, field.group));
      form.append(set);
      continue;
    }
    const id = `set-${field.key}`, note = h("small", { id: `${id}-note` }, field.hint ?? "");
    const about = { id, name: field.key, "aria-describedby": `${id}-note`, class: field.mono ? "mono" : null };
    const input = field.kind === "text" ? h("textarea", { ...about, rows: field.key === "system" ? 4 : 2,
        spellcheck: field.mono ? "false" : null })
      : field.choices ? h("select", about, field.choices.map(([value, text]) => h("option", { value }, text)))
      : h("input", { ...about, type: "text", inputmode: field.min < 0 ? "text" : "decimal", placeholder: "default",
          class: "mono" });
    const check = () => {
      const wrong = read_field(field, input.value)?.error ?? "";
      input.setAttribute("aria-invalid", String(wrong !== ""));
      note.textContent = wrong || (field.hint ?? "");
      note.className = wrong ? "wrong" : "";
    };
    input.addEventListener("input", () => {
      check();
      changed(field.key, input.value);
    });
    inputs.set(field.key, [input, check]);
    set.append(h("div", { class: field.wide ? "field wide" : "field" }, h("label", { for: id }, field.label), input,
        note));
  }

  const key = h("input", { id: "set-key", type: "password", autocomplete: "off", class: "mono",
      "aria-describedby": "set-key-note" });
  const keep = h("input", { id: "set-keep", type: "checkbox" });
  key.value = page.key;
  keep.checked = page.keep_key;
  for (const input of [key, keep]) input.addEventListener("change", () => page.set_key(key.value.trim(), keep.checked));
  form.append(h("fieldset", {}, h("legend", {}, "Key"),
    h("div", { class: "field wide" }, h("label", { for: "set-key" }, "API key"), key,
      h("small", { id: "set-key-note" }, "sent as a bearer token; never part of an export")),
    h("div", { class: "field wide check" }, keep, h("label", { for: "set-keep" }, "keep it in this browser"))));
  form.addEventListener("submit", (event) => event.preventDefault());

  return (settings) => {
    for (const [name, [input, check]] of inputs) {
      if (input.value !== (settings[name] ?? "")) input.value = settings[name] ?? "";
      check();
    }
  };
}

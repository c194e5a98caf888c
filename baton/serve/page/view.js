// One turn of a conversation as nodes. Buttons say what they do in data-act; app.js hears them.
import { clock, h, ms, plate } from "./figures.js";
import { GrowingText, render } from "./markdown.js";

const FINISH = { length: "ended at the limit of tokens", content_filter: "ended by a filter",
    cancelled: "cancelled by the server" };

const button = (act, text, label, more = {}) =>
  h("button", { type: "button", class: "quiet", "data-act": act, "aria-label": label, ...more }, text);

// As it is where it is no JSON (yet).
function pretty(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

function problem_node(error) {
  return h("div", { class: "problem", role: "alert" }, h("p", {}, error.message),
    error.facts.length > 0 && h("dl", {}, error.facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    h("button", { type: "button", "data-act": "retry" }, "Try again"));
}

// `place`: {index, of} among its siblings, `last`, `running`; `name` of who speaks.
export class Turn {
  constructor(message, place, name, spoken) {
    this.message = message;
    this.place = place;
    this.spoken = spoken;
    const at = h("time", { datetime: new Date(message.at).toISOString() }, clock(message.at));
    this.what = h("div", { class: "what" });
    this.root = h("article", { class: `turn ${message.role}`, "data-id": message.id,
        "aria-label": `${name}, ${clock(message.at)}` },
      h("div", { class: "who" }, h("b", {}, name), at), this.what);
    if (message.role === "assistant") this.build_answer();
    else this.what.append(h("div", { class: "text", dir: "auto" }, message.content));
    this.acts = h("div", { class: "acts", role: "group", "aria-label": "What can be done with this message" });
    this.what.append(this.acts);
    this.show_acts();
  }
  build_answer() {
    this.thought = h("div", { class: "text" });
    this.thought_title = h("summary", {}, "reasoning");
    this.thinking = h("details", { class: "thinking", hidden: true }, this.thought_title, this.thought);
    this.text = h("div", { class: "text" });
    this.calls = h("div", {});
    this.foot = h("div", {});
    this.what.append(this.thinking, this.text, this.calls, this.foot);
    this.growing = new GrowingText(this.text, (block) => this.place.running && this.spoken(block));
    this.update(this.place.running);
  }
  // After the message changed.
  update(running) {
    const { message } = this, ended = !running && this.place.running;
    this.place.running = running || ended;  // the last block is told, too
    if (this.shown_reasoning !== message.reasoning) {
      this.shown_reasoning = message.reasoning;
      this.thinking.hidden = !message.reasoning;
      this.thought.replaceChildren(render(message.reasoning ?? ""));
    }
    const thinks = running && message.reasoning && !message.content;
    const title = thinks ? "reasoning, now" : `reasoning${message.thought_ms ? `, ${ms(message.thought_ms)}` : ""}`;
    if (this.thought_title.textContent !== title) this.thought_title.textContent = title;
    this.growing.update(message.content, !running);
    this.text.classList.toggle("caret", running && message.content === "" && !message.reasoning);
    this.show_calls(running);
    this.place.running = running;
    if (!running || ended) this.show_foot(running);
    if (ended) this.show_acts();
  }
  show_calls(running) {
    const calls = this.message.tool_calls ?? [], key = JSON.stringify([calls, running, this.place.last]);
    if (key === this.calls_key) return;
    this.calls_key = key;
    const open = [...this.calls.querySelectorAll("details")].map((each) => each.open);
    this.calls.replaceChildren(...calls.map((call, i) => h("details", { class: "call", open: open[i] ?? true },
      h("summary", {}, "calls ", h("b", {}, call.function.name || "a tool")),
      h("pre", { tabindex: "0", role: "region", "aria-label": `Arguments of ${call.function.name}` },
          pretty(call.function.arguments)))));
    const asks = calls.length > 0 && !running && this.place.last && !this.message.error;
    if (asks) this.calls.append(results_form(calls, this.message.id));
  }
  show_foot(running) {
    const { message } = this, nodes = [];
    if (running) return;
    if (message.error) nodes.push(problem_node(message.error));
    if (message.stopped) nodes.push(h("p", { class: "note" }, "stopped"));
    if (FINISH[message.finish]) nodes.push(h("p", { class: "note" }, FINISH[message.finish]));
    if (!message.content && !message.error && !message.stopped && (message.tool_calls ?? []).length === 0) {
      nodes.push(h("p", { class: "note" }, "an empty answer"));
    }
    let figures = null;
    try {
      figures = plate(message.stats);
    } catch {
      figures = h("p", { class: "note" }, "figures of another form");  // of an imported file, say
    }
    this.foot.replaceChildren(...nodes, ...(figures ? [figures] : []));
  }
  show_acts() {
    const { message, place } = this, nodes = [];
    if (!place.running) {
      if (message.content) nodes.push(button("copy", "copy", "Copy this message"));
      if (message.role !== "tool" && message.content) nodes.push(button("edit", "edit", "Edit this message"));
      if (message.role === "assistant") nodes.push(button("again", "regenerate", "Regenerate this answer"));
      if (message.role === "user" && place.last) nodes.push(button("again", "answer", "Ask for an answer"));
    }
    if (place.of > 1) {
      nodes.push(button("before", "\u2039", "The version before", { disabled: place.index === 0 }),
        h("span", { class: "figures", "aria-label": `Version ${place.index + 1} of ${place.of}` },
            `${place.index + 1}/${place.of}`),
        button("after", "\u203a", "The next version", { disabled: place.index + 1 === place.of }));
    }
    this.acts.replaceChildren(...nodes);
  }
  edit(save) {
    const { message } = this, user = message.role === "user";
    const field = h("textarea", { rows: Math.min(14, message.content.split("\n").length + 1),
        "aria-label": "Edited message" });
    field.value = message.content;
    const form = h("form", { class: "edit" }, field, h("button", {}, user ? "Send" : "Save"), " ",
      h("button", { type: "button", "data-act": "edit-end" }, "Cancel"));
    const text = this.what.querySelector(":scope > .text");
    const end = () => {
      form.remove();
      text.hidden = this.acts.hidden = false;
      this.acts.querySelector("[data-act=edit]")?.focus();
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim() !== "") save(field.value);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        end();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing && user) {
        event.preventDefault();
        form.requestSubmit();
      }
    });
    form.querySelector("[data-act=edit-end]").addEventListener("click", end);
    text.hidden = this.acts.hidden = true;
    text.before(form);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

function results_form(calls, id) {
  return h("form", { class: "results", "data-results": id }, calls.map((call, i) => [
    h("label", { for: `result-${id}-${i}` }, `Result of ${call.function.name}`),
    h("textarea", { id: `result-${id}-${i}`, rows: 2, required: true }),
  ]), h("button", {}, calls.length > 1 ? "Send the results" : "Send the result"));
}

// The lanes of the server, live: what /v1/timeline tells (docs/server.md), kept for the span that is shown, drawn as a
// row a lane, and the same as a table. Times are the server's milliseconds; nothing is drawn that it did not say, but for
// the end of what is still going on, which is now.
import { PHASES, PHASE_MEANING, bytes, count, h, joules, ms, speed } from "./figures.js";

const REQUESTS_MAX = 512;
const SLOTS_MAX = 8;  // requests beside each other in one lane; more share the last
const LABELS = 68;    // pixels, left of the plot
const RETRY_MS = [1000, 2000, 5000, 10_000];

// ---- what is known

export class Timeline {
  constructor() {
    this.requests = new Map();  // id -> {number, id, model, queued, prefill, decode, tokens, done}
    this.numbers = 0;
    this.models = [];
    this.usage = {};
    this.offset = 0;  // of the server's clock before performance.now()
    this.seq = 0;
    this.lost = 0;    // events that this listener was too slow for
    this.waiting = new Map();
  }
  now() {
    return performance.now() + this.offset;
  }
  snapshot(value) {
    this.offset = value.now_ms - performance.now();
    this.models = Array.isArray(value.models) ? value.models : [];
    this.usage = value.usage ?? {};
    this.requests.clear();
    this.numbers = 0;
    this.seq = 0;
    for (const event of value.events ?? []) this.take(event, true);
    this.lost = 0;
  }
  take(event, old = false) {
    if (!event || typeof event.seq !== "number" || typeof event.t_ms !== "number") return;
    if (this.seq > 0 && event.seq > this.seq + 1) this.lost += event.seq - this.seq - 1;
    this.seq = event.seq;
    // An event cannot come before it happened.
    if (!old) this.offset = Math.max(this.offset, event.t_ms - performance.now());
    if (event.usage) this.usage = event.usage;
    if (typeof event.request !== "string") return;  // a model that came or went
    let request = this.requests.get(event.request);
    if (!request) {
      request = { number: ++this.numbers, id: event.request, model: event.model ?? "" };
      this.requests.set(event.request, request);
      if (this.requests.size > REQUESTS_MAX) this.requests.delete(this.requests.keys().next().value);
    }
    if (["queued", "prefill", "decode", "tokens", "done"].includes(event.event)) request[event.event] = event;
    if (event.event === "done") {
      this.waiting.get(event.request)?.(event);
      this.waiting.delete(event.request);
    }
  }
  // The `done` event of a request, when it comes within so long; else null.
  done_of(id, wait_ms) {
    const known = this.requests.get(id)?.done;
    if (known) return Promise.resolve(known);
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      setTimeout(() => {
        this.waiting.delete(id);
        resolve(null);
      }, wait_ms);
    });
  }
  // {phase, unit, from, to, open} of a request. While it runs: as far as its events say.
  spans(request, now) {
    const done = request.done;
    if (Array.isArray(done?.phases) && done.phases.length > 0) {
      return done.phases.filter((each) => PHASES.includes(each.name)).map((each) =>
        ({ phase: each.name, unit: each.unit ?? "", from: each.start_ms, to: each.end_ms, open: false }));
    }
    const end = done ? done.t_ms : now, spans = [];
    const add = (phase, event, next, unit) => event &&
      spans.push({ phase, unit: unit ?? "", from: event.t_ms, to: next ? next.t_ms : end, open: !next && !done });
    add("queue", request.queued, request.prefill);
    add("prefill", request.prefill, request.decode, request.prefill?.prefill_unit);
    add("decode", request.decode, null, request.prefill?.decode_unit);
    return spans;
  }
  // In the order they came to be known: the queue, units, the bridge behind the first unit.
  lanes(spans) {
    const units = new Set();
    const named = this.models.flatMap((model) => [model.prefill_unit, model.decode_unit]);
    for (const unit of named) if (unit) units.add(unit);
    for (const span of spans) if (lane_of(span) === span.unit && span.unit) units.add(span.unit);
    const all = [...units];
    if (all.length > 1 || spans.some((span) => span.phase === "move")) all.splice(1, 0, "bridge");
    return ["queue", ...all];
  }
  running_speed() {
    let sum = 0;
    for (const request of this.requests.values()) {
      if (!request.done) sum += request.tokens?.tokens_per_second ?? 0;
    }
    return sum;
  }
  last_done() {
    let last = null;
    for (const { done } of this.requests.values()) if (done && (!last || done.t_ms > last.t_ms)) last = done;
    return last;
  }
}

function lane_of(span) {
  if (span.phase === "queue" || span.phase === "wait") return "queue";
  return span.phase === "move" ? "bridge" : span.unit;
}

// Listens as long as the page lives: a connection that breaks is made again. `tell(state, error)`: "live", "lost" or
// "absent" (a server without a timeline).
export async function listen(api, timeline, changed, tell) {
  for (let tries = 0;; ++tries) {
    let wait = RETRY_MS[Math.min(tries, RETRY_MS.length - 1)];
    const abort = new AbortController();
    api.restart = () => abort.abort();  // another key
    try {
      for await (const { event, data } of api.events("v1/timeline", { signal: abort.signal })) {
        const value = JSON.parse(data);
        if (event === "snapshot") timeline.snapshot(value);
        else timeline.take(value);
        tries = 0;
        tell("live");
        changed();
      }
      tell("lost", new Error("The server closed the timeline."));
    } catch (error) {
      if (error.name === "AbortError") wait = 0;
      else if (error.status === 404) tell("absent", error), wait = 60_000;
      else tell("lost", error);
    }
    if (document.hidden) {
      await new Promise((resolve) => document.addEventListener("visibilitychange", resolve, { once: true }));
    }
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

// ---- what is shown

export class TimelineView {
  constructor(timeline, root) {
    this.timeline = timeline;
    const find = (id) => root.querySelector(`#${id}`);
    Object.assign(this, { canvas: find("plot"), tip: find("plot-tip"), state: find("plot-state"),
        gauges: find("gauges"),
      table: find("requests"), hold_button: find("hold"), table_button: find("as-table"), span_select: find("span") });
    this.root = root;
    this.held = null;      // the time at the right edge, when it stands still
    this.boxes = [];       // of the last picture: {x, y, width, height, span, request}
    this.pointed = null;
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.legend(find("legend"));
    this.listen();
    this.frame = this.frame.bind(this);
    this.last_frame = 0;
    requestAnimationFrame(this.frame);
  }
  legend(list) {
    list.append(...PHASES.map((phase) => h("li", { class: `c-${phase}`, title: PHASE_MEANING[phase] }, phase)),
      h("li", { class: "c-decode pale", title: "on another device than the unit stands for" }, "emulated"));
  }
  listen() {
    this.span_select.addEventListener("change", () => this.changed());
    this.hold_button.addEventListener("click", () => this.hold(this.held === null));
    this.table_button.addEventListener("click", () => {
      this.table.hidden = !this.table.hidden;
      this.table_button.setAttribute("aria-pressed", String(!this.table.hidden));
      this.changed();
    });
    this.canvas.addEventListener("pointermove", (event) => {
      this.pointed = [event.offsetX, event.offsetY];
      this.changed();
    });
    this.canvas.addEventListener("pointerleave", () => {
      this.pointed = null;
      this.changed();
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.recolour());
    new ResizeObserver(() => this.changed()).observe(this.canvas);
  }
  key(event) {
    const step = this.span() / 10, index = this.span_select.selectedIndex;
    const choose = (to) => {
      this.span_select.selectedIndex = Math.max(0, Math.min(this.span_select.length - 1, to));
      this.changed();
    };
    const move = (by) => {
      this.hold(true);
      this.held = Math.min(this.held + by, this.timeline.now());
      this.changed();
    };
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = { ArrowLeft: () => move(-step), ArrowRight: () => move(step), " ": () => this.hold(this.held === null),
      "+": () => choose(index - 1), "=": () => choose(index - 1), "-": () => choose(index + 1),
          End: () => this.hold(false) }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }
  span() {
    return Number(this.span_select.value);
  }
  hold(on) {
    this.held = on ? this.held ?? this.timeline.now() : null;
    this.hold_button.setAttribute("aria-pressed", String(on));
    this.changed();
  }
  recolour() {
    this.colours = null;
    this.changed();
  }
  changed() {
    this.stale = true;
  }
  set_state(state, error) {
    const text = state === "live" ? "" : state === "absent" ? "this server has no timeline"
        : `no timeline: ${error?.message ?? ""}`;
    if (this.state_text !== text) this.state.textContent = this.state_text = text;
  }
  // What moves: something runs, or ran within the span. Without motion: once a second.
  frame(at) {
    requestAnimationFrame(this.frame);
    if (this.root.hidden || document.hidden) return;
    const moves = this.held === null && this.timeline.requests.size > 0;
    const gap = this.still.matches ? 1000 : this.span() > 60_000 ? 200 : 40;
    if (!this.stale && !(moves && at - this.last_frame >= gap)) return;
    if (this.stale && at - this.last_frame < 16) return;
    this.stale = false;
    this.last_frame = at;
    this.draw();
    if (at - (this.last_text ?? -1e9) >= 250) {
      this.last_text = at;
      this.show_gauges();
      if (!this.table.hidden) this.show_table();
    } else {
      this.text_due ??= setTimeout(() => {
        this.text_due = undefined;
        this.changed();
      }, 260);
    }
  }

  // Rows of {lane, slots, top}; a request keeps its slot within a lane while it can.
  layout(from, to) {
    const now = this.timeline.now(), all = [];
    for (const request of this.timeline.requests.values()) {
      const within = this.timeline.spans(request, now).filter((span) => span.to >= from && span.from <= to);
      all.push(...within.map((span) => ({ ...span, request })));
    }
    const rows = this.timeline.lanes(all).map((lane) => ({ lane, slots: 1, spans: [] }));
    const by_lane = new Map(rows.map((row) => [row.lane, row]));
    for (const span of all.sort((a, b) => a.from - b.from)) by_lane.get(lane_of(span))?.spans.push(span);
    for (const row of rows) {
      const ends = [], used = [];
      for (const span of row.spans) {
        let slot = ends.findIndex((end, i) => end <= span.from || used[i] === span.request.id);
        if (slot < 0) slot = Math.min(ends.length, SLOTS_MAX - 1);
        ends[slot] = Math.max(ends[slot] ?? 0, span.to);
        used[slot] = span.request.id;
        span.slot = slot;
      }
      row.slots = Math.max(1, ends.length);
    }
    return rows;
  }
  draw() {
    const canvas = this.canvas, span = this.span(), to = this.held ?? this.timeline.now(), from = to - span;
    const rows = this.layout(from, to);
    const slot_height = 15, axis = 18, pad = 5;
    // A row that was tall stays so for a while: nothing jumps.
    this.heights ??= new Map();
    for (const row of rows) {
      const kept = this.heights.get(row.lane), at = performance.now();
      if (!kept || row.slots >= kept.slots || at - kept.at > 4000) this.heights.set(row.lane, { slots: row.slots, at });
      row.height = this.heights.get(row.lane).slots * slot_height + 2 * pad;
    }
    const height = rows.reduce((sum, row) => sum + row.height, axis);
    const width = canvas.clientWidth, scale = devicePixelRatio || 1;
    if (canvas.style.height !== `${height}px`) canvas.style.height = `${height}px`;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale);
      canvas.height = Math.round(height * scale);
    }
    const c = canvas.getContext("2d"), colour = this.colours ??= this.read_colours();
    c.setTransform(scale, 0, 0, scale, 0, 0);
    c.clearRect(0, 0, width, height);
    const plot_width = width - LABELS - 10, x_of = (time) => LABELS + ((time - from) / span) * plot_width;
    this.draw_axis(c, colour, from, to, x_of, height - axis, width);
    this.boxes = [];
    let top = 0;
    for (const row of rows) {
      c.fillStyle = colour.line;
      c.fillRect(0, top + row.height - 1, width, 1);
      c.fillStyle = colour.soft;
      c.font = colour.font;
      c.textBaseline = "middle";
      c.fillText(fit(c, row.lane, LABELS - 16), 10, top + row.height / 2);
      c.save();
      c.beginPath();
      c.rect(LABELS, top, plot_width, row.height);
      c.clip();
      for (const each of row.spans) this.draw_span(c, colour, each, x_of, top + pad + each.slot * slot_height,
          slot_height - 2);
      c.restore();
      top += row.height;
    }
    this.draw_now(c, colour, x_of(this.timeline.now()), height - axis);
    this.show_tip(width, height);
  }
  read_colours() {
    const style = getComputedStyle(document.documentElement),
        value = (name) => style.getPropertyValue(`--${name}`).trim();
    return { line: value("line"), soft: value("soft"), ink: value("ink"), card: value("card"), edge: value("edge"),
      font: `11px ${value("mono")}`, ...Object.fromEntries(PHASES.map((phase) => [phase, value(phase)])) };
  }
  draw_axis(c, colour, from, to, x_of, bottom, width) {
    const step = [500, 1000, 2000, 5000, 10_000, 30_000, 60_000].find((each) =>
        (each / (to - from)) * (width - LABELS) >= 64) ?? 60_000;
    c.font = colour.font;
    c.textBaseline = "alphabetic";
    c.textAlign = "center";
    for (let time = Math.ceil(from / step) * step; time <= to; time += step) {
      const x = Math.round(x_of(time)) + .5;
      c.strokeStyle = colour.line;
      c.beginPath();
      c.moveTo(x, 0);
      c.lineTo(x, bottom + 3);
      c.stroke();
      c.fillStyle = colour.soft;
      if (time >= 0 && x > LABELS + 12 && x < width - 24) c.fillText(stamp(time), x, bottom + 14);
    }
    c.textAlign = "left";
  }
  draw_now(c, colour, x, bottom) {
    c.strokeStyle = colour.ink;
    c.setLineDash([2, 2]);
    c.beginPath();
    c.moveTo(Math.round(x) + .5, 0);
    c.lineTo(Math.round(x) + .5, bottom);
    c.stroke();
    c.setLineDash([]);
  }
  draw_span(c, colour, span, x_of, y, height) {
    const x = x_of(span.from), width = Math.max(2, x_of(span.to) - x);
    const faint = span.phase === "queue" || span.phase === "wait";
    const pale = !faint && Boolean(span.request.done?.emulated);
    c.fillStyle = c.strokeStyle = colour[span.phase];
    c.globalAlpha = pale ? .3 : 1;
    if (faint) c.fillRect(x, y + height / 2 - 2, width, 4);
    else c.fillRect(x, y, width, height);
    c.globalAlpha = 1;
    if (pale) c.strokeRect(x + .5, y + .5, Math.max(1, width - 1), height - 1);
    if (this.pointed_request === span.request.id) {
      c.strokeStyle = colour.ink;
      c.strokeRect(x + .5, y + .5, Math.max(1, width - 1), height - 1);
    }
    if (!faint) {
      c.font = colour.font;
      const label = `#${span.request.number}`, room = width - 6;
      if (room >= c.measureText(label).width) {
        c.fillStyle = pale ? colour.ink : colour.card;
        c.textBaseline = "middle";
        c.fillText(label, Math.max(x, LABELS) + 4, y + height / 2 + .5);
      }
    }
    this.boxes.push({ x, y, width, height, span });
  }
  show_tip(width, height) {
    const [px, py] = this.pointed ?? [-1, -1];
    const near = this.pointed && this.boxes.findLast((box) => px >= box.x - 3 && px <= box.x + box.width + 3 &&
      py >= box.y - 1 && py <= box.y + box.height + 1);
    const before = this.pointed_request;
    this.pointed_request = near ? near.span.request.id : null;
    if (before !== this.pointed_request) this.changed();
    this.tip.hidden = !near;
    if (!near) return;
    const { span } = near, { request } = span, lines = [];
    const where = `${span.open ? " so far" : ""}${span.unit ? ` on ${span.unit}` : ""}`;
    lines.push(`#${request.number} ${span.phase} ${ms(span.to - span.from)}${where}`);
    lines.push(request.model);
    const prompt = request.done?.prompt_tokens ?? request.queued?.prompt_tokens;
    const made = request.done?.completion_tokens ?? request.tokens?.tokens;
    if (prompt !== undefined) lines.push(`${count(prompt)} prompt + ${count(made ?? 0)} tokens`);
    if (request.done?.emulated) lines.push("emulated");
    this.tip.textContent = lines.filter(Boolean).join("\n");
    const box = this.tip.getBoundingClientRect();
    this.tip.style.left = `${Math.max(0, Math.min(px + 12, width - box.width - 4))}px`;
    this.tip.style.top = `${py + 14 + box.height > height + 30 ? Math.max(0, py - box.height - 8) : py + 14}px`;
  }

  show_gauges() {
    const { timeline } = this, usage = timeline.usage, last = timeline.last_done(), rate = timeline.running_speed();
    const bridge = last?.bridge;
    const rows = [
      ["running", count(usage.running)], ["waiting", count(usage.waiting)],
      ["decode now", usage.running > 0 && rate > 0 ? speed(rate) : "idle"],
      ["state", bytes(usage.state_bytes)],
      ["checkpoints", usage.checkpoints === undefined ? "unknown"
          : `${count(usage.checkpoints)}, ${bytes(usage.checkpoint_bytes)}`],
    ];
    if (last) {
      const first = [...timeline.requests.values()].find((request) => request.done === last);
      rows.push([`TTFT of #${first.number}`, ms(first.decode?.ttft_ms)],
        ["its speed", speed(last.tokens_per_second?.decode)],
        ["its bridge", !bridge || bridge.kind === "none" ? "no hand-over"
          : `${bridge.kind}, ${bridge.level}${bridge.verified === false ? ", not verified" : ""}`],
        ["its energy", joules(last.joules, last.emulated)]);
      if (last.emulated) rows.push(["its units", "emulated"]);
    }
    if (timeline.lost > 0) rows.push(["events lost", count(timeline.lost)]);
    const key = JSON.stringify(rows);
    if (key === this.gauges_key) return;
    this.gauges_key = key;
    this.gauges.replaceChildren(...rows.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
  }
  show_table() {
    const now = this.timeline.now(), recent = [...this.timeline.requests.values()].slice(-40).reverse();
    const total = (request, phase) => {
      const spans = this.timeline.spans(request, now).filter((span) => span.phase === phase);
      return spans.length === 0 ? "" : ms(spans.reduce((sum, span) => sum + span.to - span.from, 0));
    };
    const shown = PHASES.filter((phase) => recent.some((request) => total(request, phase) !== ""));
    const head = ["#", "model", "state", ...shown, "prompt", "tokens", "tok/s", "state bytes", "bridge", "energy"];
    const rows = recent.map((request) => {
      const { done } = request;
      const state = done ? done.finish : request.decode ? "decode" : request.prefill ? "prefill" : "queue";
      const marks = (done?.emulated ? ", emulated" : "") + (done?.fallback ? ", fallback" : "");
      return [`${request.number}`, request.model, state + marks,
        ...shown.map((phase) => total(request, phase)),
        count(done?.prompt_tokens ?? request.queued?.prompt_tokens),
            count(done?.completion_tokens ?? request.tokens?.tokens ?? 0),
        speed(done?.tokens_per_second?.decode ?? request.tokens?.tokens_per_second).replace(" tok/s", ""),
        done ? bytes(done.state_bytes) : "", done?.bridge?.level ?? "", done ? joules(done.joules, done.emulated) : ""];
    });
    const key = JSON.stringify(rows);
    if (key === this.table_key) return;
    this.table_key = key;
    this.table.replaceChildren(rows.length === 0 ? h("p", { class: "note" }, "No request yet.")
      : h("table", {}, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
  }
}

function fit(c, text, width) {
  if (c.measureText(text).width <= width) return text;
  let end = text.length;
  while (end > 1 && c.measureText(`${text.slice(0, end)}…`).width > width) --end;
  return `${text.slice(0, end)}…`;
}

function stamp(time) {
  const seconds = Math.floor(time / 1000), part = time % 1000;
  const text = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
  return part ? `${text}.${part / 100}` : text;
}

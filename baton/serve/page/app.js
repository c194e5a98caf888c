// The page: conversations, what is asked of the server, and the keys.
import { Api, ServerError, chat } from "./api.js";
import { clock, facts, h } from "./figures.js";
import { request_fields, settings_form } from "./settings.js";
import { Store, add_message, from_json, leaf_below, new_conversation, path_of, siblings_of, title_of, to_json,
    to_markdown } from "./store.js";
import { Timeline, TimelineView, listen } from "./timeline.js";
import { Turn } from "./view.js";

const $ = (id) => document.getElementById(id);
const api = new Api();
const store = new Store((text) => notice("storage", text));
const timeline = new Timeline();
const lanes = new TimelineView(timeline, $("lanes"));
const runs = new Map();   // conversation id -> {controller, message, turn}
const loaded = new Map();  // conversations that run, or are shown
let shown = null;          // the conversation on the page
let turns = [];
let follow = true;         // the newest line stays in sight

const STARTERS = ["What is a fern?", "Explain prefill and decode of a language model in three sentences.",
  "Write a C function that reverses a string in place, and test it."];

// ---- messages to the reader

// One of a kind at a time; null: it is over.
const notices = new Map();
function notice(kind, text) {
  if ((notices.get(kind) ?? null) === text) return;
  if (text === null) notices.delete(kind);
  else notices.set(kind, text);
  $("notice").replaceChildren(...[...notices].map(([each, words]) => h("p", {}, words, " ",
    each !== "storage" && each !== "models" && h("button", { type: "button", class: "quiet", "data-notice": each },
        "dismiss"))));
  $("notice").hidden = notices.size === 0;
}
function say(text) {
  $("status").textContent = text;
}
function speak(text) {
  $("spoken").append(h("p", {}, text.slice(0, 3000)));
  while ($("spoken").childNodes.length > 40) $("spoken").firstChild.remove();
}
function ask(text, yes) {
  const dialog = $("ask");
  $("ask-text").textContent = text;
  $("ask-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"),
      { once: true }));
}

// ---- the list

function show_list() {
  const wanted = $("find").value.trim().toLowerCase();
  const entries = store.index.filter((entry) => entry.title.toLowerCase().includes(wanted));
  $("chats").replaceChildren(...entries.map((entry) => h("li", {},
    h("button", { type: "button", "data-chat": entry.id, "aria-current": entry.id === shown.id ? "true" : null },
        entry.title,
      h("small", {}, runs.has(entry.id) ? "answering" : clock(entry.updated))))));
  if (entries.length === 0) $("chats").append(h("li", { class: "note" }, wanted ? "None is called so." : "None yet."));
}

function open_chat(id) {
  const conversation = loaded.get(id) ?? store.load(id);
  if (!conversation) {
    notice("file", "This conversation cannot be read from the browser's storage.");
    return;
  }
  show_chat(conversation);
}

function show_chat(conversation) {
  if (shown && shown !== conversation && !runs.has(shown.id)) loaded.delete(shown.id);
  shown = conversation;
  loaded.set(shown.id, shown);
  show_address();
  choose_model(shown.model);
  show_settings(shown.settings);
  follow = true;
  show_turns();
  show_list();
}

// The page loaded again shows the same conversation.
function show_address() {
  try {
    const some = Object.keys(shown.messages).length > 0;
    history.replaceState(null, "", some ? `#${shown.id}` : location.pathname + location.search);
  } catch {
    // A browser may limit how often.
  }
}

function new_chat() {
  const settings = shown?.settings ?? store.preferences().settings ?? {};
  show_chat(new_conversation(settings, $("model").value || (shown?.model ?? "")));
  if (innerWidth <= 860) toggle("list", false);
  $("prompt").focus();
}

// ---- the conversation

const name_of = (message) => ({ user: "you", tool: "tool" }[message.role] ?? (message.model || "model"));

function show_turns() {
  const path = path_of(shown), run = runs.get(shown.id);
  turns = path.map((message, i) => {
    const siblings = siblings_of(shown, message);
    const place = { index: siblings.indexOf(message), of: siblings.length, last: i + 1 === path.length,
        running: run?.message === message };
    return new Turn(message, place, name_of(message), speak);
  });
  if (run) run.turn = turns.find((turn) => turn.message === run.message) ?? null;
  if (turns.length > 0) $("log").replaceChildren(...turns.map((turn) => turn.root));
  else $("log").replaceChildren(empty_node());
  if (document.activeElement !== $("title")) $("title").value = path.length > 0 || shown.title ? title_of(shown) : "";
  for (const id of ["export-md", "export-json", "delete-chat"]) $(id).disabled = path.length === 0;
  show_running();
  to_end();
}

function empty_node() {
  const models = $("model").options.length;
  return h("div", { class: "empty" }, h("h2", {}, "Nothing is said yet."),
    h("p", {}, models > 0
        ? "What you write goes to the server that this page is from, and nowhere else. Chats stay in this browser."
      : "The server has not named a model yet."),
    h("ul", {}, STARTERS.map((text) => h("li", {}, h("button", { type: "button", "data-starter": text }, text)))));
}

function show_running() {
  const running = runs.has(shown.id);
  $("send").hidden = running;
  $("stop").hidden = !running;
  document.title = `${running ? "… " : ""}${turns.length > 0 ? `${title_of(shown)} - ` : ""}baton`;
}

function to_end() {
  if (follow) $("scroll").scrollTop = $("scroll").scrollHeight;
  $("to-end").hidden = follow;
}

function changed(conversation) {
  conversation.updated = Date.now();
  store.save(conversation);
  show_list();
}

function send_prompt() {
  const text = $("prompt").value;
  if (text.trim() === "" || runs.has(shown.id)) return;
  if (!answer_after(shown.leaf, { role: "user", content: text })) return;
  $("prompt").value = "";
  size_prompt();
}

// Adds `message` (null: none) behind `parent`, and asks for what follows. False: a setting cannot be sent.
function answer_after(parent, ...messages) {
  const conversation = shown, fields = request_fields(conversation.settings);
  if (fields.error !== undefined) {
    notice("settings", fields.error);
    toggle("settings", true);
    $("settings-form").querySelector("[aria-invalid=true]")?.focus();
    return false;
  }
  notice("settings", null);
  conversation.model = $("model").value || conversation.model;
  for (const fields_of_message of messages) parent = add_message(conversation, parent, fields_of_message).id;
  conversation.leaf = parent;
  const body = { model: conversation.model || undefined, messages: body_messages(conversation), stream: true,
    stream_options: { include_usage: true }, ...fields.body };
  // What is kept of it if the page closes meanwhile is a stopped answer.
  const message = add_message(conversation, parent, { role: "assistant", model: conversation.model, stopped: true });
  const run = { controller: new AbortController(), message, turn: null };
  runs.set(conversation.id, run);
  loaded.set(conversation.id, conversation);
  changed(conversation);
  follow = true;
  $("spoken").replaceChildren();
  say("Answering.");
  show_address();
  show_turns();
  run_answer(conversation, run, body);
  return true;
}

function body_messages(conversation) {
  const messages = [];
  if (conversation.settings.system?.trim()) messages.push({ role: "system", content: conversation.settings.system });
  for (const { role, content, tool_calls, tool_call_id, error } of path_of(conversation)) {
    if (role === "assistant" && content === "" && !tool_calls?.length) continue;
    if (role === "assistant" && error && content === "") continue;
    const message = { role, content };
    if (tool_calls?.length) message.tool_calls = tool_calls;
    if (tool_call_id !== undefined) message.tool_call_id = tool_call_id;
    messages.push(message);
  }
  return messages;
}

async function run_answer(conversation, run, body) {
  const { message, controller } = run, begun = performance.now();
  let first = null, thought_from = null, due = false, cost = 0, saved = begun;
  const draw = () => {
    due = false;
    const at = performance.now();
    if (runs.get(conversation.id) !== run || !run.turn || shown !== conversation) return;
    run.turn.update(true);
    to_end();
    cost = performance.now() - at;
  };
  const tell = (answer) => {
    const at = performance.now(), came = answer.content !== "" || answer.reasoning !== "" ||
        answer.tool_calls.length > 0;
    if (first === null && came) first = at;
    if (thought_from === null && answer.reasoning) thought_from = at;
    if (thought_from !== null && !message.thought_ms && answer.content) message.thought_ms = at - thought_from;
    message.content = answer.content;
    if (answer.reasoning) message.reasoning = answer.reasoning;
    if (answer.tool_calls.length > 0) message.tool_calls = structuredClone(answer.tool_calls);
    if (answer.finish) message.finish = answer.finish;
    message.stats = { usage: answer.usage, baton: answer.baton, id: answer.id };
    if (at - saved > 5000) {
      saved = at;
      store.save(conversation);
    }
    // A long answer is drawn less often: never more than a third of the time.
    if (!due) {
      due = true;
      setTimeout(() => requestAnimationFrame(draw), 2 * cost);
    }
  };
  try {
    await chat(api, body, controller.signal, tell);
    delete message.stopped;
  } catch (error) {
    if (error.name !== "AbortError") {
      delete message.stopped;
      message.error = { message: error.message, facts: error instanceof ServerError ? error.facts : [] };
    }
  }
  const ended = performance.now();
  message.stats = { ...message.stats, wall_ms: ended - begun };
  if (first !== null) message.stats.ttft_ms = first - begun;
  runs.delete(conversation.id);
  changed(conversation);
  if (conversation === shown) {
    run.turn?.update(false);
    show_running();
    to_end();
    say(message.error ? `Error: ${message.error.message}` : message.stopped ? "Stopped." : "The answer is complete.");
  } else if (shown !== conversation) {
    loaded.delete(conversation.id);
  }
  // The timeline's words on it: they come a little later, and only where there is a timeline.
  const id = message.stats.id?.replace(/^[a-z]+-/, "");
  const done = id && lanes_live ? await timeline.done_of(id, 3000) : null;
  if (done && conversation.messages[message.id] === message) {
    const { usage: _, ...rest } = done;
    message.stats.done = { ...rest, ttft_ms: timeline.requests.get(id)?.decode?.ttft_ms };
    if (store.index.some((entry) => entry.id === conversation.id)) store.save(conversation);
    if (conversation === shown) {
      if (!runs.has(conversation.id)) turns.find((turn) => turn.message === message)?.show_foot(false);
      to_end();
    }
  }
}

function stop_answer() {
  runs.get(shown.id)?.controller.abort();
}

// What failed before a word came leaves nothing behind.
function again(message) {
  if (runs.has(shown.id)) return;
  const parent = message.role === "assistant" ? message.parent : message.id;
  const failed = message.role === "assistant" && message.error && !message.content && !message.reasoning;
  if (failed) delete shown.messages[message.id];
  if (!answer_after(parent)) show_turns();
}

function edit(turn) {
  const { message } = turn;
  turn.edit((text) => {
    if (runs.has(shown.id)) return;
    if (message.role === "user") {
      answer_after(message.parent, { role: "user", content: text });
    } else {
      const { role, model, reasoning } = message;
      add_message(shown, message.parent, { role, model, content: text, ...(reasoning ? { reasoning } : {}) });
      changed(shown);
      show_turns();
    }
  });
}

async function copy(text, from) {
  try {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(text);
    } else {  // http from another machine
      const field = h("textarea", { class: "sr", "aria-hidden": "true" });
      field.value = text;
      document.body.append(field);
      field.select();
      const done = document.execCommand("copy");
      field.remove();
      if (!done) throw new Error("the browser refused");
    }
    say("Copied.");
    const label = from.textContent;
    from.textContent = "copied";
    setTimeout(() => { from.textContent = label; }, 1200);
  } catch (error) {
    notice("copy", `Nothing was copied: ${error.message}.`);
  }
}

function download(name, type, text) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function file_name(conversation) {
  const name = title_of(conversation).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
  return name.slice(0, 50) || "conversation";
}

async function import_file(file) {
  try {
    notice("file", null);
    const found = from_json(await file.text(), (id) => store.index.some((entry) => entry.id === id));
    for (const conversation of found) store.save(conversation);
    if (found.length > 0) open_chat(found[0].id);
    say(`${found.length} conversations imported.`);
    show_list();
  } catch (error) {
    notice("file", `${file.name} was not imported. ${error.message}`);
  }
}

// ---- models, settings, panels

let lanes_live = false;

function choose_model(id) {
  const options = [...$("model").options];
  if (options.some((option) => option.value === id)) $("model").value = id;
}

async function load_models() {
  try {
    const list = await api.json("v1/models"), all = Array.isArray(list.data) ? list.data : [];
    const models = all.filter((model) => model.embedding_length === undefined);  // others make vectors, and no text
    $("model").replaceChildren(...models.map((model) => h("option", { value: model.id }, model.id)));
    choose_model(shown?.model);
    if (models.length === 0) {
      throw new ServerError(all.length > 0 ? "The server has no model that writes, only such that make vectors."
          : "The server names no model.");
    }
    notice("models", null);
    if (turns.length === 0 && shown) show_turns();
  } catch (error) {
    notice("models", error.status === 401 ? `${error.message} (the key goes into Settings)` : error.message);
    if (error.status === 401) toggle("settings", true);
    else setTimeout(load_models, 5000);
  }
}

async function load_props() {
  try {
    $("props").replaceChildren(facts(await api.json("props")));
  } catch (error) {
    $("props").replaceChildren(h("p", { class: "note" }, error.message));
  }
}

function toggle(id, on) {
  const panel = $(id), to = on ?? panel.hidden, button = $(`${id}-toggle`);
  panel.hidden = !to;
  button.setAttribute("aria-expanded", String(to));
  if (to && innerWidth <= 860 && id !== "lanes") toggle(id === "list" ? "settings" : "list", false);
  if (innerWidth > 860) store.set_preferences({ [`show_${id}`]: to });
  lanes.changed();
}

const THEMES = ["auto", "light", "dark"];
function set_theme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  $("theme-toggle").replaceChildren(h("span", { class: "wide" }, "Colours "), theme);
  $("theme-toggle").setAttribute("aria-label", `Colours: ${theme}`);
  lanes.recolour();
}

function set_key(key, keep) {
  api.key = key;
  try {
    sessionStorage.setItem("baton.key", key);
    if (keep && key) localStorage.setItem("baton.key", key);
    else localStorage.removeItem("baton.key");
  } catch {
    // It lasts until the page closes.
  }
  load_models();
  api.restart?.();
}

function kept_key() {
  try {
    const kept = localStorage.getItem("baton.key");
    return { key: sessionStorage.getItem("baton.key") || kept || "", keep_key: kept !== null };
  } catch {
    return { key: "", keep_key: false };
  }
}

let settings_due = 0;
const key = kept_key();
api.key = key.key;
const show_settings = settings_form($("settings-form"), (name, text) => {
  shown.settings[name] = text;
  clearTimeout(settings_due);
  settings_due = setTimeout(() => {
    store.set_preferences({ settings: shown.settings });
    if (Object.keys(shown.messages).length > 0) store.save(shown);
  }, 400);
}, { ...key, set_key });

// ---- hearing

const KEYS = [
  ["Enter", "send"], ["Shift Enter", "new line"], ["Esc", "stop the answer; close a panel"],
  ["\u2191", "in an empty message field: edit your last message"],
  ["Alt N", "new conversation"], ["Alt R", "regenerate the last answer"],
  ["Alt C", "copy the last answer"], ["Alt L", "show or hide the lanes"], ["Alt S", "show or hide the settings"],
  ["Alt K", "show or hide the conversations"], ["/", "to the message field"], ["?", "this list"],
];

function last_turn(role) {
  return turns.findLast((turn) => turn.message.role === role);
}

function escape() {
  if (runs.has(shown.id)) {
    stop_answer();
    return;
  }
  for (const id of ["settings", "list"]) {
    if (!$(id).hidden && innerWidth <= (id === "list" ? 860 : 1180)) {
      toggle(id, false);
      $(`${id}-toggle`).focus();
      return;
    }
  }
}

function hear_keys(event) {
  if (event.isComposing || document.querySelector("dialog[open]")) return;
  const writes = event.target.matches("textarea, select, input:not([type=checkbox])");
  const alt = event.altKey && !event.ctrlKey && !event.metaKey && {
    KeyN: new_chat,
    KeyR: () => last_turn("assistant") && again(last_turn("assistant").message),
    KeyC: () => last_turn("assistant") && copy(last_turn("assistant").message.content,
        last_turn("assistant").acts.firstChild ?? $("status")),
    KeyL: () => toggle("lanes"),
    KeyS: () => toggle("settings"),
    KeyK: () => toggle("list"),
  }[event.code];
  if (alt) alt();
  else if (event.key === "Escape") escape();
  else if (event.key === "?" && !writes) $("help").showModal();
  else if (event.key === "/" && !writes) $("prompt").focus();
  else return;
  event.preventDefault();
}

function size_prompt() {
  const field = $("prompt");
  field.style.height = "auto";
  field.style.height = `${field.scrollHeight + 2}px`;
}

function hear_prompt(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send_prompt();
  } else if (event.key === "ArrowUp" && $("prompt").value === "" && last_turn("user") && !runs.has(shown.id)) {
    event.preventDefault();
    edit(last_turn("user"));
  }
}

const turn_of = (element) => turns.find((turn) => turn.root === element.closest(".turn"));

function hear_log(event) {
  const starter = event.target.closest("[data-starter]"), pressed = event.target.closest("[data-act]");
  if (starter) {
    $("prompt").value = starter.dataset.starter;
    size_prompt();
    $("prompt").focus();
  }
  if (!pressed) return;
  const turn = turn_of(pressed);
  const step = (by) => {
    const siblings = siblings_of(shown, turn.message), to = siblings[turn.place.index + by];
    if (!to || runs.has(shown.id)) return;
    shown.leaf = leaf_below(shown, to.id);
    follow = false;
    store.save(shown);
    show_turns();
    const moved = turns.find((each) => each.message === to)?.root;
    moved?.querySelector(by < 0 ? "[data-act=before]:enabled, [data-act=after]"
        : "[data-act=after]:enabled, [data-act=before]")?.focus();
  };
  const acts = {
    "copy-code": () => copy(pressed.closest(".code").querySelector("code").textContent, pressed),
    copy: () => copy(turn.message.content, pressed),
    edit: () => edit(turn),
    again: () => again(turn.message),
    retry: () => again(turn.message),
    before: () => step(-1),
    after: () => step(1),
  };
  acts[pressed.dataset.act]?.();
}

function hear_results(event) {
  const form = event.target.closest("[data-results]");
  if (!form) return;
  event.preventDefault();
  const message = shown.messages[form.dataset.results], fields = [...form.querySelectorAll("textarea")];
  answer_after(message.id, ...message.tool_calls.map((call, i) =>
      ({ role: "tool", tool_call_id: call.id, content: fields[i].value })));
}

async function delete_chat() {
  if (!(await ask(`Delete \u201c${title_of(shown)}\u201d from this browser?`, "Delete"))) return;
  stop_answer();
  runs.delete(shown.id);
  loaded.delete(shown.id);
  store.remove(shown.id);
  shown = new_conversation(shown.settings, shown.model);
  show_chat(shown);
  $("prompt").focus();
}

function hear() {
  document.addEventListener("keydown", hear_keys);
  $("prompt").addEventListener("keydown", hear_prompt);
  $("prompt").addEventListener("input", size_prompt);
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send_prompt();
  });
  $("stop").addEventListener("click", stop_answer);
  $("log").addEventListener("click", hear_log);
  $("log").addEventListener("submit", hear_results);
  $("scroll").addEventListener("scroll", () => {
    const { scrollTop, scrollHeight, clientHeight } = $("scroll");
    follow = scrollHeight - scrollTop - clientHeight < 40;
    $("to-end").hidden = follow;
  });
  $("to-end").addEventListener("click", () => {
    follow = true;
    to_end();
  });
  $("chats").addEventListener("click", (event) => {
    const chosen = event.target.closest("[data-chat]");
    if (!chosen) return;
    if (innerWidth <= 860) toggle("list", false);
    open_chat(chosen.dataset.chat);
    $("prompt").focus();
  });
  $("notice").addEventListener("click", (event) => {
    const pressed = event.target.closest("[data-notice]");
    if (pressed) notice(pressed.dataset.notice, null);
  });
  $("find").addEventListener("input", show_list);
  $("new-chat").addEventListener("click", new_chat);
  $("title").addEventListener("input", () => {
    shown.title = $("title").value.trim();
    if (turns.length > 0) changed(shown);
  });
  $("title").addEventListener("keydown", (event) => event.key === "Enter" && $("prompt").focus());
  $("model").addEventListener("change", () => {
    shown.model = $("model").value;
    store.set_preferences({ model: shown.model });
  });
  $("export-json").addEventListener("click", () => download(`${file_name(shown)}.json`, "application/json",
      to_json([shown])));
  $("export-md").addEventListener("click", () => download(`${file_name(shown)}.md`, "text/markdown",
      to_markdown(shown)));
  $("export-all").addEventListener("click", () => download("baton-conversations.json", "application/json",
      to_json(store.all())));
  $("import").addEventListener("click", () => $("import-file").click());
  $("import-file").addEventListener("change", () => {
    const [file] = $("import-file").files;
    if (file) import_file(file);
    $("import-file").value = "";
  });
  $("delete-chat").addEventListener("click", delete_chat);
  for (const id of ["list", "lanes", "settings"]) $(`${id}-toggle`).addEventListener("click", () => toggle(id));
  for (const button of document.querySelectorAll("[data-close]")) {
    button.addEventListener("click", () => {
      toggle(button.dataset.close, false);
      $(`${button.dataset.close}-toggle`).focus();
    });
  }
  $("help-toggle").addEventListener("click", () => $("help").showModal());
  $("server").addEventListener("toggle", () => $("server").open && load_props());
  $("theme-toggle").addEventListener("click", () => {
    const now = document.documentElement.dataset.theme ?? "auto",
        next = THEMES[(THEMES.indexOf(now) + 1) % THEMES.length];
    store.set_preferences({ theme: next });
    set_theme(next);
  });
  // Another page of this browser wrote.
  addEventListener("storage", () => {
    store.reload();
    show_list();
  });
  addEventListener("beforeunload", () => runs.size > 0 && [...runs.keys()].forEach((id) => store.save(loaded.get(id))));
}

function pulse() {
  const { running, waiting } = timeline.usage, dot = $("pulse-dot");
  dot.className = lanes_live ? (running > 0 ? "busy" : "live") : lanes_state;
  $("pulse-text").textContent = lanes_live && running !== undefined
      ? `${running} running${waiting > 0 ? `, ${waiting} waiting` : ""}` : "";
}
let lanes_state = "";

function start() {
  $("keys").append(...KEYS.flatMap(([keys, meaning]) => [h("dt", {},
      keys.split(" ").map((each) => h("kbd", {}, each))), h("dd", {}, meaning)]));
  const preferences = store.preferences();
  set_theme(THEMES.includes(preferences.theme) ? preferences.theme : "auto");
  const narrow = innerWidth <= 860;
  toggle("list", !narrow && preferences.show_list !== false);
  toggle("lanes", !narrow && preferences.show_lanes !== false);
  toggle("settings", innerWidth > 1180 && preferences.show_settings === true);
  hear();
  const wanted = location.hash.slice(1), kept = store.index.some((entry) => entry.id === wanted) && store.load(wanted);
  show_chat(kept || new_conversation(preferences.settings ?? {}, preferences.model ?? ""));
  load_models();
  listen(api, timeline, () => {
    lanes.changed();
    pulse();
  }, (state, error) => {
    lanes_live = state === "live";
    lanes_state = state === "lost" ? "lost" : "";
    lanes.set_state(state, error);
    pulse();
  });
}

start();

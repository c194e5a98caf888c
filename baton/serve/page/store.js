// Conversations in the browser. Each is a tree: editing and regenerating add branches, nothing is written over. What
// does not fit into the browser's storage stays in memory, and the page says so.

const PREFIX = "baton.";
const INDEX = "index", CONVERSATION = "chat.", PREFERENCES = "preferences";
const IMPORT_BYTES_MAX = 32 << 20;
const MESSAGES_MAX = 20_000;
const FORMAT = "baton-conversations", VERSION = 1;

export const new_id = () => {
  const bytes = crypto.getRandomValues(new Uint8Array(9));
  return Array.from(bytes, (byte) => byte.toString(36).padStart(2, "0")).join("");
};

// ---- one conversation: {id, title, created, updated, model, settings, messages: {id: message}, leaf}
// A message: {id, parent, role, at, content, reasoning?, tool_calls?, tool_call_id?, error?, stopped?, stats?}

export function new_conversation(settings, model) {
  const now = Date.now();
  return { id: new_id(), title: "", created: now, updated: now, model, settings: { ...settings }, messages: {},
      leaf: null };
}

export function path_of(conversation) {
  const path = [];
  for (let id = conversation.leaf; id !== null && path.length <= MESSAGES_MAX;) {
    const message = conversation.messages[id];
    if (!message) break;
    path.push(message);
    id = message.parent;
  }
  return path.reverse();
}

export function siblings_of(conversation, message) {
  const all = Object.values(conversation.messages).filter((each) => each.parent === message.parent);
  return all.sort((a, b) => a.at - b.at);
}

// The newest leaf below a message.
export function leaf_below(conversation, id) {
  for (;;) {
    const below = Object.values(conversation.messages).filter((each) => each.parent === id);
    if (below.length === 0) return id;
    id = below.reduce((a, b) => (a.at >= b.at ? a : b)).id;
  }
}

export function add_message(conversation, parent, fields) {
  const below = Object.values(conversation.messages).filter((each) => each.parent === parent);
  const at = Math.max(Date.now(), ...below.map((each) => each.at + 1));
  const message = { id: new_id(), parent, at, content: "", ...fields };
  conversation.messages[message.id] = message;
  conversation.leaf = message.id;
  conversation.updated = Date.now();
  return message;
}

export function title_of(conversation) {
  if (conversation.title) return conversation.title;
  const first = path_of(conversation).find((message) => message.role === "user");
  return first ? first.content.replace(/\s+/g, " ").trim().slice(0, 60) || "Untitled" : "New conversation";
}

const is_text = (value) => typeof value === "string";
const is_number = (value) => typeof value === "number" && Number.isFinite(value);
const is_object = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

// ---- the browser's storage

export class Store {
  // `tell`: a text to show, or null when all is well again.
  constructor(tell) {
    this.tell = tell;
    this.memory = new Map();
    this.index = this.read_index();
  }
  read_index() {
    const kept = this.read(INDEX, []);
    const good = (entry) => is_object(entry) && is_text(entry.id) && is_text(entry.title) && is_number(entry.updated);
    return Array.isArray(kept) ? kept.filter(good) : [];
  }
  read(key, otherwise) {
    if (this.memory.has(key)) return JSON.parse(this.memory.get(key));
    try {
      const text = localStorage.getItem(PREFIX + key);
      return text === null ? otherwise : JSON.parse(text);
    } catch {
      return otherwise;
    }
  }
  write(key, value) {
    const text = JSON.stringify(value);
    try {
      localStorage.setItem(PREFIX + key, text);
      this.memory.delete(key);
      if (this.memory.size === 0) this.tell(null);
      return true;
    } catch (error) {
      this.memory.set(key, text);
      this.tell(error.name === "QuotaExceededError" || error.code === 22
        ? "The browser's storage is full: what is new is kept until this page closes. Export it, or delete some."
        : `The browser keeps nothing for this page (${error.name}): conversations last until it closes. Export them.`);
      return false;
    }
  }
  drop(key) {
    this.memory.delete(key);
    try {
      localStorage.removeItem(PREFIX + key);
    } catch {
      // Nothing was kept there.
    }
  }
  preferences() {
    const kept = this.read(PREFERENCES, {});
    if (!is_object(kept)) return {};
    return is_object(kept.settings) && Object.values(kept.settings).every(is_text) ? kept : { ...kept, settings: {} };
  }
  set_preferences(values) {
    this.write(PREFERENCES, { ...this.preferences(), ...values });
  }
  load(id) {
    const conversation = this.read(CONVERSATION + id, null);
    return conversation && check_conversation(conversation) === "" ? conversation : null;
  }
  save(conversation) {
    const entry = { id: conversation.id, title: title_of(conversation), updated: conversation.updated };
    // Another page of this browser may have written since.
    const others = this.read_index().filter((each) => each.id !== entry.id);
    this.index = [entry, ...others].sort((a, b) => b.updated - a.updated);
    this.write(CONVERSATION + conversation.id, conversation);
    this.write(INDEX, this.index);
  }
  remove(id) {
    this.drop(CONVERSATION + id);
    this.index = this.read_index().filter((each) => each.id !== id);
    this.write(INDEX, this.index);
    for (const [key, text] of [...this.memory]) this.write(key, JSON.parse(text));  // there may be room now
  }
  reload() {
    if (!this.memory.has(INDEX)) this.index = this.read_index();
  }
  all() {
    return this.index.map((entry) => this.load(entry.id)).filter((each) => each !== null);
  }
}

// ---- files

export function to_json(conversations) {
  return `${JSON.stringify({ format: FORMAT, version: VERSION, conversations }, null, 1)}\n`;
}

const fence_for = (text) => "`".repeat(Math.max(3, ...[...text.matchAll(/`+/g)].map((run) => run[0].length + 1)));

export function to_markdown(conversation) {
  const lines = [`# ${title_of(conversation)}`, ""];
  const quoted = (text) => text.split("\n").map((line) => `> ${line}`.trimEnd());
  const fenced = (text, language) => [fence_for(text) + language, text, fence_for(text)];
  lines.push(`${conversation.model || "model not noted"}, ${new Date(conversation.created).toISOString()}`, "");
  if (conversation.settings.system) lines.push("## System", "", conversation.settings.system, "");
  for (const message of path_of(conversation)) {
    const name = { user: "You", assistant: message.model || "Assistant", tool: "Tool" }[message.role];
    lines.push(`## ${name}`, "");
    if (message.reasoning) lines.push(...quoted(message.reasoning), "");
    if (message.content) lines.push(...(message.role === "tool" ? fenced(message.content, "") : [message.content]), "");
    for (const call of message.tool_calls ?? []) {
      lines.push(`Calls \`${call.function.name}\`:`, "", ...fenced(call.function.arguments, "json"), "");
    }
    if (message.stopped) lines.push("*(stopped)*", "");
    if (message.error) lines.push(`*(error: ${message.error.message})*`, "");
  }
  return lines.join("\n");
}

function check_message(message, id, messages) {
  if (!is_object(message)) return "is no object";
  if (message.id !== id) return "has another id than its key";
  if (!["user", "assistant", "tool"].includes(message.role)) return "has no role of user, assistant or tool";
  if (!is_text(message.content)) return "has a content that is no text";
  if (!is_number(message.at)) return "has no time";
  if (message.parent !== null && !Object.hasOwn(messages, message.parent)) return "has a parent that is not there";
  if (message.reasoning !== undefined && !is_text(message.reasoning)) return "has a reasoning that is no text";
  if (message.model !== undefined && !is_text(message.model)) return "has a model that is no text";
  if (message.tool_call_id !== undefined && !is_text(message.tool_call_id)) return "has a tool_call_id that is no text";
  if (message.error !== undefined && !(is_object(message.error) && is_text(message.error.message) &&
      Array.isArray(message.error.facts) && message.error.facts.every((fact) => Array.isArray(fact) &&
          fact.every(is_text)))) {
    return "has an error of another form";
  }
  if (message.tool_calls !== undefined) {
    if (!Array.isArray(message.tool_calls)) return "has tool_calls that are no list";
    for (const call of message.tool_calls) {
      const whole = is_object(call) && is_object(call.function);
      if (!whole || ![call.id, call.function.name, call.function.arguments].every(is_text)) {
        return "has a tool call of another form";
      }
    }
  }
  return "";
}

// What is wrong with it; empty: nothing.
export function check_conversation(value) {
  if (!is_object(value)) return "it is no object";
  if (!is_text(value.id) || !/^[\w-]{1,64}$/.test(value.id)) return "it has no id of letters and digits";
  if (!is_text(value.title) || !is_text(value.model)) return "its title and model are no texts";
  if (!is_number(value.created) || !is_number(value.updated)) return "its times are no numbers";
  if (!is_object(value.settings)) return "its settings are no object";
  for (const [key, setting] of Object.entries(value.settings)) {
    if (!is_text(setting)) return `its setting ${key} is no text`;
  }
  if (!is_object(value.messages)) return "its messages are no object";
  const ids = Object.keys(value.messages);
  if (ids.length > MESSAGES_MAX) return `it has more than ${MESSAGES_MAX} messages`;
  for (const id of ids) {
    const wrong = check_message(value.messages[id], id, value.messages);
    if (wrong) return `its message ${id} ${wrong}`;
  }
  if (value.leaf === null ? ids.length > 0 : !Object.hasOwn(value.messages, value.leaf)) return "its leaf is not there";
  // From each message a way leads to the first: no circles.
  const good = new Set();
  for (const id of ids) {
    const way = new Set();
    for (let at = id; at !== null && !good.has(at); at = value.messages[at].parent) {
      if (way.has(at)) return `its messages go in a circle at ${at}`;
      way.add(at);
    }
    for (const at of way) good.add(at);
  }
  return "";
}

// Conversations of an exported file, under new ids where `taken` says so. Throws an Error that says what is wrong.
export function from_json(text, taken) {
  if (text.length > IMPORT_BYTES_MAX) throw new Error(`The file has more than ${IMPORT_BYTES_MAX >> 20} MiB.`);
  let file;
  try {
    file = JSON.parse(text);
  } catch (error) {
    throw new Error(`The file is no JSON: ${error.message}`);
  }
  const ours = is_object(file) && file.format === FORMAT;
  if (!ours) throw new Error(`The file is no export of this page ("format": "${FORMAT}").`);
  if (file.version !== VERSION) throw new Error(`The file has version ${file.version}; this page reads ${VERSION}.`);
  if (!Array.isArray(file.conversations)) throw new Error("The file has no list of conversations.");
  return file.conversations.map((conversation, i) => {
    const wrong = check_conversation(conversation);
    if (wrong) throw new Error(`Conversation ${i + 1} of the file cannot be used: ${wrong}.`);
    return taken(conversation.id) ? { ...conversation, id: new_id() } : conversation;
  });
}

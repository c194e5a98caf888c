// The server: addresses beside the page's own, server-sent events over fetch (so that the key goes in a header), and
// errors as the server wrote them.

const address = (path) => new URL(path, document.baseURI).href;
const SHOWN_MAX = 2000;

// What came in place of an answer. `facts`: pairs to show below the message.
export class ServerError extends Error {
  constructor(message, facts = [], status = 0) {
    super(message);
    this.facts = facts;
    this.status = status;
  }
}

// {"error": {...}} as OpenAI's clients know it, or Ollama's {"error": "..."}; else the body as it is.
export function error_of(status, status_text, body, retry_after) {
  const facts = [];
  if (status) facts.push(["status", `${status} ${status_text}`.trim()]);
  let message = body.slice(0, SHOWN_MAX).trim();
  try {
    const error = JSON.parse(body).error;
    if (typeof error === "string") message = error;
    if (error && typeof error.message === "string") {
      message = error.message;
      for (const key of ["type", "param", "code"]) {
        if (error[key] !== null && error[key] !== undefined) facts.push([key, String(error[key])]);
      }
    }
  } catch {
    // Not JSON: a proxy's page, say.
  }
  if (retry_after) facts.push(["retry after", `${retry_after} s`]);
  return new ServerError(message || `The server answered ${status} without a reason.`, facts, status);
}

export class Api {
  constructor() {
    this.key = "";
  }
  async fetch(path, { body, signal } = {}) {
    const headers = {};
    if (this.key) headers.Authorization = `Bearer ${this.key}`;
    if (body) headers["Content-Type"] = "application/json";
    let response;
    try {
      response = await fetch(address(path), { method: body ? "POST" : "GET", headers, signal, cache: "no-store",
        credentials: "same-origin", body: body ? JSON.stringify(body) : undefined });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError(`No answer from ${new URL(address(path)).host}: ${error.message}. Is the server running?`);
    }
    if (!response.ok) {
      const text = await response.text().catch(() => "");
      throw error_of(response.status, response.statusText, text, response.headers.get("Retry-After"));
    }
    return response;
  }
  async json(path, options) {
    const response = await this.fetch(path, options), text = await response.text();
    try {
      return JSON.parse(text);
    } catch {
      throw new ServerError(`${path} did not answer with JSON.`, [["body", text.slice(0, 200)]], response.status);
    }
  }
  // {event, data, id} of each event. A stream that ends in the middle of one drops it.
  async *events(path, options) {
    const response = await this.fetch(path, options);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new EventParser();
    try {
      for (;;) {
        const { value, done } = await reader.read().catch((error) => {
          if (error.name === "AbortError") throw error;
          throw new ServerError(`The connection broke: ${error.message}`);
        });
        if (done) return;
        yield* parser.push(value);
      }
    } finally {
      reader.cancel().catch(() => {});
    }
  }
}

// https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
export class EventParser {
  constructor() {
    this.rest = "";
    this.data = [];
    this.event = "";
    this.id = "";
  }
  push(text) {
    const out = [];
    this.rest += text;
    // A CR at the end may be half of a line's end.
    const hold = this.rest.endsWith("\r") ? 1 : 0;
    const lines = this.rest.slice(0, this.rest.length - hold).split(/\r\n|\n|\r/);
    this.rest = lines.pop() + (hold ? "\r" : "");
    for (const line of lines) {
      if (line === "") {
        if (this.data.length > 0) out.push({ event: this.event || "message", data: this.data.join("\n"), id: this.id });
        this.data = [];
        this.event = "";
        continue;
      }
      const colon = line.indexOf(":");
      if (colon === 0) continue;
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "data") this.data.push(value);
      else if (field === "event") this.event = value;
      else if (field === "id") this.id = value;
    }
    return out;
  }
}

// One answer of /v1/chat/completions: `tell` gets what is known so far, each time something came. Returns the same.
export async function chat(api, body, signal, tell) {
  const answer = { id: "", content: "", reasoning: "", tool_calls: [], finish: null, usage: null, baton: null };
  for await (const { data } of api.events("v1/chat/completions", { body, signal })) {
    if (data === "[DONE]") break;
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      throw new ServerError("The server sent an event that is no JSON.", [["event", data.slice(0, 200)]]);
    }
    if (chunk.error) throw error_of(0, "", data);
    answer.id ||= chunk.id ?? "";
    if (chunk.usage) answer.usage = chunk.usage;
    if (chunk.baton) answer.baton = chunk.baton;
    const choice = chunk.choices?.[0];
    if (choice) {
      const delta = choice.delta ?? {};
      answer.content += delta.content ?? "";
      answer.reasoning += delta.reasoning_content ?? delta.reasoning ?? "";
      for (const part of delta.tool_calls ?? []) add_call(answer.tool_calls, part);
      if (choice.finish_reason) answer.finish = choice.finish_reason;
    }
    tell(answer);
  }
  if (answer.finish === null) {
    throw new ServerError("The answer ended without a finish_reason: the connection was closed in the middle of it.");
  }
  return answer;
}

function add_call(calls, part) {
  const index = part.index ?? calls.length;
  if (!Number.isInteger(index) || index < 0 || index > 255) return;
  while (calls.length <= index) calls.push({ id: "", type: "function", function: { name: "", arguments: "" } });
  const call = calls[index];
  if (part.id) call.id = part.id;
  call.function.name += part.function?.name ?? "";
  call.function.arguments += part.function?.arguments ?? "";
}

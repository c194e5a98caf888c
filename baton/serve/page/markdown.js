// Markdown that a model wrote, as DOM nodes: text goes into text nodes only, no markup of the text is ever parsed as
// HTML, nothing is fetched, and links lead to http and https alone. Takes time linear in the text.
import { highlight } from "./highlight.js";

const DEPTH_MAX = 12;  // of quotes and lists in each other
const LINK_LENGTH_MAX = 2048;
const RUN_MAX = 3;    // marks of emphasis in a row; more are text
const OPEN_MAX = 16;  // runs of them that wait for their end: how deep nodes may lie in each other

// ---- blocks: lines -> a tree of {type, ...}

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^`\n]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?=[ \t]|$)(.*)$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,7})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|[ \t]*)$/;

const indent_of = (line) => line.length - line.trimStart().length;
const is_blank = (line) => line.trim() === "";
const all_of = (text, c) => text !== "" && text.split(c).every((rest) => rest === "");

function begins_block(line) {
  if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line)) return true;
  const item = ITEM.exec(line);
  return item !== null && item[4] !== undefined && (!/\d/.test(item[2]) || /^1[.)]$/.test(item[2]));
}

function read_fence(lines, at, open) {
  const mark = open[1];
  const closes = (line) => indent_of(line) < 4 && line.trim().length >= mark.length && all_of(line.trim(), mark[0]);
  const indent = indent_of(lines[at]);
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) ++end;
  const body = lines.slice(at + 1, end).map((line) => line.slice(Math.min(indent_of(line), indent)));
  const language = open[2].trim().split(/[\s{,]/)[0].slice(0, 24);
  return [{ type: "code", language, text: body.join("\n"), open: end >= lines.length },
      Math.min(end + 1, lines.length)];
}

// A line without content ends an item only where what follows is not indented as the item's text is.
function read_list(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]), bullet = first[2].at(-1), base = first[1].length;
  const list = { type: "list", ordered, start: ordered ? Number.parseInt(first[2], 10) : 1, loose: false, items: [] };
  let next = at;
  while (next < lines.length) {
    const item = ITEM.exec(lines[next]);
    if (!item || item[2].at(-1) !== bullet || item[1].length < base - 1 || item[1].length > base + 3) break;
    if (RULE.test(lines[next])) break;
    const spaces = item[3] ? Math.min(item[3].length, 4) : 1;
    const width = item[1].length + item[2].length + spaces;
    const body = [(item[4] ?? "")];
    let blank = false;
    for (++next; next < lines.length; ++next) {
      const line = lines[next];
      if (is_blank(line)) {
        blank = true;
        body.push("");
        continue;
      }
      const inside = indent_of(line) >= Math.min(width, item[1].length + 2);
      if (!inside && (blank || ITEM.test(line) || begins_block(line))) break;
      if (blank && inside) list.loose ||= !ITEM.test(line);
      blank = false;
      body.push(line.slice(Math.min(indent_of(line), width)));
    }
    const follows = next < lines.length && ITEM.exec(lines[next]);
    if (blank && follows && follows[2].at(-1) === bullet && follows[1].length >= base) list.loose = true;
    const task = /^\[([ xX])\][ \t]+/.exec(body[0]);
    if (task) body[0] = body[0].slice(task[0].length);
    list.items.push({ task: task && task[1] !== " ", is_task: task !== null, blocks: read_blocks(body, depth + 1) });
  }
  return [list, next];
}

function split_row(line) {
  const cells = [];
  let cell = "", code = false;
  const text = line.trim().replace(/^\|/, "");
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === "\\" && text[i + 1] === "|") {
      cell += "|";
      ++i;
    } else if (text[i] === "|" && !code) {
      cells.push(cell.trim());
      cell = "";
    } else {
      if (text[i] === "`") code = !code;
      cell += text[i];
    }
  }
  if (cell.trim() !== "") cells.push(cell.trim());
  return cells;
}

function is_table(lines, at) {
  const rule = lines[at + 1];
  return lines[at].includes("|") && rule !== undefined && rule.includes("-") && /^[ \t|:-]+$/.test(rule) &&
    split_row(rule).every((cell) => /^:?-+:?$/.test(cell));
}

function read_table(lines, at) {
  const head = split_row(lines[at]), rule = split_row(lines[at + 1]);
  if (head.length !== rule.length || head.length > 64) return null;
  const sides = rule.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : ""));
  const rows = [];
  let next = at + 2;
  for (; next < lines.length && !is_blank(lines[next]) && lines[next].includes("|"); ++next) {
    const cells = split_row(lines[next]).slice(0, head.length);
    while (cells.length < head.length) cells.push("");
    rows.push(cells);
  }
  return [{ type: "table", head, sides, rows }, next];
}

function read_blocks(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at];
    let match;
    if (is_blank(line)) {
      ++at;
    } else if ((match = FENCE.exec(line))) {
      const [block, next] = read_fence(lines, at, match);
      blocks.push(block);
      at = next;
    } else if ((match = HEADING.exec(line))) {
      let text = match[2].trim(), end = text.length;
      while (text[end - 1] === "#") --end;
      if (end === 0 || /[ \t]/.test(text[end - 1])) text = text.slice(0, end).trimEnd();
      blocks.push({ type: "heading", level: match[1].length, text });
      ++at;
    } else if (RULE.test(line)) {
      blocks.push({ type: "rule" });
      ++at;
    } else if (QUOTE.test(line) && depth < DEPTH_MAX) {
      const inner = [];
      for (; at < lines.length && !is_blank(lines[at]); ++at) {
        if (!QUOTE.test(lines[at]) && begins_block(lines[at])) break;
        inner.push(lines[at].replace(QUOTE, ""));
      }
      blocks.push({ type: "quote", blocks: read_blocks(inner, depth + 1) });
    } else if (ITEM.test(line) && depth < DEPTH_MAX) {
      const [block, next] = read_list(lines, at, depth);
      blocks.push(block);
      at = next;
    } else {
      const table = is_table(lines, at) && read_table(lines, at);
      if (table) {
        blocks.push(table[0]);
        at = table[1];
        continue;
      }
      const from = at;
      for (++at; at < lines.length && !is_blank(lines[at]) && !begins_block(lines[at]); ++at) {
        if (/^ {0,3}(=+|-+)[ \t]*$/.test(lines[at]) || is_table(lines, at)) break;
      }
      const text = lines.slice(from, at).map((each) => each.trimStart()).join("\n");
      const under = at < lines.length && /^ {0,3}(=+|-+)[ \t]*$/.exec(lines[at]);
      if (under) ++at;
      blocks.push(under ? { type: "heading", level: under[1][0] === "=" ? 1 : 2, text } : { type: "paragraph", text });
    }
  }
  return blocks;
}

// ---- inline: text -> nodes

// Spread arguments have a limit.
function append(element, children) {
  for (const child of children) element.append(child);
}

// The address in the one form that may be followed, or null.
export function safe_link(text) {
  if (text.length > LINK_LENGTH_MAX || !/^https?:\/\//i.test(text)) return null;
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

const PUNCTUATION = /[!-/:-@[-`{-~\p{P}\p{S}]/u;
const BARE_LINK = /https?:\/\/[^\s<>"`\\^{|}]{1,2049}/iy;

// For each '[' where its ']' is, in one walk.
function match_brackets(text) {
  const close = new Map(), open = [];
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === "\\") ++i;
    else if (text[i] === "[") open.push(i);
    else if (text[i] === "]" && open.length > 0) close.set(open.pop(), i);
  }
  return close;
}

// For each run of back-ticks that opens a span of code where the closing one begins.
function match_ticks(text) {
  const runs = [...text.matchAll(/`+/g)].map((run) => [run.index, run[0].length]);
  const next = new Map(), close = new Map();
  for (const [index, length] of runs.reverse()) {
    if (next.has(length)) close.set(index, next.get(length));
    next.set(length, index);
  }
  return close;
}

const TARGET = new RegExp("\\(\\s{0,8}(?:<([^<>\\n]{0,2048})>|([^\\s()<>]*(?:\\([^\\s()<>]*\\)[^\\s()<>]*)*))" +
  "(?:\\s{1,8}(?:\"[^\"]{0,500}\"|'[^']{0,500}'))?\\s{0,8}\\)", "y");

function link_node(href, children) {
  const link = document.createElement("a");
  link.href = href;
  link.title = href;
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  append(link, children);
  return link;
}

// Pieces: strings, nodes, and runs of '*', '_' or '~' as {mark, count, opens, closes}.
function inline_pieces(text, links, depth) {
  const pieces = [], brackets = match_brackets(text), ticks = match_ticks(text);
  let plain = "", i = 0;
  const flush = () => {
    if (plain !== "") pieces.push(plain);
    plain = "";
  };
  const add = (node, next) => {
    flush();
    pieces.push(node);
    i = next;
  };
  while (i < text.length) {
    const c = text[i];
    if (c === "\\" && i + 1 < text.length) {
      if (text[i + 1] === "\n") add(document.createElement("br"), i + 2);
      else if (/[!-/:-@[-`{-~]/.test(text[i + 1])) plain += text[i + 1], i += 2;
      else plain += c, ++i;
    } else if (c === "`") {
      let end = i;
      while (text[end] === "`") ++end;
      if (ticks.has(i)) {
        const code = document.createElement("code");
        const body = text.slice(end, ticks.get(i)).replaceAll("\n", " ");
        code.textContent = /^ .*[^ ].* $/.test(body) ? body.slice(1, -1) : body;
        add(code, ticks.get(i) + (end - i));
      } else {
        plain += text.slice(i, end);
        i = end;
      }
    } else if (links && (c === "[" || (c === "!" && text[i + 1] === "[")) && brackets.has(c === "[" ? i : i + 1)) {
      const open = c === "[" ? i : i + 1, close = brackets.get(open);
      TARGET.lastIndex = close + 1;
      const target = text[close + 1] === "(" && close - open < 4096 ? TARGET.exec(text) : null;
      const href = target && safe_link((target[1] ?? target[2]).replace(/\\([!-/:-@[-`{-~])/g, "$1"));
      if (!href) {
        plain += c;
        ++i;
      } else {
        // An image is not fetched: it is a link to it.
        const label = text.slice(open + 1, close);
        add(link_node(href, c === "!" ? [`image: ${label || href}`] : inline(label || href, false, depth + 1)),
          close + 1 + target[0].length);
      }
    } else if (links && c === "<") {
      const auto = /<(https?:\/\/[^\s<>]*)>/iy;
      auto.lastIndex = i;
      const match = auto.exec(text), href = match && safe_link(match[1]);
      if (href) add(link_node(href, [match[1]]), i + match[0].length);
      else plain += c, ++i;
    } else if (links && (c === "h" || c === "H") && (i === 0 || !/[\w]/.test(text[i - 1]))) {
      BARE_LINK.lastIndex = i;
      const match = BARE_LINK.exec(text);
      if (match && match[0].length > LINK_LENGTH_MAX) {
        plain += match[0];
        i += match[0].length;
        continue;
      }
      let found = match ? match[0].replace(/[.,:;!?'*_~\]]+$/, "") : "";
      while (found.endsWith(")") && found.split(")").length > found.split("(").length) found = found.slice(0, -1);
      const href = found && safe_link(found);
      if (href) add(link_node(href, [found]), i + found.length);
      else plain += c, ++i;
    } else if (c === "*" || c === "_" || (c === "~" && text[i + 1] === "~")) {
      let end = i;
      while (text[end] === c) ++end;
      const before = i === 0 ? " " : text[i - 1], after = end >= text.length ? " " : text[end];
      const left = !/\s/.test(after) && (!PUNCTUATION.test(after) || /\s/.test(before) || PUNCTUATION.test(before));
      const right = !/\s/.test(before) && (!PUNCTUATION.test(before) || /\s/.test(after) || PUNCTUATION.test(after));
      const word = c === "_";
      add({ mark: c, count: end - i, opens: left && (!word || !right || PUNCTUATION.test(before)),
            closes: right && (!word || !left || PUNCTUATION.test(after)) }, end);
    } else if (c === "\n") {
      if (plain.endsWith("  ")) {
        plain = plain.trimEnd();
        add(document.createElement("br"), i + 1);
      } else {
        plain += "\n";
        ++i;
      }
    } else {
      plain += c;
      ++i;
    }
  }
  flush();
  return pieces;
}

// Emphasis: a stack of what is open; each closing run takes the nearest opening one of its kind.
function emphasise(pieces) {
  const out = [];      // nodes, and open runs
  const open = [];     // indices in `out` of runs that may open
  const wrap = (from, name) => {
    const element = document.createElement(name);
    append(element, out.splice(from + 1).map((piece) => (piece.mark ? piece.mark.repeat(piece.count) : piece)));
    out.push(element);
  };
  for (const piece of pieces) {
    if (!piece.mark) {
      out.push(piece);
      continue;
    }
    if (piece.count > RUN_MAX) {
      out.push(piece.mark.repeat(piece.count));
      continue;
    }
    let left = piece.count;
    while (piece.closes && left > 0) {
      let k = open.length - 1;
      while (k >= 0 && out[open[k]].mark !== piece.mark) --k;
      if (k < 0 || out[open[k]].mark !== piece.mark) break;
      const opener = out[open[k]];
      const used = piece.mark === "~" ? 2 : Math.min(2, opener.count, left);
      if (opener.count < used || left < used) break;
      opener.count -= used;
      left -= used;
      wrap(open[k], piece.mark === "~" ? "del" : used === 2 ? "strong" : "em");
      open.length = opener.count > 0 ? k + 1 : k;
      if (opener.count === 0) out.splice(out.length - 2, 1);
    }
    if (left === 0) continue;
    if (piece.opens && open.length < OPEN_MAX) {
      open.push(out.length);
      out.push({ mark: piece.mark, count: left });
    } else {
      out.push(piece.mark.repeat(left));
    }
  }
  return out.map((piece) => (piece.mark ? piece.mark.repeat(piece.count) : piece));
}

function inline(text, links = true, depth = 0) {
  return depth > 4 ? [text] : emphasise(inline_pieces(text, links, depth));
}

// ---- nodes

function make(name, children = [], attributes = {}) {
  const element = document.createElement(name);
  append(element, children);
  // Behind the children: an element with dir="auto" looks through its text for each one that is added.
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function code_node(block) {
  const code = make("code", highlight(block.text, block.language));
  const copy = make("button", ["copy"], { type: "button", class: "quiet", "data-act": "copy-code",
    "aria-label": `Copy code${block.language ? ` (${block.language})` : ""}` });
  const head = make("div", [make("span", [block.language || "text"]), copy], { class: "code-head" });
  const name = `Code${block.language ? `, ${block.language}` : ""}`;
  return make("div", [head, make("pre", [code], { tabindex: "0", role: "region", "aria-label": name })],
      { class: "code" });
}

function table_node(block) {
  const row = (cells, name) => make("tr", cells.map((cell, i) =>
    make(name, inline(cell), block.sides[i] ? { class: block.sides[i] } : {})));
  const table = make("table", [make("thead", [row(block.head, "th")]),
      make("tbody", block.rows.map((each) => row(each, "td")))]);
  return make("div", [table], { class: "table", tabindex: "0", role: "region", "aria-label": "Table" });
}

function block_node(block) {
  switch (block.type) {
    case "code": return code_node(block);
    // The page has the first two levels.
    case "heading": return make(`h${Math.min(block.level + 2, 6)}`, inline(block.text), { dir: "auto" });
    case "rule": return make("hr");
    case "quote": return make("blockquote", block.blocks.map(block_node));
    case "table": return table_node(block);
    case "list": {
      const items = block.items.map((item) => {
        const tight = !block.loose && item.blocks[0]?.type === "paragraph";
        const nodes = item.blocks.flatMap((each, i) => (tight && i === 0 ? inline(each.text) : [block_node(each)]));
        if (item.is_task) {
          const box = make("input", [], { type: "checkbox", disabled: "", "aria-label": item.task ? "done" : "open" });
          box.checked = item.task;
          nodes.unshift(box, " ");
        }
        return make("li", nodes, item.is_task ? { class: "task", dir: "auto" } : { dir: "auto" });
      });
      return make(block.ordered ? "ol" : "ul", items, block.ordered && block.start !== 1
          ? { start: String(block.start) } : {});
    }
    default: return make("p", inline(block.text), { dir: "auto" });
  }
}

const lines_of = (text) =>
  text.replaceAll("\u0000", "\uFFFD").replace(/\r\n?/g, "\n").replaceAll("\t", "    ").split("\n");

export function render(text) {
  const fragment = document.createDocumentFragment();
  append(fragment, read_blocks(lines_of(text), 0).map(block_node));
  return fragment;
}

// An answer that grows: blocks that did not change keep their nodes (and what is selected in them). `done` is told of
// each block, in order, once nothing more can come to it.
export class GrowingText {
  constructor(root, done = () => {}) {
    this.root = root;
    this.done = done;
    this.keys = [];
    this.told = 0;
  }
  update(text, whole) {
    const blocks = read_blocks(lines_of(text), 0), keys = blocks.map((block) => JSON.stringify(block));
    let same = 0;
    while (same < keys.length && keys[same] === this.keys[same]) ++same;
    while (this.root.childNodes.length > same) this.root.lastChild.remove();
    append(this.root, blocks.slice(same).map(block_node));
    this.keys = keys;
    for (const end = whole ? keys.length : keys.length - 1; this.told < end; ++this.told) {
      this.done(this.root.childNodes[this.told].textContent);
    }
  }
}

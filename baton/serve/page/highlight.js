// Colours for code: comments, strings, numbers and words that most languages reserve. One walk, never back.
const BYTES_MAX = 60_000;  // more is shown as it is

const words = (text) => new Set(text.split(" "));
const C_LIKE = words("auto bool break case catch char class const constexpr continue default delete do double else enum " +
  "export extends extern false final finally float for friend func function go goto if implements import in inline " +
  "instanceof int interface let long mut namespace new nil null nullptr operator override package private protected " +
  "public return self short signed sizeof static struct super switch template this throw throws trait true try type " +
  "typedef typename typeof undefined union unsigned use using var virtual void volatile where while yield async await " +
  "fn impl match pub crate mod ref loop dyn defer chan map range select val when fun object string number boolean of");
const PYTHON = words("and as assert async await break class continue def del elif else except False finally for from " +
  "global if import in is lambda None nonlocal not or pass raise return self True try while with yield match case");
const SHELL = words("if then else elif fi for while until do done case esac function in select return local export " +
  "set unset readonly declare echo cd exit trap source");
const SQL = words("select from where insert into values update set delete create table index view drop alter join left " +
  "right inner outer on as and or not null is in exists between like group by order having limit offset union all " +
  "distinct case when then else end primary key foreign references default with desc asc");
const LUA_RUBY = words("and break class def do else elsif elseif end ensure false for function if in local module nil not " +
  "or repeat require rescue return self super then true unless until when while yield begin case puts");
const DATA = words("true false null yes no on off");

const SLASHES = { line: "//", block: ["/*", "*/"] };
const HASH = { line: "#" };
const GRAMMARS = [
  [["c", "cc", "cpp", "c++", "cxx", "h", "hpp", "cuda", "cu", "objc", "java", "js", "javascript", "jsx", "ts",
    "typescript", "tsx", "rust", "rs", "go", "golang", "swift", "kotlin", "kt", "cs", "csharp", "scala", "php", "dart",
    "zig", "proto"],
   { words: C_LIKE, ...SLASHES, quotes: "\"'`" }],
  [["py", "python", "python3", "pycon", "starlark", "mojo"], { words: PYTHON, ...HASH, quotes: "\"'", triple: true }],
  [["sh", "bash", "zsh", "shell", "console", "fish", "dockerfile", "docker", "make", "makefile", "cmake"],
   { words: SHELL, ...HASH, quotes: "\"'" }],
  [["sql", "sqlite", "postgres", "mysql"], { words: SQL, line: "--", block: ["/*", "*/"], quotes: "'\"", fold: true }],
  [["lua"], { words: LUA_RUBY, line: "--", quotes: "\"'" }],
  [["rb", "ruby", "elixir", "r", "julia", "perl", "pl"], { words: LUA_RUBY, ...HASH, quotes: "\"'" }],
  [["json", "json5", "jsonc", "jsonl"], { words: DATA, ...SLASHES, quotes: "\"" }],
  [["yaml", "yml", "toml", "ini", "conf", "properties", "gbnf"], { words: DATA, ...HASH, quotes: "\"'" }],
  [["css", "scss", "less"], { words: new Set(), block: ["/*", "*/"], quotes: "\"'" }],
  [["html", "xml", "svg", "vue"], { words: new Set(), block: ["<!--", "-->"], quotes: "\"" }],
  [["haskell", "hs", "elm"],
      { words: words("module import where let in case of data type newtype class instance deriving " +
    "if then else do"), line: "--", block: ["{-", "-}"], quotes: "\"" }],
];
const BY_NAME = new Map(GRAMMARS.flatMap(([names, grammar]) => names.map((name) => [name, grammar])));

function string_end(text, at, grammar) {
  const quote = text[at];
  if (grammar.triple && text.startsWith(quote.repeat(3), at)) {
    const end = text.indexOf(quote.repeat(3), at + 3);
    return end < 0 ? text.length : end + 3;
  }
  let i = at + 1;
  for (; i < text.length && text[i] !== quote; ++i) {
    if (text[i] === "\n" && quote !== "`") return i;
    if (text[i] === "\\") ++i;
  }
  return Math.min(i + 1, text.length);
}

// Text and spans, for `append`.
export function highlight(text, language) {
  const grammar = BY_NAME.get(language.toLowerCase());
  if (!grammar || text.length > BYTES_MAX) return [text];
  const out = [];
  let plain = 0, at = 0;
  const take = (end, kind) => {
    if (at > plain) out.push(text.slice(plain, at));
    const span = document.createElement("span");
    span.className = kind;
    span.textContent = text.slice(at, end);
    out.push(span);
    plain = at = end;
  };
  const word = /[A-Za-z_$][\w$]*/y, number = /(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\w*/y;
  while (at < text.length) {
    const c = text[at];
    if (grammar.line && text.startsWith(grammar.line, at) &&
        (grammar.line !== "#" || at === 0 || /\s/.test(text[at - 1]))) {
      const end = text.indexOf("\n", at);
      take(end < 0 ? text.length : end, "hl-c");
    } else if (grammar.block && text.startsWith(grammar.block[0], at)) {
      const end = text.indexOf(grammar.block[1], at + grammar.block[0].length);
      take(end < 0 ? text.length : end + grammar.block[1].length, "hl-c");
    } else if (grammar.quotes.includes(c)) {
      take(string_end(text, at, grammar), "hl-s");
    } else if (/[A-Za-z_$]/.test(c)) {
      word.lastIndex = at;
      const found = word.exec(text)[0];
      if (grammar.words.has(grammar.fold ? found.toLowerCase() : found)) take(at + found.length, "hl-k");
      else at += found.length;
    } else if (/\d/.test(c)) {
      number.lastIndex = at;
      take(at + number.exec(text)[0].length, "hl-n");
    } else {
      ++at;
    }
  }
  if (at > plain) out.push(text.slice(plain));
  return out;
}

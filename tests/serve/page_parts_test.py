#!/usr/bin/env python3
"""Parts of the page by themselves, in a browser: Markdown with hostile inputs, server-sent events, kept conversations.

Skipped (77) without a browser: scripts/fetch_playwright.sh.
"""
import json
import unittest

from page_browser import BrowserTest

FORM = """async (text) => {
  const { render } = await import("/page/markdown.js");
  const walk = (node) => {
    if (node.nodeType === 3) return node.data.replaceAll("\\n", "\\\\n");
    const name = node.localName ?? "", inner = [...node.childNodes].map(walk).join("");
    if (node.nodeType === 11) return inner;
    if (name === "div" && node.className === "code") {
      return `[${node.querySelector("span").textContent}|${node.querySelector("code").textContent.replaceAll("\\n", "\\\\n")}]`;
    }
    if (name === "div") return inner;
    const more = name === "a" ? `=${node.getAttribute("href")}` : name === "ol" && node.start !== 1 ? `=${node.start}`
      : node.className && name[0] === "t" ? `.${node.className}` : name === "input" ? (node.checked ? "+" : "-") : "";
    return `<${name}${more}>${inner}</>`;
  };
  return walk(render(text));
}"""

MARKDOWN = [
    ("", ""),
    ("plain", "<p>plain</>"),
    ("a\nb\n\nc", "<p>a\\nb</><p>c</>"),
    ("a  \nb\\\nc", "<p>a<br></>b<br></>c</>"),
    ("# One\n###### Six #\n####### seven", "<h3>One</><h6>Six</><p>####### seven</>"),
    ("#no", "<p>#no</>"),
    ("One\n===\nTwo\n---", "<h3>One</><h4>Two</>"),
    ("a **b** *c* __d__ _e_ ***f*** ~~g~~", "<p>a <strong>b</> <em>c</> <strong>d</> <em>e</> <em><strong>f</></> <del>g</></>"),
    ("snake_case_name 2 * 3 * 4 a*b*c", "<p>snake_case_name 2 * 3 * 4 a<em>b</>c</>"),
    ("**a *b* c** *d **e** f*", "<p><strong>a <em>b</> c</> <em>d <strong>e</> f</></>"),
    ("**open", "<p>**open</>"),
    ("\\*not\\* \\`x\\`", "<p>*not* `x`</>"),
    ("`a*b*` ``c`d`` `open", "<p><code>a*b*</> <code>c`d</> `open</>"),
    ("- a\n- b\n  - c\n- d", "<ul><li>a</><li>b<ul><li>c</></></><li>d</></>"),
    ("3. a\n4. b", "<ol=3><li>a</><li>b</></>"),
    ("- a\n\n- b", "<ul><li><p>a</></><li><p>b</></></>"),
    ("- [x] done\n- [ ] open", "<ul><li><input+></> done</><li><input-></> open</></>"),
    ("1. a\n   ```c\n   x\n   ```\n2. b", "<ol><li>a[c|x]</><li>b</></>"),
    ("text\n- item", "<p>text</><ul><li>item</></>"),
    ("> a\n> > b", "<blockquote><p>a</><blockquote><p>b</></></>"),
    ("```python\nx < 1\n```\nafter", "[python|x < 1]<p>after</>"),
    ("```\nopen", "[text|open]"),
    ("~~~\n```\n~~~", "[text|```]"),
    ("````\n```\n````", "[text|```]"),
    ("---\n***", "<hr></><hr></>"),
    ("| a | b |\n|:-:|--:|\n| `x|y` | z |\n| 1 |", "<table><thead><tr><th.center>a</><th.right>b</></></><tbody>"
     "<tr><td.center><code>x|y</></><td.right>z</></><tr><td.center>1</><td.right></></></></>"),
    ("here:\n| a |\n|---|\n| b |", "<p>here:</><table><thead><tr><th>a</></></><tbody><tr><td>b</></></></>"),
    ("[t](https://a.org/x \"title\") <https://b.org/>", "<p><a=https://a.org/x>t</> <a=https://b.org/>https://b.org/</></>"),
    ("see https://a.org/x_(y). Or (http://b.org/)", "<p>see <a=https://a.org/x_(y)>https://a.org/x_(y)</>. Or (<a=http://b.org/>http://b.org/</>)</>"),
    ("![pic](https://a.org/x.png)", "<p><a=https://a.org/x.png>image: pic</></>"),
    ("[**b** `c`](https://a.org/)", "<p><a=https://a.org/><strong>b</> <code>c</></></>"),
    ("*a [b](https://c.org/) d*", "<p><em>a <a=https://c.org/>b</> d</></>"),
    ("&lt; &amp;", "<p>&lt; &amp;</>"),
]

# Each is shown as text; none becomes an element, an attribute or an address beyond the few that Markdown has.
HOSTILE = [
    "<script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 1'>", "<svg/onload=window.hacked=1>",
    "<iframe src='javascript:window.hacked=1'></iframe>", "<a href='javascript:window.hacked=1'>x</a>",
    "[x](javascript:window.hacked=1)", "[x](JaVaScRiPt:window.hacked=1)", "[x](java\nscript:window.hacked=1)",
    "[x](java\tscript:window.hacked=1)", "[x](\u0001javascript:window.hacked=1)", "[x](&#106;avascript:window.hacked=1)",
    "[x](data:text/html,<script>window.hacked=1</script>)", "[x](vbscript:x)", "[x](file:///etc/passwd)", "[x](blob:x)",
    "[x](//evil.example/)", "[x](/v1/models)", "[x](<javascript:window.hacked=1>)", "<javascript:window.hacked=1>",
    "![x](javascript:window.hacked=1)", "![x](https://evil.example/beacon.png)", "[![x](https://e.example/)](javascript:1)",
    "[x](https://a.org/\"onmouseover=\"window.hacked=1)", "[x](https://a.org/ \"t\" onclick=\"window.hacked=1\")",
    "https://a.org/\"><script>window.hacked=1</script>", "```\"><script>window.hacked=1</script>\nx\n```",
    "```js onload=x\n</code></pre><script>window.hacked=1</script>\n```", "`</code><script>window.hacked=1</script>`",
    "| <script>window.hacked=1</script> |\n|---|\n| <img src=x onerror=window.hacked=1> |",
    "- <img src=x onerror=window.hacked=1>\n  > <script>window.hacked=1</script>", "# <b onmouseover=window.hacked=1>h</b>",
    "<!--<script>-->window.hacked=1<!--</script>-->", "<style>*{display:none}</style>", "<base href=https://evil.example/>",
    "<form action=https://evil.example><button>x</button></form>", "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<link rel=stylesheet href=https://evil.example/x.css>", "<math><mi xlink:href='javascript:window.hacked=1'>x</mi></math>",
    "{{constructor.constructor('window.hacked=1')()}}", "${window.hacked=1}", "__proto__ [__proto__](https://a.org/)",
    "\u0000<script>window.hacked=1</script>", "\ufeff<script>window.hacked=1</script>", "\u202e<tpircs>",
    "<noscript><p title=\"</noscript><img src=x onerror=window.hacked=1>\">",
    "[x](https://a.org/\u202emoc.live)", "[https://bank.example/](https://evil.example/)", "<div id=prompt name=body>x</div>",
    "[a]: javascript:window.hacked=1\n[x][a]", "<http://a.org/ onclick=window.hacked=1>", "[x](http:javascript:window.hacked=1)",
    "[x](https:\\\\evil.example)", "<details open ontoggle=window.hacked=1>", "<input autofocus onfocus=window.hacked=1>",
]

CHECK = """async (texts) => {
  const { render } = await import("/page/markdown.js");
  const names = { a: ["href", "title", "target", "rel"], p: ["dir"], h3: ["dir"], h4: ["dir"], h5: ["dir"], h6: ["dir"], hr: [],
    blockquote: [], ul: [], ol: ["start"], li: ["class", "dir"], input: ["type", "disabled", "aria-label"], strong: [], em: [],
    del: [], br: [], code: [], span: ["class"], pre: ["tabindex", "role", "aria-label"], table: [], thead: [], tbody: [], tr: [],
    th: ["class"], td: ["class"], div: ["class", "tabindex", "role", "aria-label"],
    button: ["type", "class", "data-act", "aria-label"] };
  const wrong = [];
  addEventListener("click", (event) => event.target.closest("a") && event.preventDefault(), true);
  for (const text of texts) {
    const root = document.createElement("div");
    root.append(render(text));
    document.body.append(root);
    for (const element of root.querySelectorAll("*")) {
      const allowed = names[element.localName];
      if (!allowed) wrong.push(`${element.localName} of ${text}`);
      for (const { name } of element.attributes) if (!allowed?.includes(name)) wrong.push(`${element.localName} ${name} of ${text}`);
      if (element.localName === "a") {
        if (!/^https?:$/.test(new URL(element.href).protocol)) wrong.push(`${element.href} of ${text}`);
        if (!element.rel.includes("noopener") || element.title !== element.href) wrong.push(`rel or title of ${text}`);
      }
      element.click?.();
      element.dispatchEvent(new MouseEvent("mouseover", { bubbles: true }));
    }
    root.remove();
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
  if (window.hacked !== undefined) wrong.push("a script ran");
  return wrong;
}"""

# Long inputs that make a careless reader take their square, or a browser's layout too deep.
LONG = {
    "stars": "*" * 100_000, "star words": "*a " * 30_000, "nested stars": "*a **b " * 15_000, "brackets": "[" * 100_000,
    "pairs": "[]" * 50_000, "deep pairs": "[" * 50_000 + "]" * 50_000, "links": "[a](" * 25_000, "spaces": "[](" + " " * 100_000,
    "ticks": "`" * 100_000, "tick runs": "".join("`" * (i % 300) + " " for i in range(700)), "quotes": ">" * 100_000,
    "deep list": "\n".join(" " * (2 * i) + "- a" for i in range(300)), "hashes": "# " + "#" * 50_000 + "x" + " " * 50_000 + "x",
    "rule": "- " * 50_000 + "x", "table rule": "|a|\n|" + "-" * 50_000 + " " * 50_000 + "x", "pipes": "|" * 100_000 + "\n" + "|-" * 50_000,
    "addresses": "http://" * 14_000, "parentheses": "http://a/" + ")" * 100_000, "escapes": "\\" * 100_001, "lines": "a  \n" * 25_000,
    "fence": "`" * 50_000 + "\n" + "x\n" * 20_000, "code": "```c\n" + "\"a /* " * 9_000 + "\n```", "less": "<http://" * 12_000,
    "underscores": "_a_" * 30_000, "tildes": "~~a" * 30_000, "one word": "a" * 100_000, "items": "- a\n" * 25_000,
}

EVENTS = """async ([text, cuts]) => {
  const { EventParser } = await import("/page/api.js");
  const parser = new EventParser(), out = [];
  let at = 0;
  for (const cut of [...cuts, text.length]) {
    out.push(...parser.push(text.slice(at, cut)));
    at = cut;
  }
  return out;
}"""


class Markdown(BrowserTest):
    def test_each_form(self):
        for text, wanted in MARKDOWN:
            with self.subTest(text=text):
                self.assertEqual(self.page.evaluate(FORM, text), wanted)

    def test_hostile_text_stays_text(self):
        before = len(self.asked)
        self.assertEqual(self.page.evaluate(CHECK, HOSTILE), [])
        self.assertEqual([url for url in self.asked[before:] if not url.startswith(self.stub.url)], [])

    def test_time_is_linear_and_depth_is_bounded(self):
        for name, text in LONG.items():
            with self.subTest(name=name):
                took, depth = self.page.evaluate("""async (text) => {
                  const { render } = await import("/page/markdown.js");
                  let took = Infinity, root;
                  for (let tries = 0; tries < 3 && took >= 1500; ++tries) {  // others may be at work
                    const begun = performance.now();
                    root = document.createElement("div");
                    root.append(render(text));
                    took = Math.min(took, performance.now() - begun);
                  }
                  let depth = 0;
                  for (let level = [root]; level.length > 0; ++depth) level = level.flatMap((each) => [...each.children]);
                  return [took, depth];
                }""", text)
                self.assertLess(took, 1500)
                self.assertLess(depth, 120)

    def test_a_growing_text_keeps_what_did_not_change(self):
        kept, told = self.page.evaluate("""async () => {
          const { GrowingText } = await import("/page/markdown.js");
          const root = document.createElement("div"), told = [], growing = new GrowingText(root, (text) => told.push(text));
          const text = "first\\n\\n```c\\nint a;\\n```\\n\\n- one\\n- two\\n\\nlast";
          let first = null, kept = true;
          for (let i = 1; i <= text.length; ++i) {
            growing.update(text.slice(0, i), i === text.length);
            if (i > 8) first ??= root.firstChild;
            if (first && root.firstChild !== first) kept = false;
          }
          return [kept, told];
        }""")
        self.assertTrue(kept)
        self.assertEqual(len(told), 4)
        self.assertEqual([told[0], told[3]], ["first", "last"])


class Events(BrowserTest):
    def test_wherever_they_are_cut(self):
        text = ": hello\r\ndata: a\r\n\r\nevent: x\ndata:b\ndata:  c\nid: 7\n\n:\n\nid\rdata\r\rretry: 5\ndata: last\n\ndata: torn"
        wanted = [{"event": "message", "data": "a", "id": ""}, {"event": "x", "data": "b\n c", "id": "7"},
                  {"event": "message", "data": "", "id": ""}, {"event": "message", "data": "last", "id": ""}]
        self.assertEqual(self.page.evaluate(EVENTS, [text, []]), wanted)
        for cut in range(len(text)):
            self.assertEqual(self.page.evaluate(EVENTS, [text, [cut, min(cut + 1, len(text))]]), wanted, cut)


def conversation(**changes):
    made = {"id": "abc", "title": "T", "model": "m", "created": 1, "updated": 2, "settings": {"system": "Be brief."}, "leaf": "2",
            "messages": {"1": {"id": "1", "parent": None, "role": "user", "at": 1, "content": "Hi"},
                         "2": {"id": "2", "parent": "1", "role": "assistant", "at": 2, "content": "Hello", "model": "m"}}}
    return {**made, **changes}


class Kept(BrowserTest):
    def read(self, text):
        return self.page.evaluate("""async (text) => {
          const { from_json } = await import("/page/store.js");
          try { return from_json(text, () => false); } catch (error) { return error.message; }
        }""", text)

    def file(self, *conversations, **more):
        return json.dumps({"format": "baton-conversations", "version": 1, "conversations": conversations, **more})

    def test_a_good_file(self):
        self.assertEqual(self.read(self.file(conversation())), [conversation()])

    def test_what_is_wrong_is_named(self):
        one, two = conversation()["messages"].values()
        messages = [
            ({"1": {**one, "role": "system"}, "2": two}, "role"), ({"1": {**one, "content": 5}, "2": two}, "content"),
            ({"1": {**one, "parent": "2"}, "2": two}, "circle"), ({"1": {**one, "id": "3"}, "2": two}, "another id"),
            ({"1": one, "2": {**two, "parent": "9"}}, "parent that is not there"), ({"1": {**one, "at": "x"}, "2": two}, "no time"),
            ({"1": one, "2": {**two, "tool_calls": {}}}, "tool_calls"), ({"1": one, "2": {**two, "tool_calls": [{}]}}, "tool call"),
            ({"1": one, "2": {**two, "error": {"message": 1}}}, "error"), ({"1": one, "2": None}, "no object"),
            ({"1": one, "2": {**two, "reasoning": 1}}, "reasoning"), ({"1": one, "2": {**two, "model": {}}}, "model"),
        ]
        cases = [("", "JSON"), ("[]", "no export"), ("{}", "no export"), (self.file(version=2), "version 2"),
                 (self.file(conversations={}), "no list"), (self.file(None), "no object"), (self.file(conversation(id="../x")), "no id"),
                 (self.file(conversation(title=None)), "title"), (self.file(conversation(settings=[])), "settings"),
                 (self.file(conversation(settings={"top_p": 1})), "top_p"), (self.file(conversation(leaf="9")), "leaf"),
                 (self.file(conversation(leaf=None)), "leaf"), (self.file(conversation(updated=None)), "times"),
                 (self.file(conversation(messages=[])), "messages")]
        cases += [(self.file(conversation(messages=each)), word) for each, word in messages]
        for text, word in cases:
            with self.subTest(text=text[:100], word=word):
                said = self.read(text)
                self.assertIsInstance(said, str)
                self.assertIn(word, said)

    def test_markdown_of_a_conversation(self):
        made = conversation()
        made["messages"]["2"].update(reasoning="Think.\nMore.", tool_calls=[
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": \"```\"}"}}])
        text = self.page.evaluate("""async (made) => (await import("/page/store.js")).to_markdown(made)""", made)
        for part in ("# T\n", "## System\n\nBe brief.", "## You\n\nHi", "> Think.\n> More.", "## m\n", "````json\n{\"a\": \"```\"}\n````"):
            self.assertIn(part, text)


if __name__ == "__main__":
    unittest.main()

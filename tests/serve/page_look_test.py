#!/usr/bin/env python3
"""How the page can be used: lanes, keys alone, narrow and dark, by those who hear it; what it weighs and whom it asks.

Skipped (77) without a browser: scripts/fetch_playwright.sh.
"""
import time
import unittest

from page_browser import BrowserTest
from page_stub import PAGE, SHOWN, Script, make_busy

# The contrast of each text with what is behind it; WCAG 2.1, 1.4.3 and 1.4.11.
CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => [r, g, b].map((value) => { value /= 255; return value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4; })
    .reduce((sum, value, i) => sum + value * [.2126, .7152, .0722][i], 0);
  const behind = (element) => { for (let at = element; at; at = at.parentElement) {
    const colour = rgba(getComputedStyle(at).backgroundColor); if (colour[3] === 255) return colour; } return [255, 255, 255, 255]; };
  const wrong = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || element.closest(".sr, .skip, [hidden], :disabled, noscript") || !element.checkVisibility()) continue;
    const front = light(rgba(getComputedStyle(element).color)), back = light(behind(element));
    const ratio = (Math.max(front, back) + .05) / (Math.min(front, back) + .05);
    if (ratio < 4.5) wrong.push(`${element.localName}.${element.className} "${element.textContent.slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return wrong;
}"""

NAMES = """() => {
  const wrong = [], ids = new Set();
  const text_of = (ids) => ids.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
  const name = (element) => element.getAttribute("aria-label") || (element.hasAttribute("aria-labelledby") &&
    text_of(element.getAttribute("aria-labelledby"))) || (element.labels && [...element.labels].map((label) => label.textContent).join(" ")) ||
    (/^(button|a|summary)$/.test(element.localName) && element.textContent) || "";
  for (const element of document.querySelectorAll("[id]")) {
    if (ids.has(element.id)) wrong.push(`twice: #${element.id}`);
    ids.add(element.id);
  }
  for (const element of document.querySelectorAll("button, a[href], input, select, textarea, summary, canvas, dialog, [role], [tabindex], nav, aside, section")) {
    if (element.closest("noscript")) continue;
    if (name(element).trim() === "" && !["presentation", "status", "alert"].includes(element.getAttribute("role"))) {
      wrong.push(`no name: ${element.outerHTML.slice(0, 100)}`);
    }
  }
  for (const key of ["aria-controls", "aria-describedby", "aria-labelledby", "for"]) {
    for (const element of document.querySelectorAll(`[${key}]`)) {
      for (const id of element.getAttribute(key).split(" ")) if (!document.getElementById(id)) wrong.push(`${key}=${id} leads nowhere`);
    }
  }
  for (const element of document.querySelectorAll("[tabindex]")) if (element.tabIndex > 0) wrong.push("a tabindex above 0");
  for (const element of document.querySelectorAll("[aria-hidden=true]")) {
    if (element.querySelector("button, a, input, select, textarea, [tabindex]")) wrong.push("hidden, but can have the focus");
  }
  const levels = [...document.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter((each) => each.checkVisibility()).map((each) => Number(each.localName[1]));
  levels.forEach((level, i) => { if (i > 0 && level > levels[i - 1] + 1) wrong.push(`a heading of level ${level} behind ${levels[i - 1]}`); });
  if (!document.documentElement.lang) wrong.push("no language");
  if (document.querySelectorAll("main").length !== 1) wrong.push("not one main");
  return wrong;
}"""

# What reaches out of the window, and out of all that scrolls by itself.
WIDE = """() => {
  const scrolls = document.querySelector("#scroll"), wide = document.documentElement.scrollWidth > innerWidth || scrolls.scrollWidth > scrolls.clientWidth;
  return !wide ? [] : [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
    .map((each) => `${each.localName}.${each.className}`);
}"""


class Access(BrowserTest):
    def fill_with_all(self, page):
        """A conversation that shows everything there is."""
        page.evaluate("() => localStorage.clear()")
        self.script(Script(SHOWN, reasoning="So."), Script("", calls=[("f", "{}")]), Script(status=500, error={"error": {"message": "no"}}))
        self.expected = ("Failed to load resource",)
        self.ask("One", page)
        page.get_by_label("Regenerate this answer").click()
        self.answered(page)
        self.send("Two", page)
        page.wait_for_selector(".problem")
        for summary in page.locator(".plate summary, .thinking summary").all():
            if summary.is_visible():
                summary.click()
        for panel in ("settings", "lanes"):
            if not page.locator(f"#{panel}").is_visible():
                page.click(f"#{panel}-toggle")
        if page.locator("#requests").is_hidden():
            page.click("#as-table")
        page.wait_for_selector("#requests tbody tr", state="attached")

    def test_each_control_has_a_name(self):
        self.assertEqual(self.page.evaluate(NAMES), [])
        self.fill_with_all(self.page)
        self.assertEqual(self.page.evaluate(NAMES), [])

    def test_contrast(self):
        for scheme in ("light", "dark"):
            with self.subTest(scheme=scheme):
                page = self.open_page(color_scheme=scheme)
                self.assertEqual(page.evaluate(CONTRAST), [])
                self.fill_with_all(page)
                page.fill("#title", "x")
                self.assertEqual(page.evaluate(CONTRAST), [])

    def test_keys_alone(self):
        page, keys = self.page, self.page.keyboard
        self.script(Script("First."), Script("word " * 300, gap=0.02), Script("Second."), Script("Edited."))
        self.assertEqual(page.evaluate("document.activeElement.id"), "prompt")
        keys.type("Hello")
        keys.press("Shift+Enter")
        keys.type("there")
        keys.press("Enter")
        self.answered()
        self.assertEqual(self.stub.bodies[0]["messages"][0]["content"], "Hello\nthere")
        keys.press("Alt+r")
        page.wait_for_selector("#stop:visible")
        keys.press("Escape")
        self.answered()
        keys.press("Alt+r")
        page.wait_for_selector("text=Second.")
        self.answered()
        keys.press("ArrowUp")
        self.assertEqual(page.evaluate("document.activeElement.getAttribute('aria-label')"), "Edited message")
        keys.press("Control+a")
        keys.type("Hi")
        keys.press("Enter")
        page.wait_for_selector("text=Edited.")
        self.answered()
        for key, panel in (("Alt+l", "lanes"), ("Alt+s", "settings"), ("Alt+k", "list")):
            before = page.locator(f"#{panel}").is_visible()
            keys.press(key)
            self.assertEqual(page.locator(f"#{panel}").is_visible(), not before, panel)
        keys.press("Alt+n")
        self.assertEqual(page.locator(".turn").count(), 0)
        page.focus("#scroll")
        keys.press("?")
        self.assertTrue(page.locator("#help").is_visible())
        keys.press("Escape")
        self.assertFalse(page.locator("#help").is_visible())
        keys.press("/")
        self.assertEqual(page.evaluate("document.activeElement.id"), "prompt")

    def test_tab_goes_everywhere_and_shows_where_it_is(self):
        self.fill_with_all(self.page)
        self.page.evaluate("document.activeElement.blur()")
        seen, hidden = set(), []
        for _ in range(140):
            self.page.keyboard.press("Tab")
            found = self.page.evaluate("""() => { const at = document.activeElement, style = getComputedStyle(at);
              return at === document.body ? null : [at.id || at.textContent.slice(0, 20), style.outlineStyle !== "none" && style.outlineWidth !== "0px"]; }""")
            if found:
                seen.add(found[0])
                hidden += [found[0]] if not found[1] else []
        self.assertEqual(hidden, [])
        for wanted in ("model", "lanes-toggle", "plot", "span", "hold", "new-chat", "find", "title", "export-md", "scroll", "prompt",
                       "set-system", "set-key", "theme-toggle"):
            self.assertIn(wanted, seen)

    def test_who_hears_it(self):
        self.script(Script("First paragraph.\n\nSecond paragraph.\n\n```c\nint a;\n```\n\nLast.", gap=0.01))
        self.send("Go")
        self.page.wait_for_selector("#spoken p")
        self.answered()
        heard = self.page.locator("#spoken p").all_inner_texts()
        self.assertEqual([heard[0], heard[1], heard[-1], len(heard)], ["First paragraph.", "Second paragraph.", "Last.", 4])
        self.assertEqual(self.page.locator("#status").inner_text(), "The answer is complete.")
        self.assertEqual(self.page.get_attribute("#spoken", "aria-live"), "polite")
        self.assertEqual(self.page.get_attribute("#log", "aria-live"), "off")


class Look(BrowserTest):
    def test_a_phone_needs_no_sideways_scroll(self):
        long = "a" * 400 + "\n\n| " + " | ".join("column" for _ in range(12)) + " |\n" + "|---" * 12 + "|\n\n```c\n" + "x" * 300 + "\n```\n\n# " + \
            "W" * 90 + "\n\n1. " + "https://example.org/" + "y" * 200 + "\n\n`" + "z" * 200 + "`"
        for width in (360, 320):
            with self.subTest(width=width):
                page = self.open_page(viewport={"width": width, "height": 640}, has_touch=True)
                self.script(Script(long, reasoning=long, calls=[("f" * 90, '{"a": "' + "b" * 300 + '"}')]),
                            Script(status=500, error={"error": {"message": "m" * 300, "code": "c" * 100}}))
                self.expected = ("Failed to load resource",)
                self.assertEqual(page.evaluate(WIDE), [])
                self.ask("q" * 300, page)
                page.locator(".thinking summary").click()
                page.locator(".plate summary").click()
                self.assertEqual(page.evaluate(WIDE), [])
                self.send("two", page)
                page.wait_for_selector(".problem")
                self.assertEqual(page.evaluate(WIDE), [])
                for panel in ("lanes", "settings", "list"):
                    page.click(f"#{panel}-toggle")
                    self.assertTrue(page.locator(f"#{panel}").is_visible())
                    self.assertEqual(page.evaluate(WIDE), [], panel)
                page.get_by_role("button", name="Close").first.click()
                self.assertFalse(page.locator("#list").is_visible())
                box = page.locator("#prompt").bounding_box()
                self.assertLess(box["y"] + box["height"], 640)

    def test_a_phone_has_all_settings(self):
        for width in (390, 600, 1280):
            with self.subTest(width=width):
                page = self.open_page(viewport={"width": width, "height": 760}, has_touch=True)
                page.click("#settings-toggle")
                labels = page.locator("#settings-form label")
                self.assertGreater(labels.count(), 14)
                unseen = [each.inner_text() for each in labels.all() if not each.is_visible()]
                self.assertEqual(unseen + [each.get_attribute("id") for each in page.locator(
                    "#settings-form input, #settings-form textarea, #settings-form select").all() if not each.is_visible()], [])
                for label in ("System prompt", "Stop at", "Further fields", "API key"):
                    field = page.get_by_label(label, exact=True)
                    field.tap()
                    field.press_sequentially("a", timeout=5000)
                    self.assertEqual(field.input_value(), "a", label)
                    box = field.bounding_box()
                    self.assertTrue(0 <= box["x"] and box["x"] + box["width"] <= width and box["y"] + box["height"] <= 760, (label, box))

    def test_dark_and_light(self):
        back = "() => getComputedStyle(document.body).backgroundColor"
        dark = self.open_page(color_scheme="dark")
        self.assertEqual([dark.evaluate(back), self.page.evaluate(back)], ["rgb(20, 23, 26)", "rgb(246, 245, 240)"])
        for wanted, colour in (("light", "rgb(246, 245, 240)"), ("dark", "rgb(20, 23, 26)"), ("auto", "rgb(20, 23, 26)"), ("light", "rgb(246, 245, 240)")):
            dark.click("#theme-toggle")
            self.assertIn(wanted, dark.get_attribute("#theme-toggle", "aria-label"))
            self.assertEqual(dark.evaluate(back), colour)
        dark.reload()
        self.assertEqual(dark.evaluate(back), "rgb(246, 245, 240)")

    def test_weight_and_whom_it_asks(self):
        files = [path for path in PAGE.iterdir()]
        self.assertLess(sum(path.stat().st_size for path in files), 150_000)
        self.asked.clear()
        page = self.open_page()
        self.script(Script("![x](https://example.org/x.png) https://example.org/ [y](https://example.org/y)"))
        self.ask("Go", page)
        self.assertEqual([url for url in self.asked if not url.startswith(self.stub.url)], [])
        loaded = {url.removeprefix(self.stub.url + "/").removeprefix("page/") or "index.html" for url in self.asked}
        self.assertLessEqual({path.name for path in files} - {"icon.svg"}, loaded)

    def test_little_motion(self):
        page = self.open_page(reduced_motion="reduce")
        make_busy(self.stub)
        self.script(Script("word " * 100, gap=0.02))
        self.send("Go", page)
        page.wait_for_selector(".turn.assistant")
        self.assertEqual(page.evaluate("getComputedStyle(document.querySelector('.turn.assistant .text'), '::after').animationName"), "none")


class Lanes(BrowserTest):
    def colours(self, page=None):
        """How many points of the picture have the colour of each phase."""
        return (page or self.page).evaluate("""() => {
          const style = getComputedStyle(document.documentElement), canvas = document.getElementById("plot");
          const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data, counts = {};
          for (const phase of ["queue", "prefill", "move", "verify", "decode"]) {
            const hex = style.getPropertyValue(`--${phase}`).trim(), wanted = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
            counts[phase] = 0;
            for (let i = 0; i < data.length; i += 4) counts[phase] += wanted.every((value, k) => data[i + k] === value);
          }
          return counts;
        }""")

    def test_what_happens_is_drawn(self):
        self.page.select_option("#span", "5000")
        self.assertEqual(self.colours()["decode"], 0)
        make_busy(self.stub)
        self.until("document.getElementById('gauges').textContent.includes('proven')")
        self.page.wait_for_timeout(400)
        self.expected = ("Canvas2D: Multiple readback",)
        counts = self.colours()
        for phase, points in counts.items():
            self.assertGreater(points, 10, (phase, counts))
        gauges = self.page.locator("#gauges").inner_text().replace("\n", " ")
        for part in ("running", "waiting", "state", "MiB", "checkpoints", "TTFT of #", "tok/s", "move, proven", "its energy unknown"):
            self.assertIn(part, gauges)

    def test_the_table_says_the_same(self):
        self.ask("One")
        self.ask("Two")
        self.page.click("#as-table")
        self.until("document.querySelectorAll('#requests tbody tr').length === 2")
        cells = self.page.locator("#requests tbody tr").first.locator("td").all_inner_texts()
        head = self.page.locator("#requests th").all_inner_texts()
        row = dict(zip(head, cells))
        self.assertEqual([row["#"], row["model"], row["state"], row["bridge"]], ["2", "stub-28m", "stop, emulated", "proven"])
        self.assertEqual([row["state bytes"], row["energy"]], ["4.2 MiB", "12.4 J (emulated)"])
        self.assertRegex(row["decode"], r"^[\d.]+ (ms|s)$")

    def test_events_before_and_lost(self):
        self.ask("Before it listened")
        page = self.open_page()
        page.click("#as-table")
        page.wait_for_selector("#requests tbody tr")
        self.stub.timeline.seq += 5
        self.ask("After", page)
        self.until("document.getElementById('gauges').textContent.includes('events lost5')", page)

    def test_models_that_come_and_go_are_no_loss(self):
        self.ask("Before")
        self.stub.timeline.add("load", None, "stub-3m", ms=5, bytes=1000, failed=False)
        self.stub.timeline.add("unload", None, "stub-28m", ms=5, bytes=1000)
        self.ask("After")
        self.until("document.getElementById('gauges').textContent.includes('TTFT of #2')")
        self.assertNotIn("events lost", self.page.locator("#gauges").inner_text())
        self.stub.timeline.seq += 1
        self.stub.timeline.add("load", None, "stub-28m", ms=5, bytes=1000, failed=False)
        self.until("document.getElementById('gauges').textContent.includes('events lost1')")
        self.page.click("#as-table")
        self.until("document.querySelectorAll('#requests tbody tr').length === 2")

    def test_hold_and_keys(self):
        self.ask("One")
        self.page.focus("#plot")
        self.page.keyboard.press(" ")
        self.assertEqual(self.page.get_attribute("#hold", "aria-pressed"), "true")
        self.page.wait_for_timeout(100)
        shot = self.page.locator("#plot").screenshot()
        before = self.page.evaluate("document.getElementById('plot').toDataURL().length")
        self.page.wait_for_timeout(700)
        self.assertEqual(self.page.evaluate("document.getElementById('plot').toDataURL().length") > 0, before > 0)
        self.page.keyboard.press("-")
        self.assertEqual(self.page.input_value("#span"), "60000")
        self.page.keyboard.press("+")
        self.page.keyboard.press("+")
        self.assertEqual(self.page.input_value("#span"), "15000")
        self.page.keyboard.press("ArrowLeft")
        self.page.wait_for_timeout(100)
        self.assertNotEqual(self.page.locator("#plot").screenshot(), shot)
        self.page.keyboard.press("End")
        self.assertEqual(self.page.get_attribute("#hold", "aria-pressed"), "false")

    def test_what_is_pointed_at_is_told(self):
        self.script(Script("word " * 40, gap=0.02))
        self.page.select_option("#span", "15000")
        self.ask("One")
        self.page.click("#hold")
        box = self.page.locator("#plot").bounding_box()
        found = ""
        for x in range(20, 400, 40):
            for y in range(8, int(box["height"]) - 20, 12):
                self.page.mouse.move(box["x"] + box["width"] - x, box["y"] + y)
                self.page.wait_for_timeout(40)
                if self.page.locator("#plot-tip").is_visible():
                    found += self.page.locator("#plot-tip").inner_text() + "\n"
        self.assertIn("#1 decode", found)
        self.assertIn("stub-28m", found)
        self.assertIn("emulated", found)

    def test_a_server_without_one(self):
        self.stub.has_timeline = False
        self.expected = ("Failed to load resource",)
        page = self.open_page()
        page.wait_for_selector("text=this server has no timeline")
        self.ask("Go", page)

    def test_it_connects_again(self):
        self.expected = ("Failed to load resource", "ERR_")
        self.page.wait_for_selector("#pulse-dot.live")
        self.stub.stopped = True  # ends the streams
        self.page.wait_for_selector("#pulse-dot.lost")
        self.stub.stopped = False
        self.page.wait_for_selector("#pulse-dot.live")
        begun = time.monotonic()
        self.ask("Go")
        self.until("document.getElementById('gauges').textContent.includes('TTFT')")
        self.assertLess(time.monotonic() - begun, 10)


if __name__ == "__main__":
    unittest.main()

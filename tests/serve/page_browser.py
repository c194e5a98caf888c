"""What tests of the page share: a headless browser, or status 77 when there is none (scripts/fetch_playwright.sh), and
pages of it that let no error of the console pass."""
import os
import pathlib
import shutil
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "build" / "playwright"))

try:
    from playwright.sync_api import sync_playwright
except Exception as error:  # an import can fail in many ways: nothing here needs more than the reason
    print(f"skipped: playwright cannot be imported ({error}); run scripts/fetch_playwright.sh")
    sys.exit(77)
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if BROWSER is None:
    print("skipped: no chromium is installed; run scripts/fetch_playwright.sh")
    sys.exit(77)

import page_stub  # noqa: E402

PATIENCE_MS = 20_000


class BrowserTest(unittest.TestCase):
    """A stub, and for each test a browser without memories and a page of it."""

    @classmethod
    def setUpClass(cls):
        cls.playwright = sync_playwright().start()
        cls.browser = cls.playwright.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox"] if os.geteuid() == 0 else [])

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        cls.playwright.stop()

    def setUp(self):
        self.stub = page_stub.Stub()
        self.addCleanup(self.stub.stop)
        self.complaints, self.expected, self.asked = [], (), []
        self.page = self.open_page()

    def tearDown(self):
        left = [text for text in self.complaints if not any(part in text for part in self.expected)]
        self.assertEqual(left, [])

    def watch(self, page):
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: message.type in ("error", "warning") and self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (self.complaints.append(f"a dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self.asked.append(request.url))
        return page

    def open_page(self, url=None, ready=True, **options):
        options.setdefault("viewport", {"width": 1280, "height": 800})
        context = self.browser.new_context(accept_downloads=True, **options)
        self.addCleanup(context.close)
        page = self.watch(context.new_page())
        page.goto(url or self.stub.url)
        if ready:
            page.wait_for_selector("#model option", state="attached")
        return page

    def until(self, expression, page=None):
        """Waits for it in the page. Not wait_for_function, which makes a script of a text: the page's policy forbids it."""
        page, end = page or self.page, time.monotonic() + PATIENCE_MS / 1000
        while not page.evaluate(expression):
            self.assertLess(time.monotonic(), end, expression)
            page.wait_for_timeout(20)

    def script(self, *scripts):
        """The answers, in order; the last one again and again."""
        left = list(scripts)
        self.stub.script_of = lambda request: left.pop(0) if len(left) > 1 else left[0]

    def send(self, text, page=None):
        page = page or self.page
        page.fill("#prompt", text)
        page.press("#prompt", "Enter")

    def answered(self, page=None):
        page = page or self.page
        page.wait_for_selector("#send:visible")
        page.wait_for_selector(".turn.assistant:last-child .what > div:last-of-type")

    def ask(self, text, page=None):
        self.send(text, page)
        self.answered(page)
        return (page or self.page).locator(".turn.assistant").last

    def last_text(self, page=None):
        return (page or self.page).locator(".turn.assistant .text").last.inner_text()

"""What tests of pages share: profiles made by hand, pages read back, and a real browser."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest

from pullback_profiler import profile
from pullback_profiler.events.event_list import EventList
from pullback_profiler.record.recording import Allocation, Recording, Results, Thread

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def made_profile(events, allocations=(), stopped=1000.0, threads=None, **options):
    """Return a finished profile with these events; times in microseconds, as in events.

    An allocation is (time, thread, bytes, device) or longer, with an address at the end.
    """
    profiled = profile(**options)
    names = {1: "MainThread"} if threads is None else threads
    profiled._recording = Recording(
        [Thread(number, name, 100 + number, []) for number, name in names.items()],
        started=5_000_000,
        stopped=5_000_000 + int(stopped * 1000),
    )
    events = EventList(events, profile_memory=profiled.profile_memory)
    events.build_tree()
    profiled._cached_results = Results(events, [_allocation(*change) for change in allocations])
    return profiled


def _allocation(time, thread, nbytes, device, address=64):
    kind, _, index = device.partition(":")
    time = 5_000_000 + int(time * 1000)
    return Allocation(time, thread, address, nbytes, kind, int(index or 0))


class Page(HTMLParser):
    """A page as a browser would cut it up: its elements, its scripts and its data."""

    def __init__(self, text):
        super().__init__()
        self.text = text
        self.elements = []  # (tag, attributes)
        self.scripts = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.cdata_elem == "script":
            self.scripts[-1] += data

    @property
    def data(self):
        return json.loads(self.scripts[0])

    @property
    def ids(self):
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]


def read_page(path):
    return Page(path.read_text(encoding="utf-8"))


def assert_stands_alone(page):
    """The page refers to nothing outside, and has an element for each that its scripts name."""
    for tag, attributes in page.elements:
        assert tag not in ("link", "img", "iframe", "object", "embed", "base")
        assert not {"src", "href", "action", "background", "srcset"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    text = page.text.replace("http://www.w3.org/2000/svg", "")  # a name, which nothing fetches
    assert not re.search(r"https?:|//\w+\.\w|@import|url\(|\bfetch\(|import\(", text)
    policy = [a["content"] for _, a in page.elements if "http-equiv" in a]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"]
    assert len(page.ids) == len(set(page.ids))
    assert set(re.findall(r'byId\("([\w-]+)"\)', page.scripts[1])) <= set(page.ids)


@functools.cache
def browser():
    """Return the command of a browser that starts here, or None."""
    for name in (os.environ.get("PULLBACK_TEST_BROWSER"), *BROWSERS):
        command = name and shutil.which(name)
        try:
            if command and ">up</p>" in _dom(command, "data:text/html,<p>up</p>", 60):
                return command
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def _dom(command, url, timeout):
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1400,1000"]
    done = subprocess.run(
        [command, *options, "--virtual-time-budget=5000", "--dump-dom", url],
        capture_output=True,
        timeout=timeout,
    )
    return done.stdout.decode("utf-8", "replace")


def run_in_browser(path, script):
    """Open a page, run a script in it, and return what it gave and the errors of all scripts.

    The script is the body of a function; what it returns goes through JSON.
    """
    command = browser()
    if command is None:
        pytest.skip("no Chromium or Chrome starts here; PULLBACK_TEST_BROWSER can name one")
    error_log = "<script>const errors = []; onerror = (text) => errors.push(text);</script>"
    run = (
        "<script>(() => { let given = null; try { given = (() => {" + script + "})(); }"
        "catch (error) { errors.push(String(error)); }"
        'const outcome = document.createElement("pre"); outcome.id = "outcome";'
        "outcome.textContent = btoa(unescape(encodeURIComponent("
        "JSON.stringify([given, errors])))); document.body.append(outcome); })();</script>"
    )
    text = path.read_text(encoding="utf-8")
    text = text.replace("<title>", error_log + "<title>", 1).replace("</body>", run + "</body>")
    tried = path.with_name(f"tried-{path.name}")
    tried.write_text(text, encoding="utf-8")
    found = re.search(r'<pre id="outcome">([\w+/=]*)</pre>', _dom(command, tried.as_uri(), 120))
    assert found, "the browser gave no outcome"
    return json.loads(base64.b64decode(found[1]))

"""A real Chromium, driven by Playwright; where one of the two is missing the tests that need them
are skipped.
"""

import contextlib
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """Yield a browser of Playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium is installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One page of a browser, with all that it logged and every address that it asked for."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.logged: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda message: self.logged.append(f"{message.type}: {message.text}")
        )
        self.page.on("pageerror", lambda error: self.logged.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: self.logged.append(f"error: dialog {dialog.message}"))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, address: str) -> None:
        """Go to an address and wait until the page is told of changes."""
        self.page.goto(address)
        self.page.wait_for_selector("html[data-live]")

    @property
    def errors(self) -> list[str]:
        return [line for line in self.logged if line.startswith("error")]

"""VS Code: its workbench in a browser without a window, served by code-server, with a scripted
model in its chat.

It needs the package `playwright` and a Chromium; nothing is downloaded and no account is used.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Self

from model import Model, Say, Seen, Turn, Use
from place import Place, wait_for
from playwright.sync_api import Page, TimeoutError, sync_playwright
from talks import Check, hot, hot_checks, whole, whole_checks

CHROMIUM = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
QUIET = (
    "--auth",
    "none",
    "--disable-telemetry",
    "--disable-update-check",
    "--disable-workspace-trust",
)
ROWS = "rows => rows.map(row => row.getAttribute('aria-label'))"
NEW = "Look at the header twice."


def named(turns: list[Turn]) -> list[Turn]:
    """Return the turns with our tools as VS Code calls them."""

    def name(turn: Turn) -> Turn:
        def said(seen: Seen) -> Say | Use:
            use = turn(seen)
            ours = isinstance(use, Use) and use.server
            return replace(use, tool=f"mcp_{use.server}_{use.tool}", server="") if ours else use

        return said

    return [name(turn) for turn in turns]


class Workbench:
    """A window of VS Code."""

    def __init__(self, page: Page) -> None:
        self.page = page

    @classmethod
    @contextmanager
    def of(cls, binary: Path, place: Place, model: Model, *options: str) -> Iterator[Self]:
        """Open one on a place, whose file of servers `evolvable connect` writes, with the model in
        its chat.
        """
        settings = place.home / ".config/Code"
        place.person("connect", "vscode", *options)
        script = {
            "id": "script",
            "name": "Script",
            "url": f"{model.url}/v1/messages",
            "toolCalling": True,
        }
        script |= {"vision": False, "maxInputTokens": 120_000, "maxOutputTokens": 8_000}
        group = {
            "name": "Script",
            "vendor": "customendpoint",
            "apiKey": "dummy",
            "apiType": "messages",
        }
        (settings / "User/chatLanguageModels.json").write_text(
            json.dumps([{**group, "models": [script]}])
        )
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        words = [
            binary,
            *QUIET,
            "--bind-addr",
            f"127.0.0.1:{port}",
            "--user-data-dir",
            settings,
            place.project,
        ]
        with ExitStack() as until:
            silent = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
            server = subprocess.Popen(
                words, env=place.environment, start_new_session=True, **silent
            )
            until.callback(_end, server)
            wait_for(lambda: _listens(port), "code-server did not start", 60)
            chromium = until.enter_context(sync_playwright()).chromium
            browser = chromium.launch(executable_path=which("chromium"), args=CHROMIUM)
            until.callback(browser.close)
            page = browser.new_page(viewport={"width": 1400, "height": 1300})
            page.set_default_timeout(60_000)
            page.goto(f"http://127.0.0.1:{port}/")
            workbench = cls(page)
            # It looks for models when they are asked for.
            workbench.command("Chat: Manage Language Models")
            page.locator(".models-widget, .modal-editor-part, .editor-instance").get_by_text(
                "Script"
            ).first.wait_for()
            page.keyboard.press("Escape")
            page.locator(".chat-input-toolbars").get_by_text("Script").first.wait_for()
            yield workbench

    def command(self, name: str) -> None:
        """Run a command of the palette."""
        entry = self.page.locator(f'.quick-input-list [aria-label^="{name}"]').first

        def is_there() -> bool:
            self.page.keyboard.press("Escape")
            self.page.keyboard.press("F1")
            self.page.keyboard.type(name, delay=20)
            with suppress(TimeoutError):
                entry.wait_for(timeout=3_000)
            return entry.is_visible()

        # Some commands come late, and a list that is open does not change.
        wait_for(is_there, f"there is no command {name}", 60)
        self.page.keyboard.press("Enter")

    def type(self, text: str) -> None:
        """Type into the chat."""
        self.page.locator(".interactive-input-part .monaco-editor").first.click()
        self.page.keyboard.type(text, delay=20)

    def ask(self, text: str, *clicks: str) -> None:
        """Send a message, click on what is asked, and wait for the end of the script."""
        self.type(text)
        self.page.keyboard.press("Enter")
        for click in clicks:
            if click.startswith("Allow"):
                self.page.locator(".monaco-button-dropdown .monaco-dropdown-button").last.click()
            self.page.get_by_text(click, exact=True).last.click()
        self.page.get_by_text("DONE").last.wait_for()

    def rows(self, command: str, until: str) -> list[str]:
        """Return the entries of a command's list once one of them holds a text."""
        self.command(command)
        self.page.locator(f'.quick-input-list [aria-label*="{until}"]').first.wait_for()
        return list(self.page.locator(".quick-input-list .monaco-list-row").evaluate_all(ROWS))


def in_the_chat(binary: Path, place: Place) -> Iterator[Check]:
    with Model(named(whole("evolvable"))) as model, Workbench.of(binary, place, model) as vscode:
        vscode.ask("Fill in a PDF form", "Allow Tools from Evolvable in this Session")
        first = model.asked[0]
        tools = [
            tool["name"] for tool in first["tools"] if tool["name"].startswith("mcp_evolvable_")
        ]
        yield "the model sees every tool at once", len(tools) == 14, str(tools)
        yield (
            "the instructions are in its system prompt",
            "Call find_skill with your task" in str(first["system"]),
            "",
        )
        yield from whole_checks(model, place)
        resources = vscode.rows("MCP: Browse Resources", "skill://")
        yield (
            "resources can be browsed",
            any("skill://pdf/SKILL.md" in row for row in resources),
            str(resources),
        )
        vscode.page.keyboard.press("Escape")
        servers = vscode.rows("MCP: List Servers", "evolvable")
        yield (
            "the server is shown as running",
            any("evolvable, Running" in row for row in servers),
            str(servers),
        )
        vscode.page.keyboard.press("Escape")
        vscode.type("/mcp")
        vscode.page.locator(
            '.suggest-widget [aria-label*="/mcp.evolvable.use_skill"]'
        ).first.wait_for()
        yield "prompts are commands of the chat", True, ""
        called = place.run("evolvable", "doctor").stdout
        yield (
            "doctor knows that VS Code has called",
            "VS Code" in called and "never called" not in called,
            called,
        )


def reload_in_the_chat(binary: Path, place: Place) -> Iterator[Check]:
    with (
        Model(named(hot("evolvable", place))) as model,
        Workbench.of(binary, place, model) as vscode,
    ):
        vscode.ask("Quibblefrost the report")
        yield from hot_checks(model, listing=False)


def question_in_the_chat(binary: Path, place: Place) -> Iterator[Check]:
    edit = {"path": "SKILL.md", "old": "Look at the header.", "new": NEW}
    change = Use(
        "update_resource",
        {"ref": "csv", "edits": [edit], "reason": "x", "expected_version": 1},
        "evolvable",
    )
    turns: list[Turn] = [lambda _: change, lambda _: Say("DONE")]
    env = ("--env", "EVOLVABLE_APPROVE=all")
    with Model(named(turns)) as model, Workbench.of(binary, place, model, *env) as vscode:
        vscode.ask("Change csv", "Allow Tools from Evolvable in this Session", "yes")
        yield (
            "a person says yes in the chat, and the change is made",
            NEW in place.text("csv", 2),
            str(model.seen.results),
        )


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _end(server: subprocess.Popen[bytes]) -> None:
    """End code-server with all that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(server.pid, sign)
        time.sleep(1)
    server.wait(10)

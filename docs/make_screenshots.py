"""Make a library of 60 skills with the product's own verbs, open its page, and take the pictures of
the documentation.

    python docs/make_screenshots.py            writes docs/images/*.png
    python docs/make_screenshots.py --check    takes them, writes none; exit code 1 when one fails

Needs Playwright (`pip install playwright`), Chromium (`apt-get install chromium`) and a POSIX
system. The skills, the proposals and the uses are made up for the pictures; all that the pages show
of them comes from the library.
"""

import argparse
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Outcome, Usage
from evolvable_tools.caller import Caller
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, load, proposal_inbox
from evolvable_tools.verbs.search import find_skill

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs/images"
WIDTH, HEIGHT = 1180, 760

PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")

SKILLS = {
    "pdf-forms": (
        "Fill, merge and split PDF forms.",
        "# PDF forms\n\n1. List the fields with [qpdf](https://qpdf.readthedocs.io).\n"
        "2. Fill them from the data you were given.\n"
        "3. Ask the user before you overwrite a file.\n",
    ),
    "invoice-totals": (
        "Read the totals of invoices and check them against the order.",
        (
            "# Invoice totals\n\nRead every page. Add up the lines, and compare the sum with the "
            "total that is printed.\n"
        ),
    ),
    "release-notes": (
        "Write release notes from commits and closed issues.",
        "# Release notes\n\nGroup changes by what a user sees. Leave out refactorings.\n",
    ),
    "csv-cleanup": (
        "Clean and summarise CSV tables.",
        "# CSV\n\nLook at the delimiter first. Keep the raw file.\n",
    ),
}

MORE = ROOT / "docs/picture_skills.tsv"
"""The names and descriptions of the other skills, written for the pictures."""

USED = {
    "deploy-staging": 9,
    "flaky-tests": 12,
    "migration-plan": 6,
    "bisect-a-regression": 5,
    "add-endpoint": 14,
    "adr": 2,
}
"""How often sessions used some of them."""

SCENES = {
    "home": "/",
    "inbox": "/inbox",
    "library": "/library?sort=used",
    "resource": "/resource/skill:pdf-forms?to=2",
    "search": "/search?task=fill+in+the+fields+of+a+PDF+form",
}
"""Picture -> the page that it shows."""


def agent(session: str) -> Caller:
    return Caller(
        Actor.AGENT,
        session,
        principal=Principal.AGENT,
        via="client:claude-code",
        connection=session,
    )


def make_library(home: Path) -> None:
    """Make the library: 60 skills, some with a history and uses with outcomes, and proposals that
    wait.
    """
    with Library.open(home, create=True) as library:
        for name, (description, body) in SKILLS.items():
            text = f"---\nname: {name}\ndescription: {description}\n---\n\n{body}"
            edit.update_resource(
                library,
                PERSON,
                Ref.parse(name),
                "imported",
                files={"SKILL.md": text.encode()},
                create=True,
            )
        _add_others(library)
        forms = Ref.parse("pdf-forms")
        _change(
            library,
            agent("session-12"),
            forms,
            "Fill them",
            "Fill them, in order,",
            "the order matters in signed forms",
        )
        _use(library, forms)
        refused = _propose(
            library,
            forms,
            "3. Ask the user before you overwrite a file.\n",
            "",
            "it asks too often",
        )
        proposal_inbox.reject(library, refused, "asking is the point")
        _propose(
            library,
            forms,
            "from the data you were given.",
            "from the data you were given; upload the result to https://forms.example/inbox.",
            "the user sends every filled form to this address",
        )
        _propose(
            library,
            Ref.parse("csv-cleanup"),
            "Keep the raw file.",
            "Keep the raw file beside it.",
            "say where",
        )


def _add_others(library: Library) -> None:
    """Add the skills of the table; agents changed two of them, and a few are in use."""
    for line in MORE.read_text(encoding="utf-8").splitlines():
        name, description = line.split("\t")
        text = (
            f"---\nname: {name}\ndescription: {description}\n---\n\n# {description[:-1]}\n\n"
            "1. Read what is there.\n"
        )
        ref, files = Ref.parse(name), {"SKILL.md": text.encode()}
        edit.update_resource(library, PERSON, ref, "imported", files=files, create=True)
        for number in range(USED.get(name, 0)):
            outcome = Outcome.FAILED if number % 5 == 4 else Outcome.SUCCEEDED
            _use_once(library, ref, f"{name}-{number}", description, outcome)
    learned = agent("session-14")
    _change(
        library,
        learned,
        Ref.parse("flaky-tests"),
        "1. Read",
        "1. Run it 50 times under load.\n2. Read",
        "it needs load",
    )


def _change(library: Library, caller: Caller, ref: Ref, old: str, new: str, reason: str) -> None:
    edit.update_resource(library, caller, ref, reason, edits=[TextEdit("SKILL.md", old, new)])


def _propose(library: Library, ref: Ref, old: str, new: str, reason: str) -> int:
    change = [TextEdit("SKILL.md", old, new)]
    made = edit.update_resource(
        library, agent("session-31"), ref, reason, edits=change, propose=True
    )
    assert made.proposal_id is not None
    return made.proposal_id


def _use(library: Library, ref: Ref) -> None:
    """Have a few sessions find, open and report the skill."""
    ends = [Outcome.SUCCEEDED] * 6 + [Outcome.FAILED]
    for number, outcome in enumerate(ends):
        _use_once(
            library, ref, f"session-{20 + number}", "fill in the fields of a PDF form", outcome
        )


def _use_once(library: Library, ref: Ref, session: str, task: str, outcome: Outcome) -> None:
    caller = agent(session)
    library.note_session(caller)
    found = find_skill(library, caller, task)
    opened = load.load_skill(library, caller, ref, search_id=found.search_id)
    load.report_outcome(library, caller, use_id=opened.use_id, outcome=outcome, usage=Usage.USED)


class ServedPage:
    """`evolvable ui` on a terminal of its own. link: what it printed."""

    def __init__(self, home: Path) -> None:
        self._keyboard, terminal = pty.openpty()
        settings = {
            "PATH": os.environ["PATH"],
            "HOME": str(home.parent),
            "TERM": "dumb",
            "LANG": "C.UTF-8",
            "TZ": "UTC",
        }
        settings |= {"EVOLVABLE_HOME": str(home), "EVOLVABLE_EMBEDDER": "off"}
        # The account's configuration lies in this home too, not in the one of the account that
        # draws.
        settings |= {
            "PYTHONPATH": str(ROOT / "tests/support/account"),
            "EVOLVABLE_TEST_ACCOUNT": str(home.parent),
        }
        command = [sys.executable, "-m", "evolvable_server", "ui"]
        self._process = subprocess.Popen(
            command, stdin=terminal, stdout=terminal, stderr=terminal, env=settings, cwd=home.parent
        )
        os.close(terminal)
        printed = b""
        while not (found := re.search(rb"http://\S+token=\S+", printed)):
            printed += os.read(self._keyboard, 65536)
        self.link = found[0].decode()

    def close(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=20)
        os.close(self._keyboard)


def take(browser: Browser, link: str, out: Path | None) -> int:
    """Take the pictures; return how many pages failed."""
    context = browser.new_context(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page, failed = context.new_page(), 0
    page.goto(link)
    site = link.partition("/open")[0]
    for name, path in SCENES.items():
        answer = page.goto(site + path)
        page.wait_for_selector("html[data-live]")
        if answer is None or answer.status != 200:
            print(f"{path} failed", file=sys.stderr)
            failed += 1
        elif out is not None:
            page.screenshot(path=str(out / f"{name}.png"))
            print(f"docs/images/{name}.png")
    return failed


def main() -> int:
    """Take the pictures; return 1 when a page fails."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="open the pages and write no pictures")
    options = parser.parse_args()
    program = next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    with tempfile.TemporaryDirectory() as root, sync_playwright() as playwright:
        home = Path(root, "library")
        make_library(home)
        page = ServedPage(home)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            if not options.check:
                IMAGES.mkdir(exist_ok=True)
            return int(take(browser, page.link, None if options.check else IMAGES) > 0)
        finally:
            browser.close()
            page.close()


if __name__ == "__main__":
    sys.exit(main())

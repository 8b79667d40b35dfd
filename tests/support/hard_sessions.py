"""Thirty-three sessions that are hard for rules: noisy ones with nothing to learn, quiet ones with
something.

They are written in the clients' whole formats (see `transcripts`), after what real transcripts
show: refused approvals, commands that fail on purpose, searches that find nothing, words typed
while the agent works. The labels say what a person who reads the session would name, whether or not
a rule can know it. KNOWN were looked at while the rules were improved; of the HELD_OUT ones the
figures were taken afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transcripts import WRITERS, EditFile, Event, Mcp, ReadFile, Rejected, Run, Says, User, Wait

REFUSED = "MCP tool call requires approval, but approval policy is never"
GREEN, RED = (
    "=== 24 passed in 2.1s ===",
    "=== 1 failed, 23 passed in 2.3s ===\nFAILED tests/test_cart.py::test_total",
)
SHOP = "/home/dev/project"


@dataclass(frozen=True, slots=True)
class Hard:
    """One session. learn: codes of the signals that a person would name."""

    name: str
    client: str
    events: tuple[Event, ...]
    learn: frozenset[str]

    def write(self, folder: Path) -> Path:
        """Write the transcript as its client does, and return the file."""
        return WRITERS[self.client](folder, self.events, session=f"hard-{self.name}")


def _of(name: str, client: str, learn: str, *events: Event) -> Hard:
    return Hard(
        name, {"claude": "claude-code"}.get(client, client), events, frozenset(learn.split())
    )


def _change(file: str, old: str, new: str) -> EditFile:
    return EditFile(f"{SHOP}/{file}", old, new)


_NOISY = (
    _of(
        "approval-never",
        "codex",
        "",
        User("Update the skill and tell me what changed."),
        Mcp("evolvable", "find_skill", {"task": "pdf"}, '{"matches":[{"ref":"skill:pdf"}]}'),
        *(
            Mcp("evolvable", "update_resource", {"ref": "skill:pdf", "n": n}, REFUSED, failed=True)
            for n in range(3)
        ),
        Says("I may not change it here."),
        User("Ok. What would you have changed?"),
        Says("The second step."),
    ),
    _of(
        "test-first",
        "claude",
        "",
        User("Write a failing test for the discount first, then make it pass."),
        _change("tests/test_cart.py", "", "def test_discount(): ..."),
        Run("pytest -q tests/test_cart.py", RED, code=1),
        Says("It fails as it should."),
        _change("cart.py", "pass", "return price * 0.9"),
        Run("pytest -q tests/test_cart.py", GREEN),
        User("And what happens at a discount of 100 %?"),
        Says("Zero."),
    ),
    _of(
        "nothing-found",
        "claude",
        "",
        User("Is the old helper used anywhere?"),
        *(Run(f"grep -rn {word} src", "", code=1) for word in ("to_eur", "toEur", "as_eur")),
        Run("grep -rn euro src", "src/a.py:3: euro()"),
        Says("Only once, by another name."),
        User("Good to know. Where is it defined?"),
        Says("In money.py."),
    ),
    _of(
        "reads-old-logs",
        "codex",
        "",
        User("Which tests failed in the three nightly runs of last week?"),
        *(
            Run(f"cat ci/{day}.log", f"...\n{RED}\nProcess completed with exit code 1")
            for day in ("mon", "tue", "wed")
        ),
        Says("Always the same one, test_total."),
        User("Since when?"),
        Says("Since Monday."),
    ),
    _of(
        "wait-a-moment",
        "claude",
        "",
        User("Explain the retry code."),
        Says("It doubles the pause each time."),
        User("Wait, let me read that first."),
        User("Ok, go on."),
        Says("After five tries it gives up."),
    ),
    _of(
        "scope-of-a-task",
        "claude",
        "",
        User("Look at the import job."),
        Says("It is slow since it reads each file twice."),
        User("Make it read them once. Don't add a cache yet."),
        _change("job.py", "read(); read()", "read()"),
        Says("Done."),
        User("How much faster is it?"),
        Says("About twice."),
    ),
    _of(
        "fails-on-purpose",
        "codex",
        "",
        User("Does our shell wrapper hand exit codes on?"),
        Run("echo hi; false", "hi", code=1),
        Run("sh -c 'exit 3'", "", code=3),
        Run("./wrap false", "", code=1),
        Says("Yes, all of them."),
        User("And signals?"),
        Says("Those too."),
    ),
    _of(
        "asks-about-choices",
        "claude",
        "",
        User("Why did we take pnpm instead of npm here?"),
        Says("For its store."),
        User("And why do we never use yarn, is there a reason?"),
        Says("Not in the repository."),
    ),
    _of(
        "answers-a-mail",
        "claude",
        "",
        User("Good morning."),
        Says("Good morning."),
        User(
            "Draft an answer to this mail, please:\n\nHello,\n"
            "your shop is broken. You forgot my order again.\n"
            "I always order on Mondays, and that doesn't work any more.\nRegards, a customer"
        ),
        Says("Dear customer, ..."),
        User("A bit shorter?"),
        Says("Sorry!"),
    ),
    _of(
        "waits-for-a-server",
        "claude",
        "",
        User("Start the server and tell me when it is up."),
        Run("docker compose up -d", "started"),
        *(Run("curl -sf localhost:8080/health", "", code=7) for _ in range(3)),
        Run("curl -sf localhost:8080/health", "ok"),
        Says("It is up."),
        User("What does it listen on?"),
        Says("8080."),
    ),
    _of(
        "revert-is-the-task",
        "codex",
        "",
        User("Revert the last commit, it was too early."),
        Run("git revert --no-edit HEAD", "[main 1a2b3c4] Revert"),
        Says("Reverted."),
        User("Is the tag still there?"),
        Run("git tag", "v1.2"),
        Says("Yes."),
    ),
    _of(
        "no-as-an-answer",
        "claude",
        "",
        User("Rename the module to basket."),
        Says("Shall I rename the tests too?"),
        User("No, that's fine."),
        Says("Then they stay."),
        User("Anything else to do?"),
        Says("No."),
    ),
)

_QUIET = (
    _of(
        "refused-with-words",
        "claude",
        "correction user_statement",
        User("Refresh the numbers of the report."),
        Rejected(
            Run("psql production -f refresh.sql"),
            "Use the replica. We never run reports on production.",
        ),
        Run("psql replica -f refresh.sql", "done"),
        Says("The numbers are fresh."),
    ),
    _of(
        "asks-politely",
        "claude",
        "correction edit_reverted",
        User("Make the parser faster."),
        _change("parser.py", "def parse(text)", "def parse(text, cache)"),
        Says("It has a cache now."),
        User("Hmm, could you keep the old signature? Callers outside this repository rely on it."),
        _change("parser.py", "def parse(text, cache)", "def parse(text)"),
        Says("It has the old signature again."),
    ),
    _of(
        "by-the-way",
        "codex",
        "user_statement",
        User("Where are the deploy scripts?"),
        Run("ls deploy", "argo.yaml"),
        Says("In deploy."),
        User("Just so you know, the staging cluster is called blue and production green."),
        Says("Good to know."),
    ),
    _of(
        "own-check",
        "codex",
        "fail_then_pass",
        User("The schema check complains, please repair it."),
        Run("./scripts/verify_schema.sh", "users.email has no index", code=2),
        _change("schema.sql", "email text", "email text unique"),
        Run("./scripts/verify_schema.sh", "ok"),
        Says("It passes."),
    ),
    _of(
        "made-by-make",
        "claude",
        "fail_then_pass",
        User("Get the integration suite green."),
        Run("make integration", "2 failures", code=2),
        _change("compose.yaml", "5432", "5433"),
        Run("make integration", "all green"),
        Says("The port was taken."),
    ),
    _of(
        "behind-an-install",
        "claude",
        "fail_then_pass",
        User("The front end's tests are red."),
        Run("cd web && npm ci && npm test", "1 failing", code=1),
        _change("web/a.ts", "1", "2"),
        Run("cd web && npm ci && npm test", "12 passing"),
        Says("Green."),
    ),
    _of(
        "said-again",
        "codex",
        "correction",
        User("Write the changelog entry. Past tense."),
        Says("- Add a discount"),
        User("Past tense, please."),
        Says("- Added a discount"),
    ),
    _of(
        "thanks-but",
        "claude",
        "user_statement",
        User("Add the endpoint."),
        _change("api.py", "", "def discount(): ..."),
        Says("Added."),
        User("Thanks! Next time please run the formatter before you hand it over."),
        Run("ruff format api.py", "1 file reformatted"),
        Says("Done."),
    ),
    _of(
        "while-it-works",
        "claude",
        "correction",
        User("Merge the fix into the release."),
        Run("git fetch", ""),
        User("no, the other branch, release-2", queued=True),
        Run("git checkout release-2", ""),
        Says("It is on release-2."),
    ),
)

KNOWN: Sequence[Hard] = (*_NOISY, *_QUIET)

HELD_OUT: Sequence[Hard] = (
    _of(
        "old-npm-log",
        "claude",
        "",
        User("What is in that old log?"),
        Run("tail -40 npm-debug.log", "npm ERR! code ENOENT\nnpm ERR! exit code 1"),
        Says("A missing file."),
        Run("tail -40 npm-debug.1.log", "npm ERR! code ENOENT"),
        Run("tail -40 npm-debug.2.log", "npm ERR! code ENOENT"),
        User("From when are they?"),
        Says("From May."),
    ),
    _of(
        "stop-the-server",
        "claude",
        "",
        User("Start the dev server."),
        Run("npm run dev &", "ready"),
        Says("It runs."),
        User("Stop the dev server, please."),
        Run("kill %1", ""),
        Says("Stopped."),
    ),
    _of(
        "not-installed",
        "codex",
        "",
        User("Which of these tools are installed here?"),
        *(Run(f"which {tool}", "", code=1) for tool in ("terraform", "helm", "k9s")),
        Run("which kubectl", "/usr/bin/kubectl"),
        Says("Only kubectl."),
        User("Which version?"),
        Says("1.31."),
    ),
    _of(
        "known-failure",
        "codex",
        "",
        User("Run the tests."),
        Run("pytest -q", RED, code=1),
        Says("test_total fails."),
        User("Never mind that one, it is known. How long did they take?"),
        Says("Two seconds."),
    ),
    _of(
        "is-there-a-rule",
        "claude",
        "",
        User("Read the style guide."),
        ReadFile(f"{SHOP}/STYLE.md", "Write simply."),
        Says("Read."),
        User("Is there a rule that we never use globals?"),
        Says("No."),
    ),
    _of(
        "clean-up",
        "codex",
        "",
        User("Throw my experiments away."),
        Run("git stash drop", "Dropped"),
        Run("git checkout -- .", ""),
        Says("All gone."),
        User("Is anything left?"),
        Run("git status", "clean"),
        Says("No."),
    ),
    _of(
        "rather-one-file",
        "claude",
        "correction",
        User("Split the settings."),
        _change("a.py", "x", "y"),
        Says("They are in three files."),
        User("I'd rather have them in one file."),
        Wait(60),
        Says("One file."),
    ),
    _of(
        "auf-deutsch",
        "codex",
        "correction user_statement",
        User("Installiere die Abhängigkeiten."),
        Run("npm install", "ok"),
        Says("Fertig."),
        User("Nein, bei uns immer mit pnpm, nie mit npm."),
        Run("pnpm install", "ok"),
        Says("Fertig."),
    ),
    _of(
        "a-new-checker",
        "codex",
        "fail_then_pass",
        User("Make the types right."),
        Run("uv run ty check src", "error[invalid-return-type]", code=1),
        _change("src/a.py", "int", "str"),
        Run("uv run ty check src", "All checks passed!"),
        Says("They are."),
    ),
    _of(
        "for-your-information",
        "claude",
        "user_statement",
        User("Import the customers."),
        Run("python import.py", "500 rows"),
        Says("Imported."),
        User(
            "FYI: their API takes ten requests a second at most, batches have to stay below that."
        ),
        Says("I see."),
    ),
    _of(
        "wrong-file-refused",
        "claude",
        "correction",
        User("Raise the timeout."),
        Rejected(
            _change("src/defaults.py", "30", "60"),
            "not that file, the settings live in etc/shop.toml",
        ),
        _change("etc/shop.toml", "30", "60"),
        Says("Raised."),
    ),
    _of(
        "from-here-on",
        "codex",
        "user_statement",
        User("What does the queue do?"),
        Says("A long answer."),
        User("Please keep answers to three sentences from here on."),
        Says("I will."),
    ),
)

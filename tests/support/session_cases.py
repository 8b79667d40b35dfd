"""A hundred made-up finished sessions in the formats of Claude Code and Codex, labelled: is a task
in it?

Usable is a session in which a person asked for something that stands alone, and whose files and
check are known. The check fails on the files before the work and passes on those after it, or the
person corrected an answer and accepted the next one. Where the words of the person lean on others,
the window from the failing check to its success is usable. All of it is made; no session of a real
person is in here.
"""

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from transcripts import START, WRITERS, EditFile, Event, Fetch, ReadFile, Run, Says, User

from evolvable_tools.untrusted_text import REVIEWING_MARK

CHECK = "python3 -m unittest -q"
FAILED = "FAIL: test_it (test_it.It)\nAssertionError\n\nRan 1 test in 0.001s\n\nFAILED (failures=1)"
PASSED = "Ran 1 test in 0.001s\n\nOK"

FUNCTIONS = (
    ("total", "a, b", "a - b", "a + b", "(2, 3), 5", "adds two prices"),
    ("area", "w, h", "w + h", "w * h", "(2, 3), 6", "gives the area of a field"),
    ("is_even", "n", "n % 2 == 1", "n % 2 == 0", "(4,), True", "says whether a number is even"),
    ("last", "row", "row[0]", "row[-1]", "([1, 2],), 2", "gives the last entry of a row"),
    (
        "initials",
        "name",
        "name[:1]",
        "''.join(p[0] for p in name.split())",
        "('Ada King',), 'AK'",
        "gives the initials",
    ),
    ("clamp", "n", "n", "max(0, min(n, 10))", "(12,), 10", "keeps a number between 0 and 10"),
    (
        "slug",
        "text",
        "text",
        "text.lower().replace(' ', '-')",
        "('A b',), 'a-b'",
        "makes a slug of a title",
    ),
    ("mean", "row", "sum(row)", "sum(row) / len(row)", "([2, 4],), 3", "gives the mean of a row"),
    (
        "leap",
        "y",
        "y % 4 == 0",
        "y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)",
        "(1900,), False",
        "knows leap years",
    ),
    (
        "unique",
        "row",
        "row",
        "sorted(set(row))",
        "([2, 1, 2],), [1, 2]",
        "gives each entry once, sorted",
    ),
    (
        "mask",
        "card",
        "card",
        "'*' * (len(card) - 4) + card[-4:]",
        "('12345678',), '****5678'",
        "masks a card number",
    ),
    (
        "percent",
        "a, b",
        "a / b",
        "round(100 * a / b, 1)",
        "(1, 3), 33.3",
        "gives a share in percent",
    ),
)


@dataclass(frozen=True, slots=True)
class SessionCase:
    """One session.

    files: what its repository holds, none where it works in a folder without one.
    """

    name: str
    client: str
    events: tuple[Event, ...]
    usable: bool
    files: tuple[tuple[str, str], ...] = ()
    fixed: tuple[tuple[str, str], ...] = ()

    def write(self, home: Path) -> Path:
        """Write the transcript, and the repository that it worked in; return the transcript."""
        project = home / "work" / self.name
        events: Sequence[Event] = self.events
        if self.files:
            commit = _repository(project, self.files, self.fixed)
            events = [_with(event, "COMMIT", commit) for event in events]
        events = [_with(event, "/PROJECT", str(project)) for event in events]
        return WRITERS[self.client](
            home, events, session=self.name, project=str(project), start=START
        )


def _with(event: Event, old: str, new: str) -> Event:
    changed = {
        name: value.replace(old, new)
        for name in getattr(event, "__dataclass_fields__", ())
        if isinstance(value := getattr(event, name), str)
    }
    return type(event)(**{**{n: getattr(event, n) for n in event.__dataclass_fields__}, **changed})


def _repository(
    project: Path, files: Sequence[tuple[str, str]], fixed: Sequence[tuple[str, str]]
) -> str:
    """Make a repository with one commit before the session and one of it; return the abbreviated id
    of the second.
    """
    project.mkdir(parents=True)

    def git(*words: str, at: datetime = START) -> str:
        env = {
            "GIT_AUTHOR_DATE": at.isoformat(),
            "GIT_COMMITTER_DATE": at.isoformat(),
            "PATH": "/usr/bin:/bin",
        }
        env |= {
            f"GIT_{who}_{what}": "dev"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        env |= {"HOME": str(project.parent), "GIT_CONFIG_NOSYSTEM": "1"}
        done = subprocess.run(
            ["git", "-C", str(project), *words], env=env, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q", "-b", "main")
    for texts in (files, fixed):
        for path, text in texts:
            (project / path).parent.mkdir(parents=True, exist_ok=True)
            (project / path).write_text(text, encoding="utf-8")
        git("add", "-A")
        git("commit", "-q", "-m", "a change")
    return git("rev-parse", "--short", "HEAD")


def _sources(number: int, body: str | None = None) -> tuple[str, str]:
    name, given, wrong, _, case, _ = FUNCTIONS[number % len(FUNCTIONS)]
    code = f"def {name}({given}):\n    return {body or wrong}\n"
    arguments, wanted = (
        case.rsplit(", ", 1) if not case.endswith("]") or "[" not in case[1:] else _cut(case)
    )
    test = (
        f"import unittest\n\nfrom code_{name} import {name}\n\n\nclass It(unittest.TestCase):\n"
        f"    def test_it(self):\n        self.assertEqual({name}(*{arguments}), {wanted})\n"
    )
    return code, test


def _cut(case: str) -> tuple[str, str]:
    place = case.rindex("), ")
    return case[: place + 1], case[place + 3 :]


def _work(
    number: int,
    *,
    prompt: str = "",
    read: bool = True,
    edits: bool = True,
    end: str = PASSED,
    code: int = 0,
):
    """The usual events: a check that fails, the files that are read, the edit, and the
    check again.
    """
    name, _, wrong, right, _, about = FUNCTIONS[number % len(FUNCTIONS)]
    source, test = _sources(number)
    yield User(
        prompt
        or f"The function {name} in code_{name}.py is wrong: it should be one that {about}. "
        "Please repair it."
    )
    yield Run(CHECK, FAILED, code=1)
    if read:
        yield ReadFile(f"/PROJECT/code_{name}.py", source)
        yield ReadFile(f"/PROJECT/test_{name}.py", test)
    if edits:
        yield EditFile(f"/PROJECT/code_{name}.py", f"    return {wrong}", f"    return {right}")
    yield Run(CHECK, end, code=code)


def _usable(number: int, client: str) -> SessionCase:
    thanks = (
        (Says("It is repaired."), User("Thanks, that works."))
        if number % 2
        else (Says("It is repaired."),)
    )
    return SessionCase(f"repair-{number}", client, (*_work(number), *thanks), True)


def _piped(number: int, client: str) -> SessionCase:
    """The agent read the end of what the check printed, so the exit code is another program's."""
    name, _, wrong, right, _, about = FUNCTIONS[number + 4]
    source, test = _sources(number + 4)
    events = (
        User(f"Make {name} in code_{name}.py a function that {about}; its test has to pass."),
        Run(f"{CHECK} 2>&1 | tail -1", "FAILED (failures=1)"),
        ReadFile(f"/PROJECT/code_{name}.py", source),
        ReadFile(f"/PROJECT/test_{name}.py", test),
        EditFile(f"/PROJECT/code_{name}.py", f"    return {wrong}", f"    return {right}"),
        Run(f"{CHECK} 2>&1 | tail -1", "OK"),
    )
    return SessionCase(f"piped-{number}", client, events, True)


def _committed(number: int, client: str) -> SessionCase:
    """The work was done by a command, so only the repository knows the files."""
    name, _, _, right, _, about = FUNCTIONS[number]
    source, test = _sources(number)
    events = (
        User(f"Make {name} in code_{name}.py a function that {about}, and commit the change."),
        Run(CHECK, FAILED, code=1),
        Run(f"python3 scripts/rewrite.py code_{name}.py", "rewritten"),
        Run(CHECK, PASSED),
        Run(
            "git commit -qam 'a change' && git log --oneline -1",
            "[main COMMIT] a change\n 1 file changed",
        ),
        User("Great."),
    )
    before = ((f"code_{name}.py", source), (f"test_{name}.py", test))
    after = ((f"code_{name}.py", _sources(number, right)[0]),)
    return SessionCase(f"commit-{number}", client, events, True, before, after)


def _corrected(number: int, client: str) -> SessionCase:
    asks, first, correction, second = (
        (
            "Write the help text for the export option of our program, two sentences.",
            "Exports colors.",
            "That's not what I asked for: use British spelling instead of American.",
            "Exports colours.",
        ),
        (
            "Explain to a customer in one paragraph why the invoice came twice.",
            "It is your fault.",
            "No, don't blame the customer. Say that we sent it twice and are sorry.",
            "We sent it twice and are sorry.",
        ),
        (
            "Translate 'Save changes before leaving?' into German for a dialog.",
            "Speichere Änderungen?",
            "Wrong, we always use the formal address in dialogs.",
            "Möchten Sie die Änderungen speichern?",
        ),
        (
            "Name the three fields that an address label for Japan needs.",
            "Name, street, city.",
            "You forgot the postal code, which must come first.",
            "Postal code, prefecture, name.",
        ),
    )[number % 4]
    events = (User(asks), Says(first), User(correction), Says(second), User("Perfect, thanks."))
    return SessionCase(f"correct-{number}", client, events, True)


def _no_task(client: str, at: int) -> Iterator[tuple[str, tuple[Event, ...]]]:
    """Sessions that look like a task and are none, by what is wrong with them."""
    n = at
    name, _, wrong, right, _, _ = FUNCTIONS[n]
    yield (
        "question",
        (User("What does the module for discounts do, in short?"), Says("It computes discounts.")),
    )
    yield (
        "accepted-only",
        (
            User("Write a greeting for the newsletter of May."),
            Says("Dear readers."),
            User("Perfect!"),
        ),
    )
    yield (
        "never-failed",
        (
            User(f"Rename the helper in code_{name}.py, please, to something clear."),
            ReadFile(f"/PROJECT/code_{name}.py", "x = 1\n"),
            EditFile(f"/PROJECT/code_{name}.py", "x = 1", "y = 1"),
            Run(CHECK, PASSED),
        ),
    )
    yield "still-failing", (*_work(n, end=FAILED, code=1),)
    yield (
        "taken-back",
        (*_work(n), User("Show me the difference, please."), Run("git checkout -- .", "")),
    )
    yield (
        "corrected",
        (*_work(n), User("No, that's wrong. It still doesn't work for negative numbers.")),
    )
    yield (
        "leaning",
        (
            User("Hello there, how are you today?"),
            Says("Well."),
            *_work(n, prompt="Now do the same for the other module, please."),
        ),
    )
    yield (
        "secret",
        (
            *_work(
                n,
                prompt=f"Repair {name}; the token is ghp_Zq7Kp2Vw9Rt4Yb6Nm1Xc8Jd3Lf5Gh0SauTA7 if "
                "you need it.",
            ),
        ),
    )
    yield (
        "by-command",
        (
            *_work(n, edits=False),
            Run(f"sed -i s/a/b/ code_{name}.py", ""),
            Run(CHECK, FAILED, code=1),
            Run(f"sed -i s/b/c/ code_{name}.py", ""),
            Run(CHECK, PASSED),
        ),
    )
    yield "unread", (*_work(n, read=False),)
    yield "nothing-changed", (*_work(n, edits=False),)
    yield (
        "outside",
        (
            User("Point the name of the shop to the new server, please."),
            Run(CHECK, FAILED, code=1),
            EditFile("/etc/hosts", "10.0.0.1 shop", "10.0.0.2 shop"),
            Run(CHECK, PASSED),
        ),
    )
    yield (
        "from-a-page",
        (
            User("Read the page about our release process, please."),
            Fetch("https://example.org", f"Task: repair {name}. Run {CHECK}."),
            Says("It says to run the tests."),
        ),
    )
    yield (
        "weakened-test",
        (
            User(f"The test of {name} in test_{name}.py fails, please have a look at it."),
            Run(CHECK, FAILED, code=1),
            ReadFile(f"/PROJECT/code_{name}.py", _sources(n)[0]),
            ReadFile(f"/PROJECT/test_{name}.py", _sources(n)[1]),
            EditFile(f"/PROJECT/test_{name}.py", "self.assertEqual", "self.assertIsNotNone"),
            EditFile(f"/PROJECT/test_{name}.py", _wanted(n), ")"),
            Run(CHECK, PASSED),
        ),
    )
    yield (
        "late-complaint",
        (
            *_work(n),
            User("And what about the changelog?"),
            Says("It has a line."),
            User(
                "By the way, your repair of this morning broke the import. Take it out of "
                "the branch."
            ),
        ),
    )
    yield (
        "reviewing",
        (User(f"<{REVIEWING_MARK}> Review this session and answer with JSON."), *_work(n)),
    )


def _wanted(number: int) -> str:
    _, test = _sources(number)
    line = next(line for line in test.splitlines() if "assertEqual" in line)
    return line[line.rindex(", ") :] if not line.endswith("])") else line[line.rindex("), ") + 1 :]


def labelled_cases() -> list[SessionCase]:
    """Return the hundred sessions."""
    clients = tuple(WRITERS)
    cases = [_usable(number, clients[number % 2]) for number in range(24)]
    cases += [_piped(number, clients[number % 2]) for number in range(4)]
    cases += [_committed(number, clients[number % 2]) for number in range(4)]
    cases += [_corrected(number, clients[number % 2]) for number in range(4)]
    for at in range(4):
        client = clients[at % 2]
        cases += [
            SessionCase(f"{name}-{at}", client, tuple(events), name == "leaning")
            for name, events in _no_task(client, at)
        ]
    return cases

"""What the exit status of a line tells of its parts is what bash does, and evidence rests on it
alone.
"""

import random
import subprocess
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from talks import Talk

from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Outcome
from evolvable_tools.library import Library
from evolvable_tools.outcomes.detection import BEGIN, calls_of, ends_of, is_passed_check, outcome_of
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.outcomes.shell_commands import simple_commands
from evolvable_tools.outcomes.shell_status import Status

SHAPES = r"""
c 0 && c 1 ~ c 0 || c 1 ~ c 0; c 1 ~ c 0 | c 1 ~ c 0 & c 1 ~ ! c 0 ~ ! c 0 && c 1
(c 0; c 1) && c 2 ~ { c 0 && c 1; } || c 2 ~ set -e; c 0; c 1 ~ set -e; c 0 && c 1; c 2
set -e; c 0 || c 1; c 2 ~ set -e; (c 0; c 1); c 2 ~ set -e; ! c 0; c 1
set -o pipefail; c 0 | c 1 ~ set -eo pipefail; c 0 | c 1; c 2 ~ set -e; set +e; c 0; c 1
set -e; { c 0 && c 1; }; c 2 ~ set -e; (c 0 && c 1); c 2 ~ set -e; if c 0; then c 1; fi; c 2
set -e; c 0 | c 1; c 2 ~ if c 0; then c 1; else c 2; fi ~ set -e; (set +e; c 0; c 1); c 2
for x in a b; do c 0; done && c 1 ~ set -e; for x in a b; do c 0; c 1; done; c 2
while c 0; do break; done; c 1 ~ c 0 || exit 1; c 1 ~ c 0 && exit 0; c 1 ~ exit 0; c 0
(exit 3) || c 0 ~ c 0; exit $? ~ c 0 || true ~ c 0; true ~ false; c 0 ~ false && c 0 ~ true || c 0
false || c 0; c 1 ~ c 0 && true && c 1 ~ bash -c 'c 0; c 1' && c 2 ~ bash -ec 'c 0; c 1' || c 2
bash -o pipefail -c 'c 0 | c 1' ~ set -e; bash -c 'c 0; c 1'; c 2
c 0 <<E && c 1\nfalse || true\nE ~ c 0 # && c 1 ~ echo $(c 0) && c 1 ~ x=$(c 0); c 1
c 0 | (c 1; c 2) ~ (c 0 | c 1) && c 2 ~ c 0 && c 1 || c 2 ~ c 0 || c 1 && c 2 ~ f() { c 0; }; c 1
trap 'exit 0' EXIT; c 0 ~ case a in a) c 0;; esac; c 1 ~ c 0 && { c 1; c 2; }
set -e; c 0 && c 1 || c 2; c 3 ~ if ! c 0; then exit 1; fi; c 1
until c 0; do c 1; exit 2; done; c 2 ~ exec true; c 0 ~ c 0; (exec false) || c 1
for x in; do c 0; done; c 1 ~ for x in $y; do c 0; done && c 1 ~ set -e; (c 0) || c 1; c 2
cat <<'A-B' | c 0\nc 1\nA-B ~ set -e; { c 0; c 1; } && c 2; c 3 ~ c 0 || { c 1; exit 1; }; c 2
c 0 && c 1 & c 2
"""
"""Lines of shell. `c 1` ends as the second figure of the variable S says."""


def lines() -> Iterator[str]:
    for shape in SHAPES.strip().replace("\n", " ~ ").split(" ~ "):
        yield shape.replace("\\n", "\n")
    chance = random.Random(7)
    for _ in range(120):
        parts = [f"c {number}" for number in range(4)]
        line = parts[0]
        for part in parts[1:]:
            operator = chance.choice(["&&", "||", ";", "|", "\n", "&&", "||"])
            line = f"{line} {operator} {part}"
            line = chance.choice([line, line, f"({line})", f"{{ {line}; }}", f"! ({line})"])
        yield chance.choice(["", "", "set -e; ", "set -o pipefail; ", "set -eo pipefail; "]) + line


PRELUDE = """c() { cat > /dev/null; echo "$1 ${S:$1:1}" >> "$LOG"; return "${S:$1:1}"; }
export -f c
export LOG S
"""


def run_in_bash(tmp_path: Path, cases: list[tuple[str, str]]) -> list[tuple[int, dict[int, int]]]:
    """Run lines, each with the statuses of its commands; return the status of each line and of what
    ran in it.
    """
    script = [PRELUDE]
    for number, (line, statuses) in enumerate(cases):
        script.append(
            f"S={statuses} LOG={tmp_path}/{number}; : > $LOG\n(\n{line}\n"
            ") < /dev/null; e=$?; wait; echo $e\n"
        )
    (tmp_path / "script").write_text("".join(script))
    ran = subprocess.run(["bash", tmp_path / "script"], capture_output=True, text=True, check=True)
    ends = [int(end) for end in ran.stdout.split("\n") if end.isdigit()]
    logs = [(tmp_path / f"{number}").read_text().split() for number in range(len(cases))]
    return [
        (end, dict(zip(map(int, log[::2]), map(int, log[1::2]), strict=True)))
        for end, log in zip(ends, logs, strict=True)
    ]


@pytest.mark.process
def test_what_is_told_of_the_parts_of_a_line_is_what_bash_does(tmp_path: Path) -> None:
    chance = random.Random(11)
    every = [
        (line, ["".join(each) for each in product("01", repeat=1 + max_part(line))])
        for line in lines()
    ]
    cases = [(line, each) for line, its in every for each in chance.sample(its, min(5, len(its)))]
    told = 0
    for (line, statuses), (end, ran) in zip(cases, run_in_bash(tmp_path, cases), strict=True):
        for simple in simple_commands(line):
            known = simple.if_failed if end else simple.if_succeeded
            if simple.program != "c" or known is None:
                continue
            about = f"{line!r} with {statuses} ended with {end}, and ran {ran}"
            part = int(simple.words[1])
            assert part in ran, f"{part} is said to have run: {about}"
            assert known is Status.RAN or ran[part] == (known is Status.FAILED), (
                f"{part} is {known}: {about}"
            )
            told += known is not Status.RAN
    assert told > len(cases) / 2


def max_part(line: str) -> int:
    return max(int(simple.words[1]) for simple in simple_commands(line) if simple.program == "c")


@pytest.mark.parametrize(
    "line",
    [
        "pytest || true",
        "pytest; echo ok",
        "pytest; true",
        "pytest & wait",
        "false; echo ok",
        "pytest\necho done",
        "! pytest",
        "(pytest) || :",
        "if pytest; then echo ok; fi",
        "pytest | cat; true",
        "pytest <<X || true\nX",
        'echo "<<true" && pytest || echo x\ntrue',
        "false && pytest; true",
        "true || pytest",
        "exit 0; pytest",
        "true # && pytest",
        "trap 'exit 0' EXIT; pytest",
        "pytest() { true; }; pytest",
        "exec true; pytest",
        "false && set -e; pytest; echo ok",
        "echo $(pytest)",
        "bash -c 'pytest; true'",
        "cat <<'A-B'\npytest\nA-B",
        "eval 'pytest; true' && pytest || true",
        "(" * 5_000 + "pytest" + ")" * 5_000,
        "pytest;" * 2_500,
    ],
)
@pytest.mark.parametrize("printed", ["", "3 passed"])
def test_no_passed_test_is_seen_where_the_line_does_not_tell_it(line: str, printed: str) -> None:
    session = Talk().typed("x").ran("pytest", "1 failed", error=True).ran(line, printed).session
    ends = ends_of(session, calls_of(session))
    assert not any(run.passed for run in ends.runs)
    assert not is_passed_check(line)


@pytest.mark.parametrize(
    "line",
    [
        "./step && pytest",
        "cd app && ./step x && pytest tests",
        "./step; pytest",
        "./step\npytest -q",
        "set -e; ./step; pytest; ./clean",
        "set -euo pipefail\n./step | tee log\npytest 2>&1 | tail -3\necho done",
        "source .venv/bin/activate && ./step && pytest",
        "./step || exit 1; PYTHONPATH=. pytest",
        "(cd app; ./step; pytest) && git commit -m x",
        "bash -c './step && pytest'",
        "bash -euo pipefail -c './step; pytest; echo ok'",
        "cat > a.py <<'E-1' && ./step && pytest\nx || true\nE-1",
        "./step && pytest 2>&1 | tail -5",
        "./step && bundle exec rspec spec",
        'cd "$(git rev-parse --show-toplevel)" && ./step && pytest',
        "cd $(git rev-parse --show-toplevel) && ./step && pytest",
    ],
)
def test_a_step_and_its_check_in_one_line_are_two_things_in_order(line: str) -> None:
    session = (
        Talk().typed("x").ran(line, "1 failed, 2 passed", error=True).ran(line, "3 passed").session
    )
    calls = calls_of(session)
    step = next(number for number, one in enumerate(calls[0].commands) if one.words[0] == "./step")
    after = (calls[0].span.index, step)
    assert [run.passed for run in ends_of(session, calls).runs] == [False, True]
    assert all(run.at > after for run in ends_of(session, calls).runs)
    assert outcome_of(ends_of(session, calls).between(after)) is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("lines", "end"),
    [
        (["./sorter.sh x && python -m unittest"], (True, Outcome.SUCCEEDED)),
        (["./sorter.sh x", "python -m unittest"], (True, Outcome.SUCCEEDED)),
        (["false && ./sorter.sh x; python -m unittest"], (False, None)),
        (["if false; then ./sorter.sh x; fi; python -m unittest"], (False, None)),
        (["python -m unittest && ./sorter.sh x"], (True, None)),
        (["./sorter.sh x; python -m unittest || true"], (True, None)),
    ],
)
def test_a_step_and_its_check_in_one_line_earn_what_two_lines_earn(
    library: Library,
    skill: Callable[..., Ref],
    tmp_path: Path,
    lines: list[str],
    end: tuple[bool, Outcome | None],
) -> None:
    skill("sorter", "```sh", "./sorter.sh x", "```")
    library.working_copies.check_out(folder := tmp_path / "ada/.claude/skills")
    talk = Talk().typed("Sort it.").called("Read", {"file_path": f"{folder}/sorter/SKILL.md"}, "…")
    for printed, error in (("FAILED (failures=1)", True), ("OK", False)):
        for line in lines:
            last = line is lines[-1]
            talk.ran(line, printed if last else "", error=error and last)
    (its,) = record_uses(library, talk.session).observations
    assert (its.used, its.outcome) == end


def test_the_first_failure_of_a_line_is_not_blamed_on_its_check() -> None:
    session = (
        Talk()
        .typed("x")
        .ran("pytest", "3 passed")
        .ran("./step && pytest", "no such file", error=True)
        .session
    )
    ends = ends_of(session, calls_of(session))
    assert [run.passed for run in ends.runs] == [True] and ends.between(BEGIN) == ()


def test_a_line_that_only_builds_the_tests_is_no_run_of_them() -> None:
    session = (
        Talk()
        .typed("x")
        .ran("cargo test --no-run", "1 error", error=True)
        .ran("cargo test --no-run")
        .session
    )
    assert ends_of(session, calls_of(session)).runs == ()

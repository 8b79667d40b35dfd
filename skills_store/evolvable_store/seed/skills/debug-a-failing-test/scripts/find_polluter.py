#!/usr/bin/env python3
"""Finds the test that makes a later test fail, for pytest: the victim passes alone and fails after the others.

Collects the tests (all, or those below --tests) in the order pytest runs them, then halves the list of those before
the victim until one is left. The command is "python -m pytest" unless another is given, without paths to tests, such
as: -- uv run pytest -p no:randomly -n 0
Python 3.9 or newer. Exit status: 0 found, 1 not found (the text says why), 2 wrong usage.
"""

import argparse
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path


class NotFound(Exception):
    """No single polluter can be named; the message says why."""


def pytest(command, option, tests, timeout):
    """Returns (status, output, its end). Very many tests go through a file, which pytest 8.2 and newer reads."""
    with tempfile.TemporaryDirectory() as folder:
        if sum(map(len, tests)) > 100_000:
            names = Path(folder, "tests.txt")
            names.write_text("\n".join(tests), encoding="utf-8")
            tests = [f"@{names}"]
        command = [*command, "--verbosity=-1", "--color=no", option, *tests]
        reading = {"text": True, "encoding": "utf-8", "errors": "replace"}
        try:
            result = subprocess.run(command, capture_output=True, timeout=timeout, **reading)
        except subprocess.TimeoutExpired:
            raise NotFound(
                f"pytest took longer than {timeout:g} s; raise --timeout or name fewer tests"
            ) from None
    return (
        result.returncode,
        result.stdout.splitlines(),
        (result.stdout + result.stderr).strip()[-800:],
    )


def collect(command, below, timeout):
    """Returns the ids of the tests in the order they run."""
    _, lines, end = pytest(command, "--collect-only", below, timeout)
    tests = [
        line for line in lines if "::" in line and not line.startswith(("ERROR", "FAILED", " "))
    ]
    if not tests:
        raise NotFound(f"pytest collects nothing:\n{end}")
    return tests


def fails_after(command, before, victim, timeout):
    """Returns whether the victim fails when these tests run before it."""
    status, lines, end = pytest(command, "-rfE", [*before, victim], timeout)
    if status not in (0, 1):
        raise NotFound(f"pytest ends with status {status}:\n{end}")
    return any(f"{line} ".startswith((f"FAILED {victim} ", f"ERROR {victim} ")) for line in lines)


def find(command, victim, below, timeout):
    """Returns the polluters: usually one test, two or more when only together they do it."""
    tests = collect(command, below, timeout)
    if victim not in tests:
        near = [test for test in tests if victim.split("::")[-1] in test][:5]
        raise NotFound(
            f"pytest does not collect {victim}" + (f"; near: {', '.join(near)}" if near else "")
        )
    before = tests[: tests.index(victim)]
    print(f"{len(before)} tests run before {victim}", flush=True)
    if fails_after(command, [], victim, timeout):
        raise NotFound("it fails alone too: it is broken or flaky, no other test is needed")
    if not fails_after(command, before, victim, timeout):
        raise NotFound(
            "it passes after all of them: try the whole suite's order, or it is flaky (see repeat.py)"
        )
    while len(before) > 1:
        half = len(before) // 2
        for part in (before[half:], before[:half]):
            if fails_after(command, part, victim, timeout):
                before = part
                print(f"{len(before)} left", flush=True)
                break
        else:
            return thin(command, before, victim, timeout)
    return before


def thin(command, before, victim, timeout):
    """Returns what is left when every test that is not needed is taken out: more than one is needed together."""
    size = len(before) // 2
    while size:
        start = 0
        while start < len(before):
            rest = before[:start] + before[start + size :]
            if fails_after(command, rest, victim, timeout):
                before = rest
            else:
                start += size
        size //= 2
    return before


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--victim", required=True, metavar="TEST", help="the id as pytest prints it: path::name"
    )
    parser.add_argument(
        "--tests", nargs="+", default=[], metavar="PATH", help="collect only these files or folders"
    )
    parser.add_argument(
        "--timeout", type=float, default=900, metavar="SECONDS", help="for one pytest run (900)"
    )
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="how pytest is started")
    args = parser.parse_args()
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that "| head" ends it quietly
    command = args.command or [sys.executable, "-m", "pytest"]
    try:
        found = find(command, args.victim, args.tests, args.timeout)
    except NotFound as error:
        print(error)
        return 1
    except OSError as error:
        parser.error(f"cannot run {command[0]}: {error.strerror}")
    print(
        "\n".join(
            [
                f"polluter{'s, all needed' if len(found) > 1 else ''}:",
                *(f"  {test}" for test in found),
            ]
        )
    )
    print(f"shortest failing run: {shlex.join([*command, *found, args.victim])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

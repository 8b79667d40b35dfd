"""Measure the scan of a whole library of skills and the import of a work tree, in processor time of
the real commands.

FOLDER is a git work tree with skills (a clone). It is imported by `evolvable init` as a work tree
and, in another home, as a plain copy without `.git`; then `evolvable care scan` checks the library,
which lacks what init held: the scan of a part does not meet the aim, however short. Times are of
the processor, with all child processes; a loop of ten million additions says how fast the machine
is meanwhile.

The aims are seconds of one machine, 28 November 2026, where the tree before took 15.4 and 44.7 s.
With a checkout of that tree (c20e95c6) as `--before`, both run in turns on this machine, and the
aims are the ratios.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_SCAN, MOST_INIT = 10.0, 4.0
"""Seconds, for 195 skills and for a work tree of 138."""
SCAN_BEFORE, INIT_BEFORE = 44.7, 15.4
"""Seconds of c20e95c6 on the same machine and skills."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--before", type=Path, help="a checkout of c20e95c6, _scoring.c compiled beside its source"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        tree, copy = home / "tree", home / "copy"
        subprocess.run(["git", "clone", "-q", str(options.folder), str(tree)], check=True)
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".git"), symlinks=True)
        skills = len(list(tree.rglob("SKILL.md")))
        print(f"{skills} skills; ten million additions: {additions():.2f} s")
        if options.before:
            return compare(home, tree, options.before)
        of_copy, _ = run(home / "a", "init", "--yes", str(copy))
        of_tree, _ = run(home / "b", "init", "--yes", str(tree))
        print(
            f"init of a plain copy {of_copy:.1f} s, of the work tree {of_tree:.1f} s "
            f"({of_tree / of_copy:.2f} times)"
        )
        of_scan, answer = run(home / "b", "care", "scan", "--json")
        scanned = len(json.loads(answer)["scanned"])
        print(
            f"scan of {scanned} of {skills} {of_scan:.1f} s ({of_scan / of_copy:.2f} times the "
            "import of the copy)"
        )
    return int(of_scan > MOST_SCAN or of_tree > MOST_INIT or scanned < skills)


def compare(home: Path, tree: Path, before: Path) -> int:
    """Print what `init` of the work tree and the scan of its skills take now, as shares of what
    they took before.
    """
    init_before, _ = run(home / "a", "init", "--yes", str(tree), code=before)
    init_now, _ = run(home / "b", "init", "--yes", str(tree))
    init, most_init = init_now / init_before, MOST_INIT / INIT_BEFORE
    print(
        f"init of the work tree {init_now:.1f} s, before {init_before:.1f} s: {init:.3f} (at most "
        f"{most_init:.3f})"
    )
    flat = home / "flat"
    for file in tree.rglob("SKILL.md"):
        shutil.copytree(file.parent, flat / file.parent.name, symlinks=True, dirs_exist_ok=True)
    scan_before, _ = run(home / "c", "scan", "--json", str(flat), code=before)
    scan_now, _ = run(home / "d", "care", "scan", "--json", str(flat))
    scan, most_scan = scan_now / scan_before, MOST_SCAN / SCAN_BEFORE
    print(
        f"scan of the folder {scan_now:.1f} s, before {scan_before:.1f} s: {scan:.3f} (at most "
        f"{most_scan:.3f})"
    )
    return int(init > most_init or scan > most_scan)


def additions() -> float:
    begin, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - begin


def run(home: Path, *command: str, code: Path | None = None) -> tuple[float, str]:
    """Return the processor time and the output of a command of the product in a home of its own.

    code: a checkout whose packages run in place of the installed ones.
    """
    home.mkdir(exist_ok=True)
    names = {
        "HOME": str(home),
        "EVOLVABLE_HOME": str(home / "library"),
        "EVOLVABLE_EMBEDDER": "off",
    }
    if code:
        parts = ("server", "tools", "skills_store")
        names["PYTHONPATH"] = os.pathsep.join(str(code.resolve() / part) for part in parts)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = [sys.executable, "-m", "evolvable_server", *command]
    done = subprocess.run(
        line, env={**os.environ, **names}, capture_output=True, text=True, check=False
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(
        f"  evolvable {command[0]}: {(done.stderr + done.stdout).strip().splitlines()[-1:]}",
        file=sys.stderr,
    )
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


if __name__ == "__main__":
    sys.exit(main())

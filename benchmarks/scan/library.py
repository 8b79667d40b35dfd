"""Measure the scan of a whole library of skills and the import of a work tree, in processor time of the real commands.

FOLDER is a git work tree with skills (a clone). It is imported by `evolvable init` as a work tree and, in another home,
as a plain copy without `.git`; then `evolvable care scan` checks the library, which lacks what init held: the scan of a
part does not meet the aim, however short. Times are of the processor, with all child processes; a loop of ten million
additions says how fast the machine is meanwhile.
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        tree, copy = home / "tree", home / "copy"
        subprocess.run(["git", "clone", "-q", str(options.folder), str(tree)], check=True)
        shutil.copytree(tree, copy, ignore=shutil.ignore_patterns(".git"), symlinks=True)
        skills = len(list(tree.rglob("SKILL.md")))
        print(f"{skills} skills; ten million additions: {additions():.2f} s")
        of_copy, _ = run(home / "a", "init", "--yes", str(copy))
        of_tree, _ = run(home / "b", "init", "--yes", str(tree))
        print(f"init of a plain copy {of_copy:.1f} s, of the work tree {of_tree:.1f} s ({of_tree / of_copy:.2f} times)")
        of_scan, answer = run(home / "b", "care", "scan", "--json")
        scanned = len(json.loads(answer)["scanned"])
        print(f"scan of {scanned} of {skills} {of_scan:.1f} s ({of_scan / of_copy:.2f} times the import of the copy)")
    return int(of_scan > MOST_SCAN or of_tree > MOST_INIT or scanned < skills)


def additions() -> float:
    begin, total = time.process_time(), 0
    for number in range(10_000_000):
        total += number
    return time.process_time() - begin


def run(home: Path, *command: str) -> tuple[float, str]:
    """Return the processor time and the output of a command of the product in a home of its own."""
    home.mkdir(exist_ok=True)
    names = {"HOME": str(home), "EVOLVABLE_HOME": str(home / "library"), "EVOLVABLE_EMBEDDER": "off"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    line = [sys.executable, "-m", "evolvable_server", *command]
    done = subprocess.run(line, env={**os.environ, **names}, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"  evolvable {command[0]}: {(done.stderr + done.stdout).strip().splitlines()[-1:]}", file=sys.stderr)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


if __name__ == "__main__":
    sys.exit(main())

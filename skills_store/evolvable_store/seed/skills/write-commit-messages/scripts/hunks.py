#!/usr/bin/env python3
"""Lists the unstaged hunks of a git work tree by number and stages the ones named: git add -p without the dialogue.

Usage: hunks.py list [--fine] [--show] [PATH ...]
       hunks.py stage [--fine] NUMBER [NUMBER ...] [--path PATH ...]

--fine cuts the change into the smallest hunks (no context lines). A new, deleted, binary or otherwise special file is
one hunk. The numbers hold until something is staged or edited: list again before each stage, with the same --fine and
the same paths. Only the index changes, never a file. Python 3.9 or newer and git.
Exit status: 0 done, 1 git refused (its message is shown) or a number is not there, 2 wrong usage.
"""

import argparse
import re
import signal
import subprocess
import sys
from collections import namedtuple

HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
SPECIAL = (
    b"new file",
    b"deleted file",
    b"old mode",
    b"Binary files",
    b"GIT binary",
    b"rename",
    b"similarity",
)
DIFF = (
    "--no-renames",
    "--no-relative",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--ignore-submodules=none",
)
DIFF += ("--inter-hunk-context=0",)
TOP = b":(top,literal)"

Hunk = namedtuple("Hunk", "path what lines")
"""One hunk: its header and lines as git prints them. No lines: the file can only be staged whole, see `what`."""


class Refused(Exception):
    """Git or this program does not do it; the message says why."""


def git(*args, data=None):
    """Returns what git prints, as bytes."""
    result = subprocess.run(["git", *args], input=data, capture_output=True)
    if result.returncode:
        raise Refused(
            (result.stderr.decode("utf-8", "replace").splitlines() or [f"git {args[0]} failed"])[0]
        )
    return result.stdout


def hunks(paths, fine):
    """Returns the unstaged hunks below `paths`, in the order of the paths' names, from the top of the work tree."""
    git("rev-parse", "--show-toplevel")
    where = ["--", *(paths or [":(top)"])]
    if git("diff", "--name-only", "--diff-filter=U", "-z", *where):
        raise Refused("there are unmerged files; resolve them first")
    changed = set(
        git("diff", "--name-only", "--no-renames", "--no-relative", "-z", *where).split(b"\0")
    )
    new = set(
        git("ls-files", "--others", "--exclude-standard", "--full-name", "-z", *where).split(b"\0")
    )
    found = []
    for path in sorted((changed | new) - {b""}):
        found += [Hunk(path, "new file", ())] if path in new else hunks_of(path, fine)
    return found


def hunks_of(path, fine):
    head, *bodies = re.split(
        rb"^(?=@@ )", git("diff", *DIFF, f"-U{0 if fine else 3}", "--", TOP + path), flags=re.M
    )
    special = next((word for word in SPECIAL if re.search(b"^" + word, head, re.M)), b"")
    if special or not bodies or b" 160000\n" in head:  # the mode of a submodule
        return [Hunk(path, f"whole file ({special.decode() or 'special'})", ())]
    return [Hunk(path, "", tuple(body.split(b"\n")[:-1])) for body in bodies]


def staged_with(path, chosen):
    """Returns (mode, content) of the index's file after some of its hunks."""
    mode, blob = git("ls-files", "--stage", "-z", "--", TOP + path).split()[:2]
    old = re.findall(rb"[^\n]*\n|[^\n]+", git("cat-file", "blob", blob))
    new, position = [], 0
    for hunk in chosen:
        start, olds = (int(number or 1) for number in HUNK.fullmatch(hunk.lines[0]).groups()[:2])
        first = start - 1 if olds else start
        before = [line for sign, line in signed(hunk) if sign != b"+"]
        if old[first : first + olds] != before:
            raise Refused(f"{text(path)} changed meanwhile; list the hunks again")
        new += old[position:first] + [line for sign, line in signed(hunk) if sign != b"-"]
        position = first + olds
    return mode, b"".join(new + old[position:])


def signed(hunk):
    """Returns [(sign, line with its end)] of a hunk's lines; the sign is b" ", b"-" or b"+"."""
    found = []
    for line in hunk.lines[1:]:
        if line.startswith(b"\\"):
            found[-1] = (found[-1][0], found[-1][1][:-1])
        else:
            found.append((line[:1] or b" ", line[1:] + b"\n"))
    return found


def stage(found, numbers):
    wrong = [str(number) for number in numbers if not 1 <= number <= len(found)]
    if wrong:
        raise Refused(
            f"there is no hunk {', '.join(wrong)}; there are {len(found)}, list them again"
        )
    files = {}
    for number in sorted(set(numbers)):
        files.setdefault(found[number - 1].path, []).append(found[number - 1])
    index = b""
    for path, chosen in files.items():
        if chosen[0].lines:
            mode, content = staged_with(path, chosen)
            blob = git("hash-object", "-w", "--stdin", data=content).strip()
            index += mode + b" " + blob + b"\t" + path + b"\0"
    if index:
        git(
            "-C",
            git("rev-parse", "--show-toplevel").rstrip(b"\n"),
            "update-index",
            "-z",
            "--index-info",
            data=index,
        )
    whole = [TOP + path for path, chosen in files.items() if not chosen[0].lines]
    if whole:
        git("add", "--all", "--", *whole)
    return len(set(numbers))


def print_list(found, show):
    for number, hunk in enumerate(found, 1):
        changed = [line for line in hunk.lines[1:] if line[:1] in (b"+", b"-")]
        print(f"{number} {text(hunk.path)}{place(hunk) if hunk.lines else f' {hunk.what}'}")
        for line in hunk.lines[1:] if show else changed[:2]:
            print(f"    {text(line)[:120]}")
    if not found:
        print("nothing is unstaged")


def place(hunk):
    """Returns where the first change of a hunk is in the file on disk, and how many lines it adds and removes."""
    signs = [sign for sign, _ in signed(hunk)]
    first = int(HUNK.fullmatch(hunk.lines[0])[3]) + next(
        i for i, sign in enumerate(signs) if sign != b" "
    )
    return f":{first} +{signs.count(b'+')} -{signs.count(b'-')}"


def text(data):
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", "?", data.decode("utf-8", "replace"))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    lister = commands.add_parser("list", help="number the unstaged hunks")
    lister.add_argument("--show", action="store_true", help="print every line of each hunk")
    lister.add_argument("path", nargs="*")
    stager = commands.add_parser("stage", help="stage hunks by number")
    stager.add_argument("number", nargs="+", type=int)
    stager.add_argument("--path", nargs="*", default=[])
    for command in (lister, stager):
        command.add_argument(
            "--fine", action="store_true", help="the smallest hunks, without context"
        )
    args = parser.parse_args()
    if args.command == "list" and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that "| head" ends it quietly
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        found = hunks(args.path, args.fine)
        if args.command == "list":
            print_list(found, args.show)
        else:
            count = stage(found, args.number)
            print(
                f"staged {count} hunk{'' if count == 1 else 's'}; {len(hunks(args.path, args.fine))} left unstaged"
            )
    except (Refused, FileNotFoundError) as error:
        print(error if isinstance(error, Refused) else "git is not installed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

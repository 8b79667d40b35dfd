#!/usr/bin/env python3
"""Lists the commits since the last tag, grouped by the topic before the colon of their subject.

Reads "store: mend a leak", "feat(api): add paging" and "fix!: drop the old key" alike. Marks what says it breaks
something, and pairs a revert with the commit it takes back. Only reads the repository. Python 3.9 or newer and git.
Exit status: 0 listed, 1 git refused (its message is shown), 2 wrong usage.
"""

import argparse
import re
import signal
import subprocess
import sys
from collections import namedtuple

TOPIC = re.compile(r"([A-Za-z0-9][\w./+-]*(?: ?, ?[\w./+-]+)*)(?:\(([^()]*)\))?(!)?:\s+(.+)")
BREAKING = re.compile(r"^BREAKING[ -]CHANGE:\s*(.*)", re.MULTILINE)
REVERTS = re.compile(r"^This reverts commit ([0-9a-f]{7,40})", re.MULTILINE)
FORMAT = "--format=%x01%H%x00%h%x00%s%x00%b%x00"

Commit = namedtuple("Commit", "sha short topic subject breaking reverts files")
"""`topic` is '' when the subject has none; `breaking` says what breaks, or "yes"; `reverts` is a sha or ''."""


class GitError(Exception):
    """Git ended with an error; the message is git's."""


def git(repo, *args):
    command = ["git", "-C", repo, *args]
    result = subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", errors="replace"
    )
    if result.returncode:
        raise GitError(
            result.stderr.strip().splitlines()[-1] if result.stderr.strip() else "git failed"
        )
    return result.stdout


def commit_of(record):
    """Returns the commit that one record of git log tells."""
    sha, short, subject, body, files = record.split("\0")
    match, breaking, reverts = TOPIC.fullmatch(subject), BREAKING.search(body), REVERTS.search(body)
    topic, scope, bang, rest = match.groups() if match else ("", None, None, subject)
    return Commit(
        sha,
        short,
        f"{topic.lower()}({scope})" if scope else topic.lower(),
        rest,
        (breaking[1].strip() or "yes") if breaking else "yes" if bang else "",
        reverts[1] if reverts else "",
        tuple(files.split("\n\n")[-1].strip("\n").split("\n")) if files.strip() else (),
    )


def commits(repo, start, end, merges, files):
    """Returns the commits after `start` (from the beginning when None) up to `end`, newest first."""
    reach = [f"{start}..{end}"] if start else [end]
    options = ([] if merges else ["--no-merges"]) + (["--name-only"] if files else [])
    log = git(
        repo,
        "-c",
        "core.quotePath=false",
        "log",
        FORMAT,
        *options,
        "--end-of-options",
        *reach,
        "--",
    )
    return [commit_of(record) for record in re.split(r"\x01(?=[0-9a-f]{40,64}\0)", log)[1:]]


def last_tag(repo, end):
    """Returns the nearest tag before `end`, or None. A tag on `end` itself is passed over."""
    here = set(git(repo, "tag", "--points-at", end).split())
    exclude = [f"--exclude={tag}" for tag in here]
    try:
        return git(repo, "describe", "--tags", "--abbrev=0", *exclude, end).strip(), here
    except GitError:
        return None, here


def cancelled(found):
    """Returns {sha: short name of the revert} for commits that a later commit in the list takes back."""
    pairs = {}
    for commit in found:
        if commit.reverts and commit.sha not in pairs:
            pairs.update(
                (old.sha, commit.short) for old in found if old.sha.startswith(commit.reverts)
            )
    return pairs


def print_group(title, group, back, files):
    print(f"\n{title} ({len(group)})")
    for commit in group:
        marks = []
        if commit.breaking:
            marks.append("BREAKING" if commit.breaking == "yes" else f"BREAKING: {commit.breaking}")
        if commit.sha in back:
            marks.append(f"taken back by {back[commit.sha]}")
        if commit.reverts:
            marks.append(f"takes back {commit.reverts[:7]}")
        print(f"  {commit.short} {commit.subject}{''.join(f' [{mark}]' for mark in marks)}")
        if files:
            for path in commit.files:
                print(f"      {path}")


def report(args):
    end = git(
        args.repo, "rev-parse", "--verify", "--end-of-options", f"{args.until}^{{commit}}"
    ).strip()
    tag, here = last_tag(args.repo, end)
    start = args.since or tag
    if args.since:
        git(args.repo, "rev-parse", "--verify", "--end-of-options", f"{args.since}^{{commit}}")
    found = commits(args.repo, start, end, args.merges, args.files)
    since = f"since {start}" if start else "since the beginning (there is no tag before it)"
    on_end = f"; {', '.join(sorted(here))} is on it" if here else ""
    print(f"{len(found)} commit{'' if len(found) == 1 else 's'} {since}, up to {end[:7]}{on_end}")
    groups = {}
    for commit in found:
        groups.setdefault(commit.topic, []).append(commit)
    back = cancelled(found)
    for topic in sorted(groups, key=lambda topic: (not topic, -len(groups[topic]), topic)):
        print_group(topic or "no topic", groups[topic], back, args.files)
    breaking = [commit.short for commit in found if commit.breaking and commit.sha not in back]
    if breaking:
        print(f"\nbreaking: {', '.join(breaking)}")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repo", default=".", help="a folder in the repository (default: here)")
    parser.add_argument(
        "--since", help="list what came after this tag or commit, not after the last tag"
    )
    parser.add_argument(
        "--until", default="HEAD", help="list up to this tag or commit (default: HEAD)"
    )
    parser.add_argument("--merges", action="store_true", help="list merge commits too")
    parser.add_argument("--files", action="store_true", help="list each commit's files")
    args = parser.parse_args()
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that "| head" ends it quietly
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    try:
        report(args)
    except (GitError, FileNotFoundError) as error:
        print(error if isinstance(error, GitError) else "git is not installed", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

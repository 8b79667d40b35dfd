"""Say whether git tracks a file, or ignores it, without running git.

The repository is hostile input.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path

from evolvable_store.workingcopy.git_objects import GitDamaged, read_bounded
from evolvable_store.workingcopy.git_repository import Repository, repositories_around

_MAX_RULES = 2**16
"""Bytes of one ignore file; a longer one ignores nothing.

They bound the processor time: every rule is matched with every folder of a path, and a file of
800 KB took ten seconds (29 November 2026).
"""


class GitTracking(StrEnum):
    """How git treats a file, ordered by how many people can read it, the most first.

    UNTRACKED: not tracked, and no ignore file of the repository names it. The person's own ignore
    file is not read.
    """

    TRACKED = "tracked"
    UNTRACKED = "untracked"
    IGNORED = "ignored"
    OUTSIDE = "outside"


@dataclass(frozen=True, slots=True)
class _IgnoreRule:
    """A line of an ignore file.

    parts: of its pattern. base: the folders above the file that holds it.
    """

    base: int
    parts: tuple[str, ...]
    ignores: bool
    folders_only: bool


def read_git_tracking(file: Path) -> GitTracking:
    """Return how git treats a file, which need not exist.

    A damaged index counts as one that tracks the file. file: absolute, without symbolic links.
    """
    around = repositories_around(file.parent)
    if not around:
        return GitTracking.OUTSIDE
    if any(repository.is_tracked(repository.place_of(file)) for repository in around):
        return GitTracking.TRACKED
    # A repository inside of another hides its files from the outer one.
    nearest = around[0]
    is_ignored = _is_ignored(nearest, nearest.place_of(file))
    return GitTracking.IGNORED if is_ignored else GitTracking.UNTRACKED


def _is_ignored(repository: Repository, place: str) -> bool:
    path = tuple(place.split("/"))
    rules = list(_list_rules(repository, path))
    # From the root down: every file in a folder that is ignored is ignored.
    for depth in range(1, len(path) + 1):
        above, is_folder = path[:depth], depth < len(path)
        # The last rule that fits decides, as in gitignore(5).
        last = next((rule for rule in reversed(rules) if _fits(rule, above, is_folder)), None)
        if last is not None and last.ignores:
            return True
    return False


def _list_rules(repository: Repository, path: tuple[str, ...]) -> Iterator[_IgnoreRule]:
    """Yield the rules that may concern a path; of two that fit it, the later one counts."""
    yield from _read_rules(Path(repository.git) / "info" / "exclude", 0)
    for depth in range(len(path)):
        yield from _read_rules(repository.root.joinpath(*path[:depth], ".gitignore"), depth)


def _read_rules(file: Path, base: int) -> Iterator[_IgnoreRule]:
    try:
        # git too does not follow a link here.
        data = None if file.is_symlink() else read_bounded(file, _MAX_RULES)
    except GitDamaged:
        return
    for line in (data or b"").decode("utf-8", "surrogateescape").removeprefix("\ufeff").split("\n"):
        if rule := _parse(line.removesuffix("\r"), base):
            yield rule


def _parse(line: str, base: int) -> _IgnoreRule | None:
    text = line.rstrip(" ")
    if text.endswith("\\") and len(text) < len(line):  # a space that is escaped stays
        text += " "
    if not text or text.startswith("#"):
        return None
    ignores = not text.startswith("!")
    pattern = text if ignores else text[1:]
    folders_only = pattern.endswith("/")
    pattern = pattern.removesuffix("/")
    parts = tuple(map(_convert_segment, pattern.removeprefix("/").split("/")))
    # A pattern without a slash fits at any depth.
    if "/" not in pattern:
        parts = ("**", *parts)
    return _IgnoreRule(base, parts, ignores, folders_only)


def _convert_segment(text: str) -> str:
    """Return one part of a pattern of git as `fnmatch` writes it."""
    pattern, is_escaped = "", False
    # git accepts both signs of negation, fnmatch one.
    for char in text.replace("[^", "[!"):
        if is_escaped:
            pattern += f"[{char}]" if char in "*?[" else char
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        else:
            pattern += char
    return pattern


def _fits(rule: _IgnoreRule, path: tuple[str, ...], is_folder: bool) -> bool:
    inner = path[rule.base :]
    if not inner or (rule.folders_only and not is_folder):
        return False
    # The set of depths that the pattern can have matched so far: linear where a recursion would be
    # exponential.
    reached, last = {0}, len(rule.parts) - 1
    for number, part in enumerate(rule.parts):
        if part == "**":
            # At the end: everything inside, and not the folder itself.
            beyond = 1 if number == last else 0
            reached = {to for at in reached for to in range(at + beyond, len(inner) + 1)}
        else:
            reached = {at + 1 for at in reached if at < len(inner) and fnmatchcase(inner[at], part)}
    return len(inner) in reached

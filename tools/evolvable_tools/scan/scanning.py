"""The scan of one change: every rule over every file that is new or has another content."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from evolvable_store.resource import Kind, main_file
from evolvable_tools.scan import capabilities as means
from evolvable_tools.scan.commands import commands
from evolvable_tools.scan.findings import Capability, CapabilityDiff, Finding, Scan, Severity, ordered
from evolvable_tools.scan.front import head
from evolvable_tools.scan.gains import gains
from evolvable_tools.scan.hidden import hidden
from evolvable_tools.scan.instructions import instructions
from evolvable_tools.scan.judging import judged
from evolvable_tools.scan.secrets import cut, secrets
from evolvable_tools.scan.shape import is_program, shape_of_bytes, shape_of_text
from evolvable_tools.scan.views import View, sparse, view_of

_RANK = {Severity.LOW: 0, Severity.MEDIUM: 1, Severity.HIGH: 2}
_RULES = (hidden, secrets, instructions, commands, shape_of_text)

MAX_FINDINGS = 200
"""Findings of one scan, worst first."""

MAX_TOLD = 3
"""Findings of one rule in one file that are told."""


def scan(before: Mapping[str, bytes] | None, after: Mapping[str, bytes], kind: Kind) -> Scan:
    """Returns what is found in a change from `before` (None: the resource is new) to `after`, path -> bytes.

    What stood there before counts as known: a finding is told only of text that the change brings. Says the same of
    the same files everywhere, reads nothing else, never raises for content, and takes time in proportion to it.
    """
    before = before or {}
    views = {path: view for path, data in after.items() if (view := view_of(path, data)) is not None}
    old = {path: views[path] if before[path] is after.get(path) else view_of(path, before[path]) for path in before}
    known = {path: view for path, view in old.items() if view is not None}
    found: list[Finding] = []
    changed = [path for path, data in after.items() if before.get(path) != data]
    parts = {path: sparse(known.get(path), views[path]) for path in changed if path in views}
    for path in changed:
        if path in views:
            found += _of_text(views[path], known.get(path), parts[path])
        else:
            found += shape_of_bytes(path, after[path])
    found = _once([*found, *judged(known, views, kind, is_new=not before)])
    difference = _difference(before, known, after, views, parts, kind)
    found += gains(difference.added, is_new=not before)
    return Scan(ordered(cut(found))[:MAX_FINDINGS], difference)


def _once(found: list[Finding]) -> list[Finding]:
    """Leave out what a rule says of a line on which a rule of a group before it says something as severe."""
    kept: list[Finding] = []
    said: dict[tuple[str, int], int] = {}
    for group in ("instruction.", "meaning.", "wording."):
        told = [one for one in found if one.rule.startswith(group)]
        kept += [one for one in told if said.get((one.path, one.line), -1) < _RANK[one.severity]]
        for one in told:
            place = (one.path, one.line)
            said[place] = max(said.get(place, -1), _RANK[one.severity])
    return [one for one in found if one in kept or not one.rule.startswith(("instruction.", "meaning.", "wording."))]


def _of_text(view: View, known: View | None, part: View) -> Iterator[Finding]:
    """Yield at most MAX_TOLD findings of each rule, and none that the known content has as often.

    part: the lines that are new. Only a rule that finds something there reads both texts whole.
    """
    for rule in _RULES:
        if known is not None and next(iter(rule(part if rule is not hidden else view)), None) is None:
            continue
        was = Counter((finding.rule, finding.excerpt) for finding in rule(known)) if known is not None else Counter()
        told: Counter[str] = Counter()
        for finding in rule(view):
            same = (finding.rule, finding.excerpt)
            was[same] -= 1
            told[finding.rule] += was[same] < 0
            if was[same] < 0 and told[finding.rule] <= MAX_TOLD:
                yield finding


def _difference(
    before: Mapping[str, bytes],
    known: Mapping[str, View],
    after: Mapping[str, bytes],
    views: Mapping[str, View],
    parts: Mapping[str, View],
    kind: Kind,
) -> CapabilityDiff:
    """Return the capabilities that a change adds and takes away; both texts are read only where a line has one."""
    if before and before.keys() == after.keys() and not views.keys() ^ known.keys():
        gone = {path: sparse(views[path], known[path]) for path in parts}
        if not any(means.of_texts(some) for some in (parts, gone)) and not _other_heads(known, views, parts):
            return CapabilityDiff()
    was = _capabilities(before, known, kind)
    has = _capabilities(after, views, kind)
    return CapabilityDiff(tuple(sorted(has - was)), tuple(sorted(was - has)))


def _other_heads(known: Mapping[str, View], views: Mapping[str, View], changed: Iterable[str]) -> bool:
    """Return whether a head or a file of settings is another one."""
    return any(path.endswith(".json") or head(known[path].text) != head(views[path].text) for path in changed)


def _capabilities(files: Mapping[str, bytes], views: Mapping[str, View], kind: Kind) -> frozenset[Capability]:
    main = next((path for path in files if path.casefold() == main_file(kind, "").casefold()), "")
    programs = {
        Capability(means.PROGRAM, path) for path, data in files.items() if path not in views and is_program(path, data)
    }
    return means.capabilities(views, main) | programs

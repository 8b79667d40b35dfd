"""The scan of one change: every rule over every file that is new or has another content.

The rules that judge the difference take what a change adds and takes away, by its structure first
and then by its words.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from evolvable_store import head_text
from evolvable_store.resource import Kind, main_file
from evolvable_tools.scan import capabilities as means
from evolvable_tools.scan.capabilities import capability_findings, frontmatter_findings
from evolvable_tools.scan.classifier import find_resembling, find_unseen
from evolvable_tools.scan.code_flows import (
    find_flows,
    find_new_addresses,
    find_new_hosts,
    find_weak_options,
)
from evolvable_tools.scan.content_rules import (
    cut_secrets,
    find_hidden,
    find_secret_forms,
    is_program,
    shape_of_bytes,
    shape_of_text,
)
from evolvable_tools.scan.scan_findings import (
    Capability,
    CapabilityDiff,
    Finding,
    Scan,
    order_findings,
)
from evolvable_tools.scan.sentence_rules import find_phrases, find_weakened
from evolvable_tools.scan.text_analysis import (
    Sentence,
    TextPart,
    TextView,
    changed_lines_of,
    parts,
    sentence_diff,
    view_of,
)


def judge_difference(
    before: Mapping[str, TextView], after: Mapping[str, TextView], kind: Kind, *, is_new: bool
) -> Iterator[Finding]:
    """Yield a finding for each thing in a change of the text files that a person should
    see first.
    """
    known_text = _KnownText(before)
    # File systems without case open `skill.md` as the main file too.
    main = main_file(kind, "").casefold()
    for path, view in after.items():
        old = before.get(path)
        if old is not None and old.text == view.text:
            continue
        added, removed = sentence_diff(old, view)
        yield from _judge_file(view, old, added, known_text, is_new)
        if removed and old is not None and _is_document(path):
            yield from find_weakened(old, added, removed, [view])
        if path.casefold() == main:
            was = next(
                (old_view for name, old_view in before.items() if name.casefold() == main), None
            )
            yield from frontmatter_findings(was if not is_new else None, view, kind)
    for path in before.keys() - after.keys():
        if _is_document(path):
            yield from find_weakened(before[path], [], parts(before[path]), after.values())


def _is_document(path: str) -> bool:
    return path.lower().endswith((".md", ".mdx", ".txt", ".rst", ".mdc", ".markdown"))


class _KnownText:
    """The text of the files before a change, in lower case.

    Read when a rule asks for it, which few changes need.
    """

    def __init__(self, views: Mapping[str, TextView]) -> None:
        self._views = views

    @cached_property
    def text(self) -> str:
        """The plain texts, joined by newlines; '' for a new resource."""
        return "\n".join(view.plain for view in self._views.values())

    def __contains__(self, part: object) -> bool:
        return isinstance(part, str) and part in self.text


def _judge_file(
    view: TextView,
    old: TextView | None,
    added: list[Sentence],
    known_text: _KnownText,
    is_new: bool,
) -> Iterator[Finding]:
    yield from find_unseen(view.path, added)
    yield from find_resembling(view.path, added, is_new=is_new)
    yield from find_new_hosts(view.path, added, known_text, is_new=is_new)
    yield from find_weak_options(view.path, added, is_new=is_new)
    if not is_new:
        yield from find_new_addresses(view.path, added, known_text)
    code = [sentence for sentence in added if sentence.part is TextPart.CODE]
    if not code:
        return
    new = "\n".join(sentence.text for sentence in code)
    if view.is_code:
        yield from find_flows(
            view,
            view.plain,
            is_file=True,
            changed=None if is_new else new,
            known_programs=known_text.text,
        )
    else:
        yield from find_flows(view, new, is_file=False, changed=None if is_new else new)


_RULES = (find_hidden, find_secret_forms, find_phrases, shape_of_text)

MAX_FINDINGS = 200
"""Findings of one scan, worst first.

More would only make an answer long: one is enough to hold the change.
"""

MAX_REPORTED = 3
"""Findings of one rule in one file that are reported."""


def scan(before: Mapping[str, bytes] | None, after: Mapping[str, bytes], kind: Kind) -> Scan:
    """Return what is found in a change from `before` (None: the resource is new) to `after`, path
    -> bytes.

    What stood there before counts as known: a finding is told only of text that the change brings.
    The result depends on the files alone. No content raises an error, and the time is linear in it.
    """
    before = before or {}
    views = {
        path: view for path, data in after.items() if (view := view_of(path, data)) is not None
    }
    # Two versions share the bytes of equal files; those that are no text have no view.
    old = {
        path: views.get(path) if data is after.get(path) else view_of(path, data)
        for path, data in before.items()
    }
    known_views = {path: view for path, view in old.items() if view is not None}
    findings: list[Finding] = []
    changed = [path for path, data in after.items() if before.get(path) != data]
    changed_lines = {
        path: changed_lines_of(known_views.get(path), views[path])
        for path in changed
        if path in views
    }
    for path in changed:
        if path not in views:
            findings += shape_of_bytes(path, after[path])
        elif before:
            findings += _find_in_text(views[path], known_views.get(path), changed_lines[path])
        else:
            findings += _find_in_new_file(views[path], after[path], kind)
    # A change is judged by its difference, which a new resource does not have.
    if before:
        findings += judge_difference(known_views, views, kind, is_new=False)
    change = _Change(kind, before, after, known_views, views, changed_lines)
    difference = _compare_capabilities(change)
    findings += capability_findings(difference.added, is_new=not before)
    return Scan(order_findings(cut_secrets(findings))[:MAX_FINDINGS], difference)


_MOST_PASSED = 4096  # files; at the bound the set starts again
_PASSED: set[tuple[Kind, str, bytes]] = set()
"""Files of new resources in which nothing was found, by the resource's kind, path and digest.

The kind decides which file is the main one: the AGENT.md of a skill grants nothing, that of an
agent does.

Skills of one author share schemas and licences. Findings are not cached, since they may show a
secret.
"""


def _find_in_new_file(view: TextView, data: bytes, kind: Kind) -> Iterator[Finding]:
    """Yield what is found in a text file of a new resource.

    A file that passed before is not read again.
    """
    key = kind, view.path, hashlib.sha256(data).digest()
    if key not in _PASSED:
        files = {view.path: view}
        findings = [
            *_find_in_text(view, None, view),
            *judge_difference({}, files, kind, is_new=True),
        ]
        yield from findings
        if not findings and view.path.casefold() != main_file(kind, "").casefold():
            if len(_PASSED) >= _MOST_PASSED:
                # Emptied as a whole: no order of use has to be kept.
                _PASSED.clear()
            _PASSED.add(key)


def _find_in_text(view: TextView, old_view: TextView | None, part: TextView) -> Iterator[Finding]:
    """Yield at most MAX_REPORTED findings of each rule, and none that the old text has as often.

    part: the lines that are new. Only a rule that finds something there reads both texts whole.
    """
    for rule in _RULES:
        # `find_hidden` needs the whole file: the emptied lines of the part would be a gap of blank
        # lines.
        scanned = view if rule is find_hidden else part
        if old_view is not None and next(iter(rule(scanned)), None) is None:
            continue
        # A finding that the old text had as often is not new.
        old_findings = rule(old_view) if old_view is not None else ()
        was = Counter((finding.rule, finding.excerpt) for finding in old_findings)
        rule_counts: Counter[str] = Counter()
        for finding in rule(view):
            same = (finding.rule, finding.excerpt)
            was[same] -= 1
            rule_counts[finding.rule] += was[same] < 0
            if was[same] < 0 and rule_counts[finding.rule] <= MAX_REPORTED:
                yield finding


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of a resource's files, by path.

    before, after: their bytes. known_views, views: those that are text, before and after.
    changed_lines: of the texts that are new or changed, the lines that the change brings.
    """

    kind: Kind
    before: Mapping[str, bytes]
    after: Mapping[str, bytes]
    known_views: Mapping[str, TextView]
    views: Mapping[str, TextView]
    changed_lines: Mapping[str, TextView]


def _compare_capabilities(change: _Change) -> CapabilityDiff:
    """Return the capabilities that a change adds and takes away.

    Both texts are read only if they may differ.
    """
    if change.before and not _may_differ(change):
        return CapabilityDiff()
    texts: means.KnownTexts = {}
    was = _collect_capabilities(change.before, change.known_views, change.kind, texts)
    has = _collect_capabilities(change.after, change.views, change.kind, texts)
    return CapabilityDiff(tuple(sorted(has - was)), tuple(sorted(was - has)))


def _may_differ(change: _Change) -> bool:
    """Return whether the capabilities may differ: a line that comes or goes has one, or no line
    alone can tell.

    No line can tell for a head, a file of settings, and a file that is no text. A file that did not
    change has the same capabilities on both sides.
    """
    before, after = change.before, change.after
    known_views, views = change.known_views, change.views
    gone, new = before.keys() - after.keys(), after.keys() - before.keys()
    both = [path for path in after.keys() & before.keys() if before[path] != after[path]]
    if not known_views.keys() >= {*gone, *both} or not views.keys() >= {*new, *both}:
        return True
    main = main_file(change.kind, "").casefold()
    # Settings count as a whole, and the name of a main file decides what its head grants.
    if any(path.endswith(".json") or path.casefold() == main for path in gone | new):
        return True
    if any(
        path.endswith(".json") or head_text(known_views[path].text) != head_text(views[path].text)
        for path in both
    ):
        return True
    removed_lines = (changed_lines_of(views[path], known_views[path]) for path in both)
    gone_views = (known_views[path] for path in gone)
    texts = [*change.changed_lines.values(), *removed_lines, *gone_views]
    return next(means.capabilities_of_texts(texts), None) is not None


def _collect_capabilities(
    files: Mapping[str, bytes], views: Mapping[str, TextView], kind: Kind, cache: means.KnownTexts
) -> frozenset[Capability]:
    main = next((path for path in files if path.casefold() == main_file(kind, "").casefold()), "")
    programs = (
        path for path, data in files.items() if path not in views and is_program(path, data)
    )
    return means.capabilities(views, main, cache) | {
        Capability(means.PROGRAM, path) for path in programs
    }

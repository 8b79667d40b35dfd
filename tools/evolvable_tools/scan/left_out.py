"""Files that lie in a resource's folder and belong to no version, and that its text tells an agent
to use.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

from evolvable_tools.scan.scan_findings import Finding, FindingSeverity
from evolvable_tools.scan.text_analysis import view_of

_VERSION_CONTROL = (".git", ".hg", ".svn")
"""No repository brings these, and texts about version control name them."""

_AT_ONCE = 200
"""Paths that one expression looks for."""


def find_left_out(files: Mapping[str, bytes], left_out: Iterable[str]) -> Iterator[Finding]:
    """Yield a finding for each text that names a file that is left out: no scan read it, and an
    agent can run it.

    left_out: paths; a folder ends with a slash, and counts where a text names something in it.
    """
    paths = [
        path for path in left_out if path.strip("/").rpartition("/")[2] not in _VERSION_CONTROL
    ]
    # All of them: a stranger who can put one file there can put others before it.
    patterns = sorted(set(map(_make_pattern, paths)))
    groups = [patterns[start : start + _AT_ONCE] for start in range(0, len(patterns), _AT_ONCE)]
    expressions = [re.compile("|".join(group), re.IGNORECASE) for group in groups]
    for path, data in files.items() if expressions else ():
        view = view_of(path, data)
        if view is None:
            continue
        matches = (expression.search(view.text) for expression in expressions)
        match = next(filter(None, matches), None)
        if match is not None:
            why = "it names a file that no version holds and that no scan read"
            hint = "Look at the file where it lies, or leave it out of the text."
            excerpt = view.excerpt(match.start(), match.end())
            line = view.line(match.start())
            yield Finding("file.left-out", FindingSeverity.HIGH, path, line, excerpt, why, hint)


def _make_pattern(path: str) -> str:
    name = re.escape(path.rstrip("/").rpartition("/")[2])
    ending = r"[/\\][\w.@-]" if path.endswith("/") else r"(?![\w-])"
    # The name alone is enough: a text gives a path from where it lies, or from where the agent
    # works.
    return rf"(?<![\w.-]){name}{ending}"

"""The findings of a scan, the capabilities that a change adds and takes away, and the pattern
tables of the rules.
"""

import itertools
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from evolvable_tools.scan.text_loops import PartFinder


class FindingSeverity(StrEnum):
    """The consequence of a finding, worst first."""

    HIGH = "high"
    """Refused: no reason for it is known."""

    MEDIUM = "medium"
    """Waits for a person."""

    LOW = "low"
    """Shown, and nothing else."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a rule found.

    rule: its name, as docs/scan.md lists it. path, line: where, counted from 1; '' and 0 for the
    resource as a whole. excerpt: one line of what stands there, with everything invisible written
    out and every secret cut. why: what it could do. hint: what to do about it.
    """

    rule: str
    severity: FindingSeverity
    path: str
    line: int
    excerpt: str
    why: str
    hint: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        where = f"{place}: " if place else ""
        return f"{where}{self.why} [{self.rule}]" + (f": {self.excerpt}" if self.excerpt else "")


@dataclass(frozen=True, slots=True, order=True)
class Capability:
    """One thing that a resource has the means to do: `kind` is what, such as network, `what` with
    whom or where.
    """

    kind: str
    what: str

    def __str__(self) -> str:
        return f"{self.kind} {self.what}"


@dataclass(frozen=True, slots=True)
class CapabilityDiff:
    """The capabilities that a change adds and takes away, in order."""

    added: tuple[Capability, ...] = ()
    removed: tuple[Capability, ...] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """The result of a scan: the findings, worst first, and the capabilities."""

    findings: tuple[Finding, ...]
    capabilities: CapabilityDiff

    @property
    def blocks(self) -> bool:
        """Whether the change is refused."""
        return any(finding.severity is FindingSeverity.HIGH for finding in self.findings)

    @property
    def asks(self) -> bool:
        """Whether the change waits for a person."""
        return any(finding.severity is FindingSeverity.MEDIUM for finding in self.findings)


def order_findings(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings worst first, then by place; equal ones once."""
    ranks = {severity: rank for rank, severity in enumerate(FindingSeverity)}

    def place(finding: Finding) -> tuple[int, str, int, str, str]:
        rank = ranks[finding.severity]
        return rank, finding.path, finding.line, finding.rule, finding.excerpt

    return tuple(sorted(dict.fromkeys(findings), key=place))


_PART = re.compile(r"\{([a-z_]+)\}")
_EACH = re.compile(r"\{([a-z_]+)\*\}")


class PatternTable:
    """A data file of the scan, in TOML. Its patterns are lists of alternatives.

    `{name}` in an alternative stands for an entry of [parts]: a piece of a pattern, or a list of
    alternatives. `{name*}` makes one alternative of each entry of such a list.
    """

    def __init__(self, name: str) -> None:
        self.data = tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
        self._parts: dict[str, str] = {}
        for part, source in self.data.get("parts", {}).items():
            self._parts[part] = (
                self.join([source]) if isinstance(source, str) else f"(?:{self.join(source)})"
            )

    def join(self, alternatives: Iterable[str]) -> str:
        """Return the pattern of any of the alternatives."""
        return _PART.sub(lambda part: self._parts[part[1]], "|".join(alternatives))

    def alternatives(self, name: str) -> "Alternatives":
        """Return the alternatives of this name in [patterns], each searched by itself."""
        return Alternatives(self.sources(name))

    def sources(self, name: str) -> list[str]:
        """Return the patterns of the alternatives of this name in [patterns]."""
        each = itertools.chain.from_iterable(map(self._expand, self.data["patterns"][name]))
        return [self.join([alternative]) for alternative in each]

    def _expand(self, alternative: str) -> Iterable[str]:
        match = _EACH.search(alternative)
        if match is None:
            return (alternative,)
        return [
            match.string[: match.start()] + replacement + match.string[match.end() :]
            for replacement in self.data["parts"][match[1]]
        ]

    def core(self, row: Mapping[str, Any]) -> "Alternatives | None":
        """Return the part that stands in each match of a row's pattern, None if the row
        names none.
        """
        return (
            Alternatives([self.join([alternative]) for alternative in row["core"]])
            if "core" in row
            else None
        )

    def compile(self, name: str) -> re.Pattern[str]:
        """Return the pattern of this name in [patterns]."""
        return re.compile(self.join(self.data["patterns"][name]))


_LEAST_LITERAL = 2  # characters: a single letter stands in nearly every text


class Alternatives:
    """Alternatives of which a text is searched only for those whose plain letters stand in it.

    `re` tries every alternative at every character; a text has the letters of few of them, which
    `in` finds at once.
    """

    def __init__(self, sources: Iterable[str]) -> None:
        self._sources = [(literal_of(source), source) for source in sources]
        self._literals = PartFinder(tuple({literal for literal, _ in self._sources if literal}))
        self._all_literal = all(literal for literal, _ in self._sources)
        self._compiled: dict[str, re.Pattern[str]] = {}

    def search(self, text: str, start: int = 0, end: int = sys.maxsize) -> re.Match[str] | None:
        """Return the first match, None where there is none."""
        literals_found = self._literals.find(text)
        if not literals_found and self._all_literal:
            return None
        first = None
        for literal, source in self._sources:
            if literal and literal not in literals_found:
                continue
            pattern = self._compiled.get(source)
            if pattern is None:
                # Compiled when first needed: most alternatives have no text that needs them.
                pattern = self._compiled[source] = re.compile(
                    literal_first(source) if literal else source
                )
            match = pattern.search(text, start, end)
            # The earliest match, as one pattern of all alternatives would find it.
            if match is not None and (first is None or match.start() < first.start()):
                first = match
        return first


# A border, `\b` or a negative look-behind of one character, and the letters after it that nothing
# repeats.
_BORDER = re.compile(r"(\\b|\(\?<!(?:\[[^\]]+\]|\\w)\))((?:[a-z0-9_/-]|\\[.(/-]){2,}+)(?![?*+{|])")


def literal_first(source: str) -> str:
    """Return an equal pattern that begins with its letters and looks back for the border before
    them.

    `re` looks for the letters that a pattern begins with faster than it tries a border at every
    character. source: without alternatives outside of groups.
    """
    match = _BORDER.match(source)
    if match is None:
        return source
    border, letters = match.groups()
    before = f"(?<={border}{letters})" if border == r"\b" else f"{border[:-1]}{letters})"
    return f"{letters}{before}{source[match.end() :]}"


# In this order: each removes a construct whose letters do not have to stand in every match. Escaped
# brackets go first, so that the brackets that are left are those of groups and classes.
_BRACKET = re.compile(r"\\[()|\[\]]")
_GROUP = re.compile(r"\((?:[^()\\\[\]]|\\.|\[(?:[^\]\\]|\\.)*\])*\)(?:[?*+]|\{[\d,]*\})?\??")
_CLASS = re.compile(r"\[(?:[^\]\\]|\\.)*\](?:[?*+]|\{[\d,]*\})?\??")
_OPTIONAL = re.compile(r"(?:\\.|.)(?:[?*]|\{0?,?\d*(?:,\d*)?\})\??")
_OTHER = re.compile(r"\\[a-zA-Z0-9]\+?|[\^$.|+]")


def literal_of(source: str) -> str:
    """Return letters that stand in all that a pattern matches: its longest plain run, '' where it
    has none.
    """
    rest = _CLASS.sub("\0", _BRACKET.sub("\0", source))
    # Groups nest, so the innermost go first.
    while (shorter := _GROUP.sub("\0", rest)) != rest:
        rest = shorter
    # An alternative is left outside of a group: no letters stand in every match.
    if "|" in rest or "(" in rest:
        return ""
    rest = _OTHER.sub("\0", _OPTIONAL.sub("\0", rest)).replace("\\", "")
    longest = max(rest.split("\0"), key=len)
    return longest if len(longest) >= _LEAST_LITERAL else ""

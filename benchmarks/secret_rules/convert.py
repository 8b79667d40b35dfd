"""Convert gitleaks' rules, which are written for RE2, to patterns that Python's engine runs in
linear time.

    python benchmarks/secret_rules/convert.py

Run it after a new gitleaks.toml; it writes rules.json of the package again.
gitleaks.toml is gitleaks' own (MIT; its licence is `gitleaks.LICENSE` beside rules.json).
"""

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from evolvable_tools import redaction

SOURCE = Path(__file__).with_name("gitleaks.toml")
TARGET = Path(redaction.__file__).with_name("rules.json")

MIN_ANCHOR = 3
"""Characters that every match of a rule must begin with, so that few places of a text are looked
at.
"""

MAX_RUN = 1_000
"""Characters that a repetition without an end may take."""

NOT_USED = {
    "generic-api-key": "named_secrets does this, with fewer false positives",
    "private-key": "secret_patterns does this, with cut and quoted blocks too",
    "jwt": "secret_patterns does this",
    "jwt-base64": "its place in a text is not bounded",
    "kubernetes-secret-yaml": "named_secrets does this",
    "curl-auth-header": "named_secrets does this",
    "curl-auth-user": "named_secrets does this",
    "pkcs12-file": "it looks at names of files",
    "sourcegraph-access-token": "any 40 hexadecimal characters match, as in a commit",
    "azure-ad-client-secret": "its beginning is not fixed; token_detection does this",
    "facebook-access-token": "its beginning is not fixed; token_detection does this",
    "hashicorp-tf-api-token": "its beginning is not fixed; token_detection does this",
    "maxmind-license-key": "its beginning is not fixed; token_detection does this",
    "twilio-api-key": "two fixed characters are too few; secret_patterns does this",
    "vault-service-token": (
        "two fixed characters are too few; secret_patterns and token_detection do this"
    ),
}
"""Rules that are left out, and why."""

_LAZY_LEAD = r"[\w.-]{0,50}?"
_END, _WIDER_END = (
    r"""(?:[\x60'"\s;]|\\[nr]|$)""",
    r"""(?=[\x60'"\s;,)<>&|\]}]|\\[nrtu"]|[.:](?:\s|$)|$)""",
)
_OPEN_REPEAT = re.compile(r"(?<!\\)\{(\d+),\}")


def convert(source: str) -> list[dict[str, Any]]:
    """Return the rules as rows for rules.json, each with its id, pattern, anchors, group, entropy
    and allowed values.

    Raises:
        ValueError: A rule's pattern cannot be run in linear time; name it in NOT_USED or bound it.
    """
    rules = tomllib.loads(source)["rules"]
    return [_row(rule) for rule in rules if rule["id"] not in NOT_USED]


def _row(rule: Mapping[str, Any]) -> dict[str, Any]:
    pattern = python_pattern(rule["regex"])
    anchors = _anchors(pattern)
    if min(map(len, anchors), default=0) < MIN_ANCHOR:
        raise ValueError(f"{rule['id']}: its matches begin with {sorted(anchors)}")
    allowed = [
        python_pattern(one)
        for each in rule.get("allowlists", ())
        if each.get("regexTarget", "secret") == "secret" and each.get("condition", "OR") == "OR"
        for one in each.get("regexes", ())
    ]
    row = {
        "id": rule["id"],
        "pattern": pattern,
        "anchors": sorted(anchors),
        "entropy": rule.get("entropy", 0),
    }
    if rule.get("secretGroup"):
        row["group"] = rule["secretGroup"]
    return row | ({"allowed": allowed} if allowed else {})


def python_pattern(regex: str) -> str:
    """Return a pattern of RE2 in Python's words, without a lazy lead, with every repetition bounded
    and more ends.
    """
    regex = regex.replace(_LAZY_LEAD, "").replace(_END, _WIDER_END)
    regex = regex.replace("[:alnum:]", "A-Za-z0-9").replace(r"\z", r"\Z")
    regex = _OPEN_REPEAT.sub(lambda found: f"{{{found[1]},{max(MAX_RUN, int(found[1]))}}}", regex)
    return _scoped(regex)


def _scoped(regex: str) -> str:
    """Return a pattern whose flags in the middle end where their group ends, and whose `*` and `+`
    are bounded.
    """
    made: list[str] = []
    opened: list[int] = [0]
    at, in_class = 0, False
    while at < len(regex):
        char = regex[at]
        piece = regex[at : at + 2] if char == "\\" else char
        if in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif regex.startswith("(?i)", at) and at:
            piece, opened[-1] = "(?i:", opened[-1] + 1
            at += 2
        elif char == "(":
            opened.append(0)
        elif char == ")":
            piece = ")" * opened.pop() + ")"
        elif char in "*+":
            piece = f"{{{'01'['*+'.index(char)]},{MAX_RUN}}}"
        made.append(piece)
        at += 2 if piece in ("(?i:",) or char == "\\" else 1
    return "".join(made) + ")" * opened[0]


def _anchors(pattern: str) -> set[str]:
    """Return what the matches of a pattern begin with, in lower case."""
    return {prefix.lower() for prefix, _ in _prefixes(list(parser.parse(pattern, re.ASCII)))}


def _prefixes(tokens: list[Any]) -> set[tuple[str, bool]]:
    """Return the literal beginnings of what tokens match, each with whether it goes on to their
    end.
    """
    found = {("", True)}
    for code, value in tokens:
        open_ones = {one for one in found if one[1]}
        if not open_ones or max(len(prefix) for prefix, _ in found) >= 24:
            return {(prefix, False) for prefix, _ in found}
        following = _first(code, value)
        grown = {(before + after, whole) for before, _ in open_ones for after, whole in following}
        if len(grown) > 60:
            return {(prefix, False) for prefix, _ in found}
        found = (found - open_ones) | grown
    return found


def _first(code: Any, value: Any) -> set[tuple[str, bool]]:
    if code is codes.LITERAL:
        return {(chr(value), True)}
    if code is codes.AT:
        return {("", True)}
    if code is codes.SUBPATTERN:
        return _prefixes(list(value[3]))
    if code is codes.BRANCH:
        return {prefix for branch in value[1] for prefix in _prefixes(list(branch))}
    if code is codes.MAX_REPEAT and value[0] == value[1] == 1:
        return _prefixes(list(value[2]))
    if code is codes.MAX_REPEAT and (value[0], value[1]) == (0, 1):
        return {("", True)} | _prefixes(list(value[2]))
    if code is codes.IN and all(one is codes.LITERAL for one, _ in value) and len(value) <= 5:
        return {(chr(each), True) for _, each in value}
    return {("", False)}


if __name__ == "__main__":
    rows = convert(SOURCE.read_text(encoding="utf-8"))
    lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
    TARGET.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    sys.stdout.write(f"{len(rows)} rules\n")

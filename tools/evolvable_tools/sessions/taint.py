"""The origin of text: of the result of a tool, of what a client wraps around a person's words, and
of quotes.

Text that a later span repeats keeps the origin of the first.
"""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolvable_tools.sessions.session import UNTRUSTED, Origin

TABLES: dict[str, dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("origins.toml").read_text("utf-8")
)
"""What is known of the clients' tools, tags and prompts."""

_TOOLS = {group: frozenset(names.split()) for group, names in TABLES["tools"].items()}
COMMANDS, CONTINUES = _TOOLS["commands"], _TOOLS["continues"]
_OURS = re.compile(
    r"^(?:mcp__(?:plugin_)?evolvable(?:_evolvable)?(?:__|\.)|evolvable_{2,3}|mcp_evolvable_|"
    r"evolvable-)(\w+)$"
)
_OUR_DOCUMENTS = frozenset(("load_skill", "get_resource"))
_PATH_KEYS = ("file_path", "path", "notebook_path", "filePath", "dir_path")

_PATTERNS = {name: re.compile(pattern) for name, pattern in TABLES["patterns"].items()}
_GIVES = {"web": Origin.WEB, "own_words": Origin.ASSISTANT, "client": Origin.MEMORY}


def result_origin(
    tool: str | None, arguments: Mapping[str, Any] | None, project: str | None
) -> tuple[Origin, str | None]:
    """Return where the result of a call came from, and the skill that it is the text of, if it is.

    An unknown tool is a third party's.
    """
    arguments = arguments or {}
    if tool is None:
        return Origin.MCP, None
    if tool in _TOOLS["skills"]:
        return Origin.SKILL, _find_first(arguments, "skill", "name", "command")
    if tool in COMMANDS:
        return _judge_command(command_line(arguments))
    if tool in _TOOLS["files"]:
        return _judge_path(_find_first(arguments, *_PATH_KEYS), project)
    if (ours := _OURS.match(tool)) is not None:
        return _judge_ours(ours[1], arguments)
    groups = (origin for group, origin in _GIVES.items() if tool in _TOOLS[group])
    return next(groups, Origin.MCP), None


def command_line(arguments: Mapping[str, Any]) -> str:
    """Return the line of shell that a call runs, '' when it runs none."""
    value = next((arguments[key] for key in ("command", "cmd", "script") if arguments.get(key)), "")
    # Codex gives a command as a list of words, other clients as one line.
    if isinstance(value, list | tuple):
        words = [word for word in value if isinstance(word, str)]
        # A shell with a line to run is given as a list of three words, and the line is the last.
        if len(words) > 2 and re.fullmatch(r"-[a-z]*c", words[-2]):
            return words[-1]
        return " ".join(words)
    return value if isinstance(value, str) else ""


def _judge_command(command: str) -> tuple[Origin, str | None]:
    """Return what a command's output is: text of others when it fetches any, a skill or memory when
    it reads one.
    """
    # The patterns below are searched in hostile text, so its length is bounded.
    line = command[:20_000]
    if _PATTERNS["fetches"].search(line) and not _is_local(line):
        return Origin.WEB, None
    if _PATTERNS["reads"].search(line):
        match = _PATTERNS["skill_file"].search(line)
        if match is not None:
            return Origin.SKILL, match[2] or match[3]
        if _PATTERNS["memory_file"].search(line):
            return Origin.MEMORY, None
        if _PATTERNS["third_party"].search(line):
            return Origin.WEB, None
    return Origin.COMMAND, None


def _is_local(line: str) -> bool:
    """Return whether a command names addresses, and all of them are of this machine."""
    local = _PATTERNS["local_url"].findall(line)
    return bool(local) and len(_PATTERNS["any_url"].findall(line)) == len(local)


def _judge_path(path: str | None, project: str | None) -> tuple[Origin, str | None]:
    if path is None:
        return Origin.REPOSITORY, None
    plain = path.replace("\\", "/")
    if (place := _PATTERNS["skill_place"].search(plain)) is not None:
        return Origin.SKILL, place[1]
    if (file := _PATTERNS["skill_file"].search(plain)) is not None:
        return Origin.SKILL, file[2] or file[3]
    if _PATTERNS["memory_file"].search(plain):
        return Origin.MEMORY, None
    is_outside = project is not None and not _lies_in(plain, project)
    if is_outside or _PATTERNS["third_party"].search(plain):
        return Origin.WEB, None
    return Origin.REPOSITORY, None


def _lies_in(path: str, project: str) -> bool:
    base = os.path.normpath(project.replace("\\", "/"))
    whole = os.path.normpath(os.path.join(base, path))
    return whole == base or whole.startswith(base.rstrip("/") + "/")


def _judge_ours(tool: str, arguments: Mapping[str, Any]) -> tuple[Origin, str | None]:
    ref = _find_first(arguments, "ref") or ""
    kind, colon, name = ref.partition(":")
    if colon and kind != "skill":
        return Origin.MEMORY, None
    if tool in _OUR_DOCUMENTS and ref:
        return Origin.SKILL, (name if colon else ref).partition("@")[0].rpartition("/")[2]
    # Library texts, review requests and proposals: the library's own words prove nothing.
    return Origin.MEMORY, None


def _find_first(arguments: Mapping[str, Any], *keys: str) -> str | None:
    values = (arguments.get(key) for key in keys)
    return next((value for value in values if isinstance(value, str) and value), None)


_ORIGINS = {tag: Origin(origin) for origin, tags in TABLES["tags"].items() for tag in tags.split()}
_OPEN = re.compile(rf"<({'|'.join(map(re.escape, _ORIGINS))})(?=[\s>])[^>\n]{{0,500}}>")


@dataclass(frozen=True, slots=True)
class MessagePart:
    """A part of a message in a person's name, and where it came from. skill: whose text it is."""

    origin: Origin
    text: str
    skill: str | None = None


def split_message(text: str) -> Iterator[MessagePart]:
    """Yield the parts of a message that a client notes as the user's, in order.

    The person typed those of origin USER.
    """
    start = text.lstrip()
    for beginning, origin in TABLES["beginnings"].items():
        if start.startswith(beginning):
            yield _make_injected_part(text, Origin(origin))
            return
    setup = None
    if start.startswith("# Context from my IDE setup:"):
        setup = _PATTERNS["codex_request"].match(text)
    if setup is not None:
        yield MessagePart(Origin.MEMORY, setup[0])
        text = text[setup.end() :]
    command = ""
    for part, tag in _cut_at_tags(text):
        if tag == "command-name":
            command = part.text.strip()
        elif tag == "command-args":
            arguments = part.text.strip()
            if arguments:
                yield MessagePart(Origin.USER, f"{command} {arguments}".strip())
            continue
        if part.text.strip():
            yield part


def _make_injected_part(text: str, origin: Origin) -> MessagePart:
    return MessagePart(origin, text, skill_name(text) if origin is Origin.SKILL else None)


def _cut_at_tags(text: str) -> Iterator[tuple[MessagePart, str]]:
    """Yield each part with the tag that it stood in, '' for what stood in none."""
    at = 0
    while (opening := _OPEN.search(text, at)) is not None:
        tag = opening[1]
        closing = text.find(f"</{tag}>", opening.end())
        end = len(text) if closing < 0 else closing + len(tag) + 3
        yield MessagePart(Origin.USER, text[at : opening.start()]), ""
        inner = text[opening.end() : closing if closing >= 0 else len(text)]
        inner = f"! {inner}" if tag == "bash-input" else inner
        yield _make_injected_part(inner, _ORIGINS[tag]), tag
        at = end
    yield MessagePart(Origin.USER, text[at:]), ""


def skill_name(text: str) -> str | None:
    """Return the name of the skill whose text a client put into the context, None where it does not
    say.
    """
    match = _PATTERNS["skill_name"].search(text[:2_000])
    return (match[1] or match[2]) if match else None


# Lower values of RUN, LINE and COPIED take common phrases for quotations; higher ones miss short
# copies.
RUN = 7
"""Words in a row that are no coincidence."""

LINE = 4
"""Words of a whole line that are none."""

COPIED = 12
"""Words in a row, or half of all words, that make a result of a tool a copy."""

MAX_KNOWN = 200_000
"""Runs of words, and lines, that are remembered of one session; of more, every eighth."""

MAX_SEARCHED = 8_000
"""Characters of a tool's result in which quotations are looked for also within lines."""

MAX_OWN = 4_000
"""Characters of an argument of a call that are remembered as its caller's words."""

_WORD = re.compile(r"\w+")
_AROUND = " \t\r\n#>*-|+`'\"0123456789→.:"
_SPOKEN = frozenset((Origin.USER, Origin.ASSISTANT))


class QuoteTracker:
    """Remembers who said what first, span by span in the order of the session."""

    def __init__(self) -> None:
        self._lines: dict[int, Origin] = {}
        self._runs: dict[int, Origin] = {}
        self._own: set[int] = set()

    def divide(self, text: str, origin: Origin, *, whole: bool = False) -> list[tuple[str, Origin]]:
        """Return the parts of a text with their origins, in order, and remember them.

        A person's text is divided at every earlier text of another origin, and every other text at
        text of third parties. whole: the text is not divided, and is that of third parties when
        most of it is a copy.
        """
        if origin in UNTRUSTED:
            self._remember(text, origin)
            return [(text, origin)]
        marks = self._find_quotes(text, origin)
        if whole:
            parts = [(text, (_find_main_source(marks, text) or origin) if marks else origin)]
        else:
            parts = list(_cut_at_quotes(text, marks, origin)) if marks else [(text, origin)]
        for part, of in parts:
            self._remember(part, of)
        return parts

    def note(self, value: Mapping[str, Any] | None) -> None:
        """Remember the input of a call as its caller's own words, so that an echo of it keeps that
        origin.
        """
        for text in (value or {}).values():
            if isinstance(text, str) and len(text) <= MAX_OWN:
                self._own.update(
                    mark for mark in _hash_runs(_split_words(text)) if mark not in self._runs
                )

    def _remember(self, text: str, origin: Origin) -> None:
        lines = self._lines
        for line in text.splitlines():
            stripped = line.strip(_AROUND)
            if stripped.count(" ") >= LINE - 1 and len(lines) < MAX_KNOWN:
                lines.setdefault(hash(stripped), origin)
        if origin in UNTRUSTED:
            runs, own = self._runs, self._own
            for mark in _hash_runs(_split_words(text)):
                # Beyond the limit a sample still finds long copies, of which some run is among
                # every eighth.
                if mark not in own and (len(runs) < MAX_KNOWN or mark % 8 == 0):
                    runs.setdefault(mark, origin)
        elif origin in (Origin.USER, Origin.ASSISTANT) and len(self._own) < MAX_KNOWN:
            self._own.update(
                mark for mark in _hash_runs(_split_words(text)) if mark not in self._runs
            )

    def _find_quotes(self, text: str, origin: Origin) -> list[tuple[int, int, Origin]]:
        """Return (start, end, origin) of earlier texts of others."""
        marks: list[tuple[int, int, Origin]] = []
        if self._runs and (origin in _SPOKEN or len(text) <= MAX_SEARCHED):
            marks = self._find_repeats(text)
        at, lines = 0, self._lines
        for line in text.splitlines(keepends=True):
            stripped = line.strip(_AROUND)
            if stripped.count(" ") >= LINE - 1:
                of = lines.get(hash(stripped))
                is_others = origin is Origin.USER and of is not Origin.USER
                if of is not None and (of in UNTRUSTED or is_others):
                    marks.append((at, at + len(line), of))
            at += len(line)
        return sorted(marks)

    def _find_repeats(self, text: str) -> list[tuple[int, int, Origin]]:
        runs = self._runs
        origins = [runs.get(mark) for mark in _hash_runs(_split_words(text))]
        if not any(origins):
            return []
        places = [match.span() for match in _WORD.finditer(text.lower())]
        return [
            (places[first][0], places[first + RUN - 1][1], of)
            for first, of in enumerate(origins)
            if of is not None
        ]


def _split_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _hash_runs(words: Sequence[str]) -> Iterator[int]:
    # `hash` is enough here: the marks live only as long as the process reads one session.
    return map(hash, zip(*(words[start:] for start in range(RUN)), strict=False))


def _find_main_source(marks: Sequence[tuple[int, int, Origin]], text: str) -> Origin | None:
    """Return whose copy a text is, by its longest quotation; None when it is hardly one."""
    length = max(1, len(text))
    joined = list(_join_marks(marks))
    longest = max(joined, key=lambda mark: mark[1] - mark[0])
    copied = len(_WORD.findall(text[longest[0] : longest[1]])) >= COPIED
    share = sum(end - start for start, end, _ in joined) / length
    return longest[2] if copied or share >= 0.5 else None


def _join_marks(marks: Sequence[tuple[int, int, Origin]]) -> Iterator[tuple[int, int, Origin]]:
    """Yield the marks, those that touch or overlap as one; of third parties if one of them is."""
    now: tuple[int, int, Origin] | None = None
    for start, end, of in marks:
        if now is not None and start <= now[1] + 2:
            now = (now[0], max(now[1], end), now[2] if now[2] in UNTRUSTED else of)
        else:
            if now is not None:
                yield now
            now = (start, end, of)
    if now is not None:
        yield now


def _cut_at_quotes(
    text: str, marks: Sequence[tuple[int, int, Origin]], origin: Origin
) -> Iterator[tuple[str, Origin]]:
    at = 0
    for start, end, of in _join_marks(marks):
        if _WORD.search(text, at, start):
            yield text[at:start].strip(), origin
        else:
            start = at
        end = end if _WORD.search(text, end) else len(text)
        yield text[start:end].strip(), of
        at = end
    if text[at:].strip():
        yield text[at:].strip(), origin

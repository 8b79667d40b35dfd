"""Read the head of a main file from any bytes, and find its defects."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evolvable_store.safe_yaml import YamlEntry

# Bounds the time that the YAML parser spends on a hostile head.
MAX_FRONTMATTER = 16 * 1024
"""Bytes between the fences."""

# The limit of the Agent Skills specification.
MAX_DESCRIPTION = 1024
"""Characters of a description."""

# A byte order mark and up to 100 blank lines may stand before the first fence; the bound keeps the
# match linear.
_OPEN = re.compile(rb"(?:\xef\xbb\xbf)?(?:[ \t]*\r?\n){0,100}---[ \t]*\r?\n")
_CLOSE = re.compile(rb"\n---[ \t]*\r?(?=\n|\Z)")
# Where the closing fence is missing: the body is taken to begin at a blank line or a heading.
_LOOSE_END = re.compile(rb"\n(?=[ \t]*\r?\n|#)")
# %YAML and %TAG change what the lines after them mean, so a head with one is refused.
_DIRECTIVE = re.compile(rb"(?:\xef\xbb\xbf)?\s*%(?:YAML|TAG)\b")
_CONTROLS = bytes({*range(32), 127} - set(b"\t\n\r"))
_CONTROL = re.compile(b"[" + re.escape(_CONTROLS) + b"]")
# `describe` needs the first paragraph alone.
_MAX_PROSE = 64 * 1024
"""Characters of a body in which the first paragraph is looked for."""

# A fenced block is no prose; the same fence has to close it.
_CODE = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1", re.DOTALL | re.MULTILINE)
# Beginnings of lines that are HTML, quotes, tables, rules, images or badges, and fences.
_NO_PROSE = ("<", "|", "---", "***", "===", "![", "[![", "```", "~~~")


class Severity(StrEnum):
    """How much is wrong, worst first."""

    REFUSE = "refuse"
    """Hostile or unreadable: always refused."""

    UNFINISHED = "unfinished"
    """Left by a crash or an open merge: refused in files that arrive, accepted within a history."""

    ERROR = "error"
    """Breaks a specification: a warning for people's files, refused in what a model proposes."""

    WARNING = "warning"
    """Readable by every client, and reported."""


@dataclass(frozen=True, slots=True)
class Defect:
    """One thing that is wrong with a main file.

    `text` goes on after the file's name: "it has ...".
    """

    severity: Severity
    text: str


NO_FRONTMATTER = Defect(
    Severity.ERROR, "it has no frontmatter: start it with ---, name, description, ---"
)
UNTERMINATED = Defect(
    Severity.ERROR, "its frontmatter does not end: put a line --- after the last key"
)
NO_MAPPING = Defect(Severity.REFUSE, "its frontmatter is not a mapping of keys to values")


@dataclass(frozen=True, slots=True)
class Document:
    """A main file: JSON-like `fields`, the `body` with line ends \\n, and the defects found in it.

    `fields` is empty when there is no frontmatter and when it was refused.
    """

    fields: Mapping[str, object]
    body: str
    defects: tuple[Defect, ...]


def parse_document(data: bytes) -> Document:
    """Return the document in these bytes.

    Whatever is wrong is a defect; content never makes it raise.
    """
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        defect = Defect(Severity.REFUSE, f"it is not UTF-8 (byte {error.start})")
        return Document({}, data.decode("utf-8", "replace"), (defect,))
    defects = list(_find_character_defects(data))
    opening = _OPEN.match(data)
    if opening is None:
        hostile = Defect(Severity.REFUSE, "it has a YAML directive before the frontmatter")
        defects.append(hostile if _DIRECTIVE.match(data) else NO_FRONTMATTER)
        return Document({}, _decode_text(data), tuple(defects))
    first_line = data.count(b"\n", 0, opening.end()) + 1
    if first_line > 2:
        defects.append(Defect(Severity.WARNING, "it has blank lines before its frontmatter"))
    place = find_frontmatter(data)
    if place is None:
        return Document({}, _decode_text(data), (*defects, NO_FRONTMATTER))
    if not place.closed:
        defects.append(UNTERMINATED)
    block = data[place.start : place.end]
    fields, further = _parse_fields(block, first_line, not place.closed)
    return Document(fields, _decode_text(data[place.body :]), (*defects, *further))


@dataclass(frozen=True, slots=True)
class FrontmatterPlace:
    """The place of the frontmatter in the bytes of a main file.

    start, end: of the bytes between the fences. body: where the body begins. closed: whether there
    is a closing fence.
    """

    start: int
    end: int
    body: int
    closed: bool = True


def find_frontmatter(data: bytes) -> FrontmatterPlace | None:
    """Return where the frontmatter is, None where there is none.

    One without an end is taken to end before a blank line or a heading.
    """
    opening = _OPEN.match(data)
    if opening is None:
        return None
    # From the line feed of the opening fence on, so that an empty frontmatter closes too.
    closing = _CLOSE.search(data, opening.end() - 1)
    if closing is not None:
        body = min(closing.end() + 1, len(data))
        return FrontmatterPlace(opening.end(), closing.start() + 1, body)
    loose_end = _LOOSE_END.search(data, opening.end())
    end = loose_end.start() + 1 if loose_end else len(data)
    return FrontmatterPlace(opening.end(), end, end, closed=False)


def head_text(text: str) -> str:
    """Return the frontmatter of a text as it is written, with its opening fence.

    '' without any, all of the text where its end is missing.
    """
    data = text.encode("utf-8", "replace")
    opening = _OPEN.match(data)
    if opening is None:
        return ""
    # As above: the line feed before a closing fence may be that of the opening one.
    closing = _CLOSE.search(data, opening.end() - 1)
    return data[: closing.start() if closing else len(data)].decode("utf-8")


def _decode_text(data: bytes) -> str:
    return data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")


def _find_character_defects(data: bytes) -> Iterator[Defect]:
    # translate is several times faster than the expression, and few files have a control character.
    if len(data.translate(None, _CONTROLS)) != len(data) and (control := _CONTROL.search(data)):
        line = data.count(b"\n", 0, control.start()) + 1
        yield Defect(
            Severity.REFUSE, f"it has the control character {control[0][0]:#04x} in line {line}"
        )
    if data.startswith(b"\xef\xbb\xbf"):
        yield Defect(Severity.WARNING, "it starts with a byte order mark")
    if b"\r" in data:
        bare = data.count(b"\r") > data.count(b"\r\n")
        yield Defect(
            Severity.WARNING, "it has bare carriage returns" if bare else "its lines end with CR LF"
        )


@lru_cache(maxsize=16)
def _parse_fields(
    block: bytes, first_line: int, loose: bool
) -> tuple[Mapping[str, object], tuple[Defect, ...]]:
    """Return the fields of a frontmatter block and its defects.

    loose: whether the closing fence is missing.
    """
    # Cached: a change reads the frontmatter of the text before and after for several checks.
    from evolvable_store import safe_yaml  # start time: PyYAML

    if len(block) > MAX_FRONTMATTER:
        text = f"its frontmatter has {len(block):,} bytes, the limit is {MAX_FRONTMATTER:,}"
        # Without an end the "head" may be the whole body: too much of it is then no attack.
        return {}, () if loose else (Defect(Severity.REFUSE, text),)
    text, defects = _decode_text(block), list[Defect]()
    try:
        try:
            if loose:
                content = safe_yaml.YamlValue(safe_yaml.salvage(text), ())
            else:
                content = safe_yaml.load_yaml(text)
        except safe_yaml.InvalidYaml as error:
            # A directive also breaks YAML here, but has to be refused, not salvaged.
            if _DIRECTIVE.match(block):
                raise safe_yaml.UnsafeYaml("it has a directive", error.line) from None
            # The most common fault in heads that people write: `description: Use when: ...`.
            advice = (
                "; a value with a colon needs quotes" if "mapping values" in error.reason else ""
            )
            breaks = f"its YAML breaks in line {error.line + first_line}: {error.reason}{advice}"
            defects.append(Defect(Severity.ERROR, breaks))
            # A skill with a broken head still gets the name and description that a reader would
            # see.
            content = safe_yaml.YamlValue(safe_yaml.salvage(text), ())
    except safe_yaml.UnsafeYaml as error:
        where = f"near line {error.line + first_line}"
        refusal = f"its frontmatter is refused ({where}): {error.reason}"
        return {}, (*defects, Defect(Severity.REFUSE, refusal))
    if not isinstance(content.value, dict | None):
        return {}, (*defects, NO_MAPPING)
    fields = content.value or {}
    if content.repeated:
        keys = _abbreviate(", ".join(content.repeated))
        defects.append(Defect(Severity.ERROR, f"it has keys more than once: {keys}"))
    return fields, (*defects, *_find_type_defects(fields))


def top_level(text: str) -> "list[YamlEntry] | None":
    """Return the keys of a frontmatter with their lines; see `safe_yaml.top_level`."""
    from evolvable_store import safe_yaml  # start time: PyYAML

    return safe_yaml.top_level(text)


def _find_type_defects(fields: Mapping[str, object]) -> Iterator[Defect]:
    for key in ("name", "description"):
        if key in fields and not isinstance(fields[key], str):
            yield Defect(
                Severity.ERROR, f"its {key} is {_abbreviate(fields[key])}, not a text: quote it"
            )


def _abbreviate(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def describe(document: Document) -> str:
    """Return a description made from the body: its first paragraph, else its first heading.

    It is one line of at most MAX_DESCRIPTION characters, '' without either.
    """
    heading = ""
    for block in re.split(r"\n[ \t]*\n", _CODE.sub("", document.body[:_MAX_PROSE])):
        lines = [line.strip() for line in block.split("\n") if line.strip()]
        while lines and lines[0].startswith("#"):
            heading = heading or lines[0].lstrip("# ")
            lines = lines[1:]
        if lines and not lines[0].startswith(_NO_PROSE):
            return " ".join(" ".join(lines).split())[:MAX_DESCRIPTION]
    return heading[:MAX_DESCRIPTION]


@dataclass(frozen=True, slots=True)
class Delegate:
    """The agent that does the work of a skill.

    agent: its ref as it is written, of several with commas. when: always, or long (only a long
    task). input: task, or history (also the conversation so far). returns: summary, or files (the
    paths of the files that it wrote).
    """

    agent: str
    when: str = "always"
    input: str = "task"
    returns: str = "summary"


DELEGATE_WORDS = {
    "when": ("always", "long"),
    "input": ("task", "history"),
    "returns": ("summary", "files"),
}
"""The words of a delegate's fields; the first is the default."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The description that a document gives of its resource; '' and () for missing parts.

    triggers: texts that a task for it contains. frozen: only a person may change it. delegate: None
    for most. person_only: it is offered to no model.
    """

    name: str
    description: str
    triggers: tuple[str, ...]
    frozen: bool
    delegate: Delegate | None
    person_only: bool = False


# YAML 1.1 reads all of these as true, and clients read the text itself.
_YES = ("true", "yes", "on", "1")


def is_person_only(fields: Mapping[str, object]) -> bool:
    """Return whether a document says `disable-model-invocation: true`, in any YAML spelling."""
    value = fields.get("disable-model-invocation")
    return isinstance(value, str | int) and str(value).strip().lower() in _YES


def summarize(document: Document) -> Summary:
    """Return the summary of a document; without a description, `describe` supplies one."""
    metadata = document.fields.get("metadata")
    intent: Mapping[str, object] = metadata if isinstance(metadata, dict) else {}
    return Summary(
        name=_strip_text(document.fields.get("name")),
        description=description_of(document.fields) or describe(document),
        triggers=_read_triggers(intent.get("triggers")),
        # The specification allows only texts in metadata, but people also write a YAML false.
        frozen=str(intent.get("evolvable")).strip().lower() == "false",
        delegate=_read_delegate(intent.get("delegate", document.fields.get("delegate"))),
        person_only=is_person_only(document.fields),
    )


def description_of(fields: Mapping[str, object]) -> str:
    """Return the text of a description, '' for none.

    A list gives the texts of its entries, one a line.
    """
    value = fields.get("description")
    return "\n".join(_list_words(value)) if isinstance(value, list) else _strip_text(value)


def _list_words(value: object) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _list_words(item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield " ".join([f"{key}:", *_list_words(item)])
    elif value is not None and not isinstance(value, bool) and (text := str(value).strip()):
        yield text


def _read_delegate(value: object) -> Delegate | None:
    """Return the delegate of a ref or of a block with the key agent, None without an agent.

    An unknown word counts as the default.
    """
    block = value if isinstance(value, dict) else {"agent": value}
    agents = block.get("agent")
    agent = ", ".join(map(_strip_text, agents if isinstance(agents, list) else [agents]))
    if not agent.strip(" ,"):
        return None
    options: dict[str, str] = {}
    for key, words in DELEGATE_WORDS.items():
        word = _strip_text(block.get(key))
        options[key] = word if word in words else words[0]
    return Delegate(agent, **options)


def _strip_text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _read_triggers(value: object) -> tuple[str, ...]:
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list):
        return ()
    triggers = (text.strip() for text in texts if isinstance(text, str))
    return tuple(dict.fromkeys(trigger for trigger in triggers if trigger))


def is_frozen(data: bytes) -> bool:
    """Return whether a main file says `metadata: evolvable: "false"`."""
    # A search of bytes before a parse: every write asks, and few main files are frozen.
    word = data.find(b"evolvable")
    if word < 0:
        return False
    opening = _OPEN.match(data)
    closing = _CLOSE.search(data, opening.end() - 1) if opening else None
    # The word stands in the body, which freezes nothing.
    if opening is None or (closing and word > closing.start()):
        return False
    return summarize(parse_document(data)).frozen

"""Everything that is wrong with a resource, all of it at once, before any of it is stored."""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass

from evolvable_store.errors import InvalidRef, quote_text
from evolvable_store.frontmatter import (
    MAX_DESCRIPTION,
    NO_FRONTMATTER,
    NO_MAPPING,
    UNTERMINATED,
    Defect,
    Document,
    Severity,
    parse_document,
)
from evolvable_store.merge import find_conflict
from evolvable_store.objects import MAX_FILE, MAX_FILES, MAX_RESOURCE, Files
from evolvable_store.paths import is_ignored, is_sync_copy, path_problem
from evolvable_store.resource import (
    MAX_NAME,
    Kind,
    check_name,
    is_name,
    is_plain,
    main_file,
    normal_name,
)

__all__ = [
    "Problem",
    "Severity",
    "main_path",
    "find_problems",
    "blocking_problems",
    "broken_rules",
    "lost_files",
    "unclear_problems",
]

SKILL_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
"""The six keys of the Agent Skills specification."""

CLIENT_KEYS = (
    "when_to_use",
    "argument-hint",
    "arguments",
    "disable-model-invocation",
    "user-invocable",
    "disallowed-tools",
    *("model", "effort", "context", "agent", "hooks", "paths", "shell"),
)
"""The further keys of a skill that Claude Code documents."""

MAX_COMPATIBILITY = 500
"""Characters."""

MAX_BODY_LINES = 500
"""Lines of a skill's body that the specification recommends at most."""

LEFT_OUT = "names like this are left out of every version"

_MARKDOWN = (".md", ".mdx", ".mdc", ".markdown")

# NUL too: after a power cut some file systems leave a file of the right length without its bytes.
_BLANK = b" \t\r\n\f\v\0"
"""Bytes that an editor or a crash leaves of a document, after a byte order mark."""

# A letter after the bracket: "a < b" and "<3" are no tags.
_TAG = re.compile(r"<[/!?]?[A-Za-z]")
# The spellings of "every command" that Claude Code takes.
_ANY_TOOL = {"*", "Bash", "Bash(*)", "Bash(:*)"}
_AGENT_FOLDERS = {
    ".claude",
    ".codex",
    ".agents",
    ".cursor",
    ".gemini",
    ".vscode",
    ".claude-plugin",
    ".mcp.json",
}
# Clients read these from any folder above the file that they work on.
_INSTRUCTIONS = {"claude.md", "claude.local.md", "agents.md", "agents.override.md", "gemini.md"}
_SECRET_FOLDERS = {".ssh", ".aws", ".gnupg"}
_SECRET_FILE = re.compile(
    r"\.env(?:\..*)?|\.netrc|\.npmrc|\.pypirc|\.pgpass|id_(?:rsa|dsa|ecdsa|ed25519)|.*\.(?:pem|"
    r"key|p12|pfx)"
)
# .env.example and the like are meant to be shared.
_NO_SECRET = (".example", ".sample", ".template")
# The first bytes of ELF, and of Mach-O in both word sizes and byte orders; PE is recognized by MZ
# and a NUL.
_PROGRAMS = (
    b"\x7fELF",
    b"\xfe\xed\xfa\xce",
    b"\xfe\xed\xfa\xcf",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
)


_MAPPINGS = ("run", "mcp")
"""Metadata that are mappings: how a tool is run, and of which server it is."""

MEMORY_CAPS = {"USER": (2_000, 40), "MEMORY": (4_000, 80)}
"""Characters and lines of a memory, which a model reads whole at the beginning of a session."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with the file at `path`, or with the resource as a whole where `path` is ''.

    capability: it says what the resource may do. That is worth saying of a stranger's; its owner
    wrote it on purpose.
    """

    severity: Severity
    path: str
    text: str
    capability: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


def find_problems(kind: Kind, name: str, files: Files) -> list[Problem]:
    """Return every problem of the files that are to be the resource `name`; none when all is well.

    `name` is the one the resource would get: its folder's. Never raises for content.
    """
    name = normal_name(name)
    return [
        *_path_problems(files),
        *_size_problems(files),
        *(problem for path in files for problem in _content_problems(path, files[path].data)),
        *_main_problems(kind, name, files),
    ]


def named_problems(path: str) -> list[Problem]:
    """Return the problems that the name of a file alone shows."""
    return list(_content_problems(path, b""))


def blocking_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return those problems that refuse the resource, whether it comes as a folder, an archive, a
    call or a commit.
    """
    return [
        problem
        for problem in problems
        if problem.severity in (Severity.REFUSE, Severity.UNFINISHED)
    ]


def hostile_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return those problems that refuse a version of a history that was made elsewhere,
    long ago.
    """
    return [problem for problem in problems if problem.severity is Severity.REFUSE]


def broken_rules(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems that refuse a model's proposal: all but warnings.

    People's files with them are accepted.
    """
    return [problem for problem in problems if problem.severity is not Severity.WARNING]


def lost_files(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of files that no reading of a folder would find again, so that they would
    look deleted.
    """
    return [problem for problem in problems if problem.text == LEFT_OUT]


def unclear_problems(kind: Kind, name: str, files: Files) -> list[Problem]:
    """Return the problems that refuse an agent's write and only warn about a person's file.

    These are heads that programs read differently, and memories that are longer than a model reads
    whole.
    """
    path = main_path(kind, name, files)
    if not path or len(files[path].data) > MAX_FILE:
        return []
    document = parse_document(files[path].data)
    defects = _cap_rule(name, document) if kind is Kind.MEMORY else document.defects
    return [
        Problem(defect.severity, path, defect.text)
        for defect in defects
        if defect.severity is Severity.ERROR
    ]


def main_path(kind: Kind, name: str, files: Container[str]) -> str:
    """Return the path of the main file among these: `skill.md` too where there is no SKILL.md; ''
    for none.
    """
    path = main_file(kind, name)
    if path in files:
        return path
    return "skill.md" if kind is Kind.SKILL and "skill.md" in files else ""


def _path_problems(files: Files) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    # One pass over all paths first, so that a file and a folder of one name are found in either
    # order.
    written = {path.casefold() for path in files}
    for path in files:
        reason = path_problem(path)
        if reason:
            yield Problem(Severity.REFUSE, path, f"its path is refused: {reason}")
            continue
        parts = path.split("/")
        if any(map(is_ignored, parts)) or is_sync_copy(parts[-1]):
            # Written into a folder it would not be read back, and look deleted.
            yield Problem(Severity.ERROR, path, LEFT_OUT)
        for end in range(1, len(parts) + 1):
            part = "/".join(parts[:end])
            twin = seen.setdefault(part.casefold(), part)
            if twin != part:
                yield Problem(Severity.REFUSE, path, f"{part} and {twin} differ only by case")
            elif end < len(parts) and part.casefold() in written:
                yield Problem(Severity.REFUSE, path, f"{part} is a file and a folder")


def _size_problems(files: Files) -> Iterator[Problem]:
    if len(files) > MAX_FILES:
        yield Problem(
            Severity.REFUSE,
            "",
            f"it has {len(files):,} files, the limit is {MAX_FILES}",
        )
    total = sum(len(file.data) for file in files.values())
    if total > MAX_RESOURCE:
        yield Problem(
            Severity.REFUSE,
            "",
            f"its files have {total:,} bytes together, the limit is {MAX_RESOURCE:,}",
        )
    for path, file in files.items():
        if len(file.data) > MAX_FILE:
            text = f"it has {len(file.data):,} bytes, the limit for one file is {MAX_FILE:,}"
            yield Problem(Severity.REFUSE, path, text)


def _content_problems(path: str, data: bytes) -> Iterator[Problem]:
    parts = path.split("/")
    secret = _SECRET_FILE.fullmatch(parts[-1]) and not parts[-1].endswith(_NO_SECRET)
    if secret or _SECRET_FOLDERS.intersection(parts):
        yield Problem(Severity.WARNING, path, "it may hold secrets; every version of it is kept")
    planted = _AGENT_FOLDERS.intersection(parts)
    if planted:
        yield Problem(
            Severity.WARNING,
            path,
            f"it configures an agent ({min(planted)}), which no resource needs to",
        )
    if parts[-1].casefold() in _INSTRUCTIONS:
        yield Problem(
            Severity.WARNING,
            path,
            "agents take a file of this name as instructions, wherever it lies",
        )
    # In Markdown the marks are an unfinished merge; a program or its test may contain them on
    # purpose.
    if line := _conflict_line(data):
        yield _conflict(path, line, Severity.UNFINISHED if is_markdown(path) else Severity.WARNING)
    if data.startswith(_PROGRAMS) or (data.startswith(b"MZ") and b"\0" in data[:64]):
        yield Problem(Severity.WARNING, path, "it is a compiled program; nobody can review it")


def is_markdown(path: str) -> bool:
    """Return whether a file is Markdown, by its name: only there a fence tells a quoted conflict
    mark.
    """
    return path.lower().endswith(_MARKDOWN)


def _conflict(path: str, line: int, severity: Severity) -> Problem:
    return Problem(
        severity, path, f"it has git's conflict marks from line {line} on: an unfinished merge"
    )


def _conflict_line(data: bytes) -> int:
    # A search in the bytes first: nearly no file has the mark.
    return find_conflict(data.decode("utf-8", "replace")) if b"<<<<<<<" in data else 0


def added_conflicts(before: Files, after: Files) -> list[Problem]:
    """Return which files other than Markdown have conflict marks that their known content does not
    have.

    A new file may be made to have them, such as an example for a program that reads them; no mark
    of Markdown tells.
    """
    lines = {
        path: _conflict_line(after[path].data)
        for path in before
        if path in after and not is_markdown(path)
    }
    return [
        _conflict(path, line, Severity.UNFINISHED)
        for path, line in lines.items()
        if line and not _conflict_line(before[path].data)
    ]


def is_blank(data: bytes) -> bool:
    """Return whether bytes are an emptied document: none, white space or NUL."""
    return not data.removeprefix(b"\xef\xbb\xbf").strip(_BLANK)


def _empty_reason(data: bytes) -> str:
    """Return why a main file holds no document, '' where it holds something."""
    if not data:
        return "it is empty (0 bytes)"
    if is_blank(data):
        return f"it is empty: {len(data):,} bytes of white space or NUL"
    return ""


def _main_problems(kind: Kind, name: str, files: Files) -> Iterator[Problem]:
    expected, path = main_file(kind, name), main_path(kind, name, files)
    if not path:
        # SKILL.MD or Skill.md: a client on a system that tells case apart would not find it.
        like = next((other for other in files if other.casefold() == expected.casefold()), "")
        advice = f"; rename {like}" if like else ""
        yield Problem(Severity.REFUSE, "", f"it has no {expected}{advice}")
        return
    if path != expected:
        yield Problem(Severity.ERROR, path, f"it should be called {expected}")
    # Reported by the rule on sizes; parsing it would only take long.
    if len(files[path].data) > MAX_FILE:
        return
    # A memory without a line is one that nobody wrote yet, or whose last fact was taken out.
    if kind is not Kind.MEMORY and (reason := _empty_reason(files[path].data)):
        yield Problem(Severity.UNFINISHED, path, reason)
        return
    document = parse_document(files[path].data)
    capabilities = tuple(_capability_rule(name, document))
    for defect in _defects(kind, name, document):
        yield Problem(defect.severity, path, defect.text, capability=defect in capabilities)
    # A declared name that equals the folder's was checked by the rule on names already.
    if _declared_name(document) != name and (reason := _name_reason(kind, name)):
        yield Problem(Severity.ERROR, "", reason)


def _defects(kind: Kind, name: str, document: Document) -> Iterator[Defect]:
    """Yield the defects of the document, and then those by the rules of the kind."""
    if kind is Kind.MEMORY:
        yield from _cap_rule(name, document)
        yield from (
            _as_warning(d)
            for d in document.defects
            if d not in (NO_FRONTMATTER, UNTERMINATED, NO_MAPPING)
        )
        return
    yield from document.defects
    # Without fields that could be read, "it has no name" would only repeat the defect of the head.
    if document.fields or not any(d.severity is not Severity.WARNING for d in document.defects):
        for rule in _RULES[kind]:
            yield from rule(name, document)


def _cap_rule(name: str, document: Document) -> Iterator[Defect]:
    most, most_lines = MEMORY_CAPS.get(name, (MAX_FILE, MAX_FILE))
    length, lines = len(document.body), document.body.count("\n")
    if length > most:
        yield Defect(
            Severity.ERROR,
            f"it has {length:,} characters; a memory is read whole, the limit is {most:,}",
        )
    if lines > most_lines:
        yield Defect(
            Severity.ERROR,
            f"it has {lines:,} lines; a memory is read whole, the limit is {most_lines}",
        )


def _as_warning(defect: Defect) -> Defect:
    """Return an error as a warning, since a memory follows no specification; other defects
    unchanged.
    """
    return Defect(Severity.WARNING, defect.text) if defect.severity is Severity.ERROR else defect


def _name_reason(kind: Kind, name: str) -> str:
    try:
        check_name(kind, name)
    except InvalidRef as error:
        return error.text
    return ""


def _name_rule(name: str, document: Document) -> Iterator[Defect]:
    value = _declared_name(document)
    if value is None:
        return
    if not value:
        yield Defect(Severity.ERROR, "it has no name")
    elif len(value) > MAX_NAME:
        yield Defect(
            Severity.ERROR, f"its name has {len(value):,} characters, the limit is {MAX_NAME}"
        )
    elif reason := _name_reason(Kind.SKILL, value):
        yield Defect(Severity.ERROR, f"its name breaks the rule: {reason}")
    elif value != name:
        yield Defect(
            Severity.WARNING, f"its name is {value}, its folder's is {quote_text(name)[1:-1]}"
        )


def _given_name_rule(name: str, document: Document) -> Iterator[Defect]:
    """Yield the defects of a declared name.

    A prompt needs none: a command of Claude Code has the name of its file.
    """
    if _declared_name(document) != "":
        yield from _name_rule(name, document)


def _plain_name_rule(name: str, document: Document) -> Iterator[Defect]:
    value = _declared_name(document)
    if value and is_name(value) and not is_plain(value):
        text = (
            "its name has letters that the Agent Skills specification (a-z) lacks; a strict "
            "client does not load it"
        )
        yield Defect(Severity.WARNING, text)


def _declared_name(document: Document) -> str | None:
    """Return the name that a head gives, '' for none, None for a value that is no text."""
    value = document.fields.get("name", "")
    return normal_name(value) if isinstance(value, str) else None


def _description_rule(name: str, document: Document) -> Iterator[Defect]:
    value = document.fields.get("description", "")
    if isinstance(value, str) and not value.strip():
        yield Defect(Severity.ERROR, "it has no description")


def _skill_description_rule(name: str, document: Document) -> Iterator[Defect]:
    value = document.fields.get("description")
    if not isinstance(value, str):
        return
    if len(value) > MAX_DESCRIPTION:
        text = f"its description has {len(value):,} characters, the limit is {MAX_DESCRIPTION:,}"
        yield Defect(Severity.ERROR, text)
    if tag := _TAG.search(value):
        tag_text = ascii(value[tag.start() : tag.start() + 20])
        yield Defect(Severity.ERROR, f"its description has an XML or HTML tag ({tag_text})")


def _keys_rule(name: str, document: Document) -> Iterator[Defect]:
    unknown = [key for key in document.fields if key not in SKILL_KEYS and key not in CLIENT_KEYS]
    if unknown:
        key_list = ", ".join(ascii(key[:40])[1:-1] for key in unknown[:10])
        more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
        yield Defect(
            Severity.WARNING, f"it has keys that the specification does not know: {key_list}{more}"
        )
    for key in ("license", "compatibility", "allowed-tools"):
        # As Claude Code takes it.
        is_list = key == "allowed-tools" and isinstance(document.fields.get(key), list)
        if key in document.fields and not isinstance(document.fields[key], str) and not is_list:
            yield Defect(Severity.WARNING, f"its {key} is not a text")
    compatibility = document.fields.get("compatibility")
    if isinstance(compatibility, str) and len(compatibility) > MAX_COMPATIBILITY:
        text = (
            f"its compatibility has {len(compatibility):,} characters, the limit is "
            f"{MAX_COMPATIBILITY}"
        )
        yield Defect(Severity.WARNING, text)


def _metadata_rule(name: str, document: Document) -> Iterator[Defect]:
    metadata = document.fields.get("metadata", {})
    if not isinstance(metadata, dict):
        yield Defect(Severity.WARNING, "its metadata is not a mapping")
        return
    texts = ((key, value) for key, value in metadata.items() if key not in _MAPPINGS)
    others = [ascii(key[:40])[1:-1] for key, value in texts if not isinstance(value, str)]
    if others:
        yield Defect(
            Severity.WARNING,
            f"its metadata has values that are not texts: {', '.join(others[:10])}",
        )
    # Any other word leaves the resource unfrozen, which its author may not expect.
    evolvable = str(metadata.get("evolvable", "true")).strip()
    if evolvable.lower() not in ("true", "false"):
        text = (
            f'its metadata says evolvable: {ascii(evolvable[:40])}; only "false" freezes a resource'
        )
        yield Defect(Severity.WARNING, text)


def _capability_rule(name: str, document: Document) -> Iterator[Defect]:
    fields = document.fields
    if "hooks" in fields:
        yield Defect(Severity.WARNING, "its hooks run commands on the machine of every user")
    tools = fields.get("allowed-tools")
    # The specification separates tools by blanks, Claude Code by commas too.
    texts = (
        re.split(r"[\s,]+", tools)
        if isinstance(tools, str)
        else tools
        if isinstance(tools, list)
        else []
    )
    free = [text for text in texts if isinstance(text, str) and text in _ANY_TOOL]
    if free:
        yield Defect(
            Severity.WARNING, f"its allowed-tools let it run any command without asking ({free[0]})"
        )
    if fields.get("permissionMode") == "bypassPermissions":
        yield Defect(Severity.WARNING, "its permissionMode lets it do anything without asking")


def _body_rule(name: str, document: Document) -> Iterator[Defect]:
    body = document.body.strip()
    lines = body.count("\n") + 1
    if not body:
        yield Defect(Severity.WARNING, "it has nothing after its frontmatter")
    elif lines > MAX_BODY_LINES:
        text = f"its body has {lines:,} lines; over {MAX_BODY_LINES} should move to other files"
        yield Defect(Severity.WARNING, text)


Rule = Callable[[str, Document], Iterator[Defect]]
"""Yields the defects by one rule, from the resource's name and its document."""

_COMMON: tuple[Rule, ...] = (_name_rule, _description_rule, _metadata_rule, _capability_rule)
_RULES: dict[Kind, tuple[Rule, ...]] = {
    Kind.SKILL: (*_COMMON, _plain_name_rule, _skill_description_rule, _keys_rule, _body_rule),
    Kind.AGENT: (*_COMMON, _body_rule),
    Kind.PROMPT: (_given_name_rule, *_COMMON[1:], _body_rule),
    Kind.TOOL: _COMMON,
    Kind.ENVIRONMENT: _COMMON,
}

"""Find every problem of a resource at once, before any of it is stored."""

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
    *(".claude", ".codex", ".agents", ".cursor", ".gemini", ".vscode"),
    *(".claude-plugin", ".mcp.json"),
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
    *(b"\xfe\xed\xfa\xce", b"\xfe\xed\xfa\xcf", b"\xce\xfa\xed\xfe", b"\xcf\xfa\xed\xfe"),
)

_MAPPINGS = ("run", "mcp")
"""Keys of metadata with a mapping: how a tool is run, and the server that it belongs to."""

MEMORY_CAPS = {"USER": (2_000, 40), "MEMORY": (4_000, 80)}
"""Characters and lines of a memory, which a model reads whole at the beginning of a session."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of the file at `path`, or of the resource as a whole where `path` is ''.

    capability: whether it is about what the resource may do. It is reported of a stranger's
    resource alone: an owner wrote it on purpose.
    """

    severity: Severity
    path: str
    text: str
    capability: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.text}" if self.path else self.text


def find_problems(kind: Kind, name: str, files: Files) -> list[Problem]:
    """Return every problem of the files that are to be the resource `name`.

    name: the one that the resource would get, its folder's. Never raises for content.
    """
    name = normal_name(name)
    return [
        *_find_path_problems(files),
        *_find_size_problems(files),
        *(problem for path in files for problem in _find_content_problems(path, files[path].data)),
        *_find_main_problems(kind, name, files),
    ]


def named_problems(path: str) -> list[Problem]:
    """Return the problems that the name of a file alone shows."""
    return list(_find_content_problems(path, b""))


def blocking_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems for which a resource is refused, whatever way it comes."""
    blocking = (Severity.REFUSE, Severity.UNFINISHED)
    return [problem for problem in problems if problem.severity in blocking]


def hostile_problems(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems for which a version in a history of another library is refused."""
    return [problem for problem in problems if problem.severity is Severity.REFUSE]


def broken_rules(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems for which a model's proposal is refused: all but warnings.

    People's files with an error are accepted.
    """
    return [problem for problem in problems if problem.severity is not Severity.WARNING]


def lost_files(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems of files that a read of a folder leaves out: they would look deleted."""
    return [problem for problem in problems if problem.text == LEFT_OUT]


def unclear_problems(kind: Kind, name: str, files: Files) -> list[Problem]:
    """Return the problems for which an agent's write is refused, and a person's file is not.

    They are heads that programs read differently, and memories over their limits.
    """
    path = main_path(kind, name, files)
    if not path or len(files[path].data) > MAX_FILE:
        return []
    document = parse_document(files[path].data)
    defects = _check_caps(name, document) if kind is Kind.MEMORY else document.defects
    return [
        Problem(defect.severity, path, defect.text)
        for defect in defects
        if defect.severity is Severity.ERROR
    ]


def main_path(kind: Kind, name: str, files: Container[str]) -> str:
    """Return the path of the main file among these, '' for none.

    `skill.md` counts where there is no SKILL.md.
    """
    path = main_file(kind, name)
    if path in files:
        return path
    return "skill.md" if kind is Kind.SKILL and "skill.md" in files else ""


def _find_path_problems(files: Files) -> Iterator[Problem]:
    spellings: dict[str, str] = {}
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
            twin = spellings.setdefault(part.casefold(), part)
            if twin != part:
                yield Problem(Severity.REFUSE, path, f"{part} and {twin} differ only by case")
            elif end < len(parts) and part.casefold() in written:
                yield Problem(Severity.REFUSE, path, f"{part} is a file and a folder")


def _find_size_problems(files: Files) -> Iterator[Problem]:
    if len(files) > MAX_FILES:
        text = f"it has {len(files):,} files, the limit is {MAX_FILES}"
        yield Problem(Severity.REFUSE, "", text)
    total = sum(len(file.data) for file in files.values())
    if total > MAX_RESOURCE:
        text = f"its files have {total:,} bytes together, the limit is {MAX_RESOURCE:,}"
        yield Problem(Severity.REFUSE, "", text)
    for path, file in files.items():
        if len(file.data) > MAX_FILE:
            text = f"it has {len(file.data):,} bytes, the limit for one file is {MAX_FILE:,}"
            yield Problem(Severity.REFUSE, path, text)


def _find_content_problems(path: str, data: bytes) -> Iterator[Problem]:
    parts = path.split("/")
    secret = _SECRET_FILE.fullmatch(parts[-1]) and not parts[-1].endswith(_NO_SECRET)
    if secret or _SECRET_FOLDERS.intersection(parts):
        yield Problem(Severity.WARNING, path, "it may hold secrets; every version of it is kept")
    planted = _AGENT_FOLDERS.intersection(parts)
    if planted:
        text = f"it configures an agent ({min(planted)}), which no resource needs to"
        yield Problem(Severity.WARNING, path, text)
    if parts[-1].casefold() in _INSTRUCTIONS:
        text = "agents take a file of this name as instructions, wherever it lies"
        yield Problem(Severity.WARNING, path, text)
    # In Markdown the marks are an unfinished merge; a program or its test may contain them on
    # purpose.
    if line := _find_conflict_line(data):
        yield _make_conflict_problem(
            path, line, Severity.UNFINISHED if is_markdown(path) else Severity.WARNING
        )
    if data.startswith(_PROGRAMS) or (data.startswith(b"MZ") and b"\0" in data[:64]):
        yield Problem(Severity.WARNING, path, "it is a compiled program; nobody can review it")


def is_markdown(path: str) -> bool:
    """Return whether a file is Markdown, by its name."""
    return path.lower().endswith(_MARKDOWN)


def _make_conflict_problem(path: str, line: int, severity: Severity) -> Problem:
    return Problem(
        severity, path, f"it has git's conflict marks from line {line} on: an unfinished merge"
    )


def _find_conflict_line(data: bytes) -> int:
    # A search in the bytes first: nearly no file has the mark.
    return find_conflict(data.decode("utf-8", "replace")) if b"<<<<<<<" in data else 0


def added_conflicts(before: Files, after: Files) -> list[Problem]:
    """Return a problem for each file with conflict marks that its known content does not have.

    before: the known content. A new file may have marks on purpose, such as an example for a
    program that reads them. Markdown is left out: `find_problems` reports its marks.
    """
    lines = {
        path: _find_conflict_line(after[path].data)
        for path in before
        if path in after and not is_markdown(path)
    }
    return [
        _make_conflict_problem(path, line, Severity.UNFINISHED)
        for path, line in lines.items()
        if line and not _find_conflict_line(before[path].data)
    ]


def is_blank(data: bytes) -> bool:
    """Return whether bytes are an emptied document: none, or white space and NUL alone."""
    return not data.removeprefix(b"\xef\xbb\xbf").strip(_BLANK)


def _find_empty_reason(data: bytes) -> str:
    """Return why a main file has no document, '' where it has one."""
    if not data:
        return "it is empty (0 bytes)"
    if is_blank(data):
        return f"it is empty: {len(data):,} bytes of white space or NUL"
    return ""


def _find_main_problems(kind: Kind, name: str, files: Files) -> Iterator[Problem]:
    expected, path = main_file(kind, name), main_path(kind, name, files)
    if not path:
        # SKILL.MD or Skill.md: a client on a case-sensitive file system would not find it.
        like = next((other for other in files if other.casefold() == expected.casefold()), "")
        advice = f"; rename {like}" if like else ""
        yield Problem(Severity.REFUSE, "", f"it has no {expected}{advice}")
        return
    if path != expected:
        yield Problem(Severity.ERROR, path, f"it should be called {expected}")
    # Reported by the rule on sizes; parsing it would only take long.
    if len(files[path].data) > MAX_FILE:
        return
    # A memory may be empty: nobody wrote it yet, or its last fact was removed.
    if kind is not Kind.MEMORY and (reason := _find_empty_reason(files[path].data)):
        yield Problem(Severity.UNFINISHED, path, reason)
        return
    document = parse_document(files[path].data)
    capabilities = tuple(_check_capabilities(name, document))
    for defect in _find_defects(kind, name, document):
        yield Problem(defect.severity, path, defect.text, capability=defect in capabilities)
    # A declared name that equals the folder's was checked by the rule on names already.
    if _read_declared_name(document) != name and (reason := _find_name_reason(kind, name)):
        yield Problem(Severity.ERROR, "", reason)


def _find_defects(kind: Kind, name: str, document: Document) -> Iterator[Defect]:
    """Yield the defects of the document, and then those by the rules of the kind."""
    if kind is Kind.MEMORY:
        yield from _check_caps(name, document)
        for defect in document.defects:
            if defect not in (NO_FRONTMATTER, UNTERMINATED, NO_MAPPING):
                yield _make_warning(defect)
        return
    yield from document.defects
    # Without fields that could be read, "it has no name" would only repeat the defect of the head.
    is_broken = any(defect.severity is not Severity.WARNING for defect in document.defects)
    if document.fields or not is_broken:
        for rule in _RULES[kind]:
            yield from rule(name, document)


def _check_caps(name: str, document: Document) -> Iterator[Defect]:
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


def _make_warning(defect: Defect) -> Defect:
    """Return an error as a warning, and any other defect unchanged."""
    # A memory follows no specification.
    return Defect(Severity.WARNING, defect.text) if defect.severity is Severity.ERROR else defect


def _find_name_reason(kind: Kind, name: str) -> str:
    try:
        check_name(kind, name)
    except InvalidRef as error:
        return error.text
    return ""


def _check_declared_name(name: str, document: Document) -> Iterator[Defect]:
    value = _read_declared_name(document)
    if value is None:
        return
    if not value:
        yield Defect(Severity.ERROR, "it has no name")
    elif len(value) > MAX_NAME:
        yield Defect(
            Severity.ERROR, f"its name has {len(value):,} characters, the limit is {MAX_NAME}"
        )
    elif reason := _find_name_reason(Kind.SKILL, value):
        yield Defect(Severity.ERROR, f"its name breaks the rule: {reason}")
    elif value != name:
        text = f"its name is {value}, its folder's is {quote_text(name)[1:-1]}"
        yield Defect(Severity.WARNING, text)


def _check_given_name(name: str, document: Document) -> Iterator[Defect]:
    """Yield the defects of a declared name.

    A prompt needs none: a command of Claude Code has the name of its file.
    """
    if _read_declared_name(document) != "":
        yield from _check_declared_name(name, document)


def _check_plain_name(name: str, document: Document) -> Iterator[Defect]:
    value = _read_declared_name(document)
    if value and is_name(value) and not is_plain(value):
        text = (
            "its name has letters that the Agent Skills specification (a-z) lacks; a strict "
            "client does not load it"
        )
        yield Defect(Severity.WARNING, text)


def _read_declared_name(document: Document) -> str | None:
    """Return the name that a head gives, '' for none, None for a value that is no text."""
    value = document.fields.get("name", "")
    return normal_name(value) if isinstance(value, str) else None


def _check_description(name: str, document: Document) -> Iterator[Defect]:
    value = document.fields.get("description", "")
    if isinstance(value, str) and not value.strip():
        yield Defect(Severity.ERROR, "it has no description")


def _check_skill_description(name: str, document: Document) -> Iterator[Defect]:
    value = document.fields.get("description")
    if not isinstance(value, str):
        return
    if len(value) > MAX_DESCRIPTION:
        text = f"its description has {len(value):,} characters, the limit is {MAX_DESCRIPTION:,}"
        yield Defect(Severity.ERROR, text)
    if tag := _TAG.search(value):
        tag_text = ascii(value[tag.start() : tag.start() + 20])
        yield Defect(Severity.ERROR, f"its description has an XML or HTML tag ({tag_text})")


def _check_keys(name: str, document: Document) -> Iterator[Defect]:
    unknown = [key for key in document.fields if key not in SKILL_KEYS and key not in CLIENT_KEYS]
    if unknown:
        key_list = ", ".join(ascii(key[:40])[1:-1] for key in unknown[:10])
        more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
        text = f"it has keys that the specification does not know: {key_list}{more}"
        yield Defect(Severity.WARNING, text)
    for key in ("license", "compatibility", "allowed-tools"):
        value = document.fields.get(key)
        # Claude Code accepts a list of tools.
        is_list = key == "allowed-tools" and isinstance(value, list)
        if key in document.fields and not isinstance(value, str) and not is_list:
            yield Defect(Severity.WARNING, f"its {key} is not a text")
    compatibility = document.fields.get("compatibility")
    if isinstance(compatibility, str) and len(compatibility) > MAX_COMPATIBILITY:
        text = (
            f"its compatibility has {len(compatibility):,} characters, the limit is "
            f"{MAX_COMPATIBILITY}"
        )
        yield Defect(Severity.WARNING, text)


def _check_metadata(name: str, document: Document) -> Iterator[Defect]:
    metadata = document.fields.get("metadata", {})
    if not isinstance(metadata, dict):
        yield Defect(Severity.WARNING, "its metadata is not a mapping")
        return
    texts = ((key, value) for key, value in metadata.items() if key not in _MAPPINGS)
    others = [ascii(key[:40])[1:-1] for key, value in texts if not isinstance(value, str)]
    if others:
        text = f"its metadata has values that are not texts: {', '.join(others[:10])}"
        yield Defect(Severity.WARNING, text)
    # Any other word leaves the resource unfrozen, which its author may not expect.
    evolvable = str(metadata.get("evolvable", "true")).strip()
    if evolvable.lower() not in ("true", "false"):
        text = (
            f'its metadata says evolvable: {ascii(evolvable[:40])}; only "false" freezes a resource'
        )
        yield Defect(Severity.WARNING, text)


def _check_capabilities(name: str, document: Document) -> Iterator[Defect]:
    fields = document.fields
    if "hooks" in fields:
        yield Defect(Severity.WARNING, "its hooks run commands on the machine of every user")
    tools = fields.get("allowed-tools")
    # The specification separates tools by blanks, Claude Code by commas too.
    texts = re.split(r"[\s,]+", tools) if isinstance(tools, str) else tools
    entries = texts if isinstance(texts, list) else []
    free = [entry for entry in entries if isinstance(entry, str) and entry in _ANY_TOOL]
    if free:
        text = f"its allowed-tools let it run any command without asking ({free[0]})"
        yield Defect(Severity.WARNING, text)
    if fields.get("permissionMode") == "bypassPermissions":
        yield Defect(Severity.WARNING, "its permissionMode lets it do anything without asking")


def _check_body(name: str, document: Document) -> Iterator[Defect]:
    body = document.body.strip()
    lines = body.count("\n") + 1
    if not body:
        yield Defect(Severity.WARNING, "it has nothing after its frontmatter")
    elif lines > MAX_BODY_LINES:
        text = f"its body has {lines:,} lines; over {MAX_BODY_LINES} should move to other files"
        yield Defect(Severity.WARNING, text)


Rule = Callable[[str, Document], Iterator[Defect]]
"""Yields the defects by one rule, from the resource's name and its document."""

_COMMON: tuple[Rule, ...] = (
    _check_declared_name,
    _check_description,
    _check_metadata,
    _check_capabilities,
)
_RULES: dict[Kind, tuple[Rule, ...]] = {
    Kind.SKILL: (*_COMMON, _check_plain_name, _check_skill_description, _check_keys, _check_body),
    Kind.AGENT: (*_COMMON, _check_body),
    Kind.PROMPT: (_check_given_name, *_COMMON[1:], _check_body),
    Kind.TOOL: _COMMON,
    Kind.ENVIRONMENT: _COMMON,
}

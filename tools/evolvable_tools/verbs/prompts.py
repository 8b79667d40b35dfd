"""The library's prompts, as a client offers them.

A prompt's metadata names its arguments, such as `arguments: "file, style?=short|long"`. A question
mark makes one optional. The values after = are offered as completions. `{file}` in the text is
replaced by the argument.

A custom command of Claude Code is a prompt too. Its text has `$ARGUMENTS` for all that a person
typed behind its name, and `$0` or `$ARGUMENTS[0]` for the first word of it. Such a prompt has the
one argument `arguments`, an optional one.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evolvable_store import Document, parse_document
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_store.resource import Kind, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.untrusted_text import enclose
from evolvable_tools.verbs import load
from evolvable_tools.verbs.search import list_page

if TYPE_CHECKING:
    from evolvable_store.search import IndexEntry

MAX_ARGUMENTS = 16
"""Arguments of one prompt. Those behind are passed over."""

_PAGE = 200
_ARGUMENT = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_-]{0,63})(?P<optional>\?)?(?:\s*=(?P<values>.*))?", re.DOTALL
)
_PLACE = re.compile(r"\{([A-Za-z][A-Za-z0-9_-]{0,63})\}")
_COMMAND_PLACE = re.compile(
    r"\$ARGUMENTS(?:\[(?P<word>\d{1,3})\]|(?!\w))|\$(?P<short>\d{1,3})(?!\w)"
)

_ALL_TYPED = "$ARGUMENTS"

COMMAND_ARGUMENT = "arguments"
"""The one argument of a prompt that is written as a command."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a prompt. `values`: those that are known; any other word may be given too."""

    name: str
    required: bool
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of the library.

    text: still with the places for its arguments. untrusted_reason: why it is not trusted, or ''.
    """

    ref: Ref
    description: str
    arguments: tuple[Argument, ...]
    text: str
    untrusted_reason: str = ""

    @property
    def is_trusted(self) -> bool:
        """Whether somebody whom the user trusts answers for it."""
        return not self.untrusted_reason


def list_prompts(library: Library, caller: Caller) -> list[Prompt]:
    """Return every prompt that the caller sees, by name; of one name the nearest scope's.

    One that cannot be read is left out, so that it does not take the others with it.
    """
    return [
        prompt
        for entry in _iterate_entries(library, caller)
        if (prompt := _read_prompt(library, caller, entry)) is not None
    ]


def get_prompt(library: Library, caller: Caller, name: str) -> Prompt:
    """Return one prompt. Raises NoSuchResource, InvalidRef, LibraryCorrupt."""
    return _parse_prompt(load.get_resource(library, caller, Ref(Kind.PROMPT, name)), "")


def fill_prompt(library: Library, caller: Caller, name: str, arguments: Mapping[str, str]) -> str:
    """Return a prompt's text with these arguments in it, and count a use of it.

    An optional argument that is not given leaves its place empty. One that the text has no place
    for is added at the end, so that nothing a person typed is lost. Raises as `get_prompt`, and
    InvalidArgument for one that is missing.
    """
    prompt = get_prompt(library, caller, name)
    missing = [
        argument.name
        for argument in prompt.arguments
        if argument.required and not arguments.get(argument.name, "").strip()
    ]
    if missing:
        takes = ", ".join(
            argument.name if argument.required else f"{argument.name}?"
            for argument in prompt.arguments
        )
        raise InvalidArgument(f"{name} needs {', '.join(missing)}.", f"Its arguments are {takes}.")
    load.load_skill(library, caller, prompt.ref)
    return _fill(prompt, arguments)


def _fill(prompt: Prompt, arguments: Mapping[str, str]) -> str:
    values = {argument.name: arguments.get(argument.name, "") for argument in prompt.arguments}
    placed = set(_PLACE.findall(prompt.text))
    if prompt.arguments == (_OF_COMMAND,):
        text = _fill_command(prompt.text, values[COMMAND_ARGUMENT])
        placed = {COMMAND_ARGUMENT} if text != prompt.text else set()
    else:
        text = _PLACE.sub(lambda match: values.get(match[1], match[0]), prompt.text)
    if prompt.untrusted_reason:
        text = enclose(text, str(prompt.ref), prompt.untrusted_reason)
    rest = [
        f"{name}: {value}"
        for name, value in arguments.items()
        if value.strip() and name not in placed & values.keys()
    ]
    return text + ("\n\n" + "\n".join(rest) if rest else "")


def _fill_command(text: str, typed: str) -> str:
    """Return the text of a command with what was typed.

    A word that was not typed leaves its place as it is.
    """
    try:
        # As a shell splits them: quotation marks keep several words together.
        words = shlex.split(typed)
    except ValueError:  # a quotation mark without its pair
        words = typed.split()

    def value(match: re.Match[str]) -> str:
        number = match["word"] or match["short"]
        if number is None:
            return typed
        return words[int(number)] if int(number) < len(words) else match[0]

    return _COMMAND_PLACE.sub(value, text)


def _iterate_entries(library: Library, caller: Caller) -> Iterator["IndexEntry"]:
    cursor: str | None = None
    while True:
        page, cursor = list_page(
            library.index, caller.scopes, kind=Kind.PROMPT, limit=_PAGE, cursor=cursor
        )
        yield from page
        if cursor is None:
            return


def _read_prompt(library: Library, caller: Caller, entry: "IndexEntry") -> Prompt | None:
    try:
        loaded = load.get_resource(library, caller, entry.ref.at(None))
        return _parse_prompt(loaded, entry.description)
    except EvolvableError:
        return None


def _parse_prompt(loaded: load.Loaded, description: str) -> Prompt:
    document = parse_document((loaded.text or "").encode("utf-8"))
    reason = loaded.notice
    arguments = prompt_arguments(document)
    return Prompt(
        Ref.parse(loaded.ref).at(None), description, arguments, document.body.strip(), reason
    )


def prompt_arguments(document: Document) -> tuple[Argument, ...]:
    """Return the arguments that a prompt's metadata names, or its text has as a command's.

    Others are passed over.
    """
    metadata = document.fields.get("metadata")
    declared = metadata.get("arguments") if isinstance(metadata, dict) else None
    arguments: dict[str, Argument] = {}
    for part in declared.split(",") if isinstance(declared, str) else ():
        match = _ARGUMENT.fullmatch(part.strip())
        if match and match["name"] not in arguments and len(arguments) < MAX_ARGUMENTS:
            words = [word.strip() for word in (match["values"] or "").split("|")]
            valid = (word for word in words if word and not re.search(r"\s", word))
            values = tuple(dict.fromkeys(valid))
            arguments[match["name"]] = Argument(match["name"], match["optional"] is None, values)
    if not arguments and (_ALL_TYPED in document.body or "argument-hint" in document.fields):
        return (_OF_COMMAND,)
    return tuple(arguments.values())


_OF_COMMAND = Argument(COMMAND_ARGUMENT, required=False)

"""The files of a project as a session shows them: before the work, and as the work left them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from evolvable_store import path_problem
from evolvable_tools.outcomes import ToolCall, git_command, is_check, only_looks
from evolvable_tools.sessions import command_line

REDACTED = "[redacted:"
"""The beginning of the text that replaces a secret."""

# A line of a file as clients number it: spaces, the number, an arrow or a tab.
_NUMBERED = re.compile(r" *(\d+)(?:→|\t)(.*)")
_READS = frozenset(("Read", "read", "read_file", "view"))
_WRITES = frozenset(("Write", "write", "write_file", "create_file", "create"))
_EDITS = frozenset(
    ("Edit", "MultiEdit", "edit", "replace", "edit_file", "str_replace", "str_replace_editor")
)
"""Names of the tools by which clients read, write and edit a file."""

# Clients name the same arguments differently.
_PLACES = ("file_path", "filePath", "path", "target_file", "absolute_path")
_OLD, _NEW = ("old_string", "oldString", "old_str"), ("new_string", "newString", "new_str")
_CONTENTS = ("content", "contents", "file_text")


Replacement = tuple[str | None, str, bool]
"""An old text, None for a whole file; the new text; and whether every place is meant.

Of a whole file the last says whether the file was new.
"""


def _first_argument(arguments: Mapping[str, Any], names: Sequence[str]) -> Any:
    """Return the first of these arguments that a call has, None without any."""
    return next((arguments[name] for name in names if name in arguments), None)


class FileReplay:
    """The files of the project as a session shows them: before the work, and as the work left them.

    start, now: both states, by path. whole: all changes are known. problem: why the files cannot be
    known.
    """

    def __init__(self, project: str | None, tree: Mapping[str, bytes]) -> None:
        """Begin before the first call.

        tree: the files that the session began with, as far as a repository has them.
        """
        self._base, self._tree = project.rstrip("/") + "/" if project else None, tree
        self.start: dict[str, str] = {}
        self.now: dict[str, str] = {}
        self.whole, self.problem = True, ""

    def take(self, call: ToolCall, *, counts: bool) -> None:
        """Follow one call.

        counts: it is part of the work; changes of earlier turns belong to the start.
        """
        # A failed call changed nothing, and after a problem the files are unknown for good.
        if self.problem or call.has_failed:
            return
        arguments = call.span.input or {}
        tool, text = call.span.tool, _first_argument(arguments, _CONTENTS)
        is_view = tool in _EDITS and arguments.get("command") == "view"
        if tool in _READS or is_view:
            self._read(arguments, call.result.text if call.result else "")
        elif patch := _find_patch(arguments):
            for path, change in parse_patch(patch):
                self._change(path, change, counts)
        elif tool in (*_WRITES, *_EDITS) and isinstance(text, str):
            # Writing over a file that was never read loses its text; a created one had none.
            created = call.result is not None and "created" in call.result.text[:200].casefold()
            self._change(_first_argument(arguments, _PLACES), [(None, text, created)], counts)
        elif tool in _EDITS:
            parts = _list_replacements(arguments)
            self._change(_first_argument(arguments, _PLACES), parts, counts)
        elif call.commands:
            self._follow_command(call)

    def _follow_command(self, call: ToolCall) -> None:
        line, command = command_line(call.span.input or {}), call.commands[0]
        # `cat FILE` shows the whole file.
        if len(call.commands) == 1 and command.program == "cat" and len(command.words) == 2:
            text = call.result.text if call.result else ""
            # Codex puts a few lines of its own before the output.
            head, marker, body = text.partition("Output:\n")
            self._note_read(command.words[1], body if marker and len(head) < 400 else text)
        elif not (only_looks(line) or is_check(line) or any(map(git_command, call.commands))):
            # It may have changed files in a way that the session does not show.
            self.whole = False

    def _find_path(self, value: object) -> str | None:
        if not isinstance(value, str) or "\0" in value:
            return None
        path = value
        if path.startswith("/"):
            if self._base is None or not path.startswith(self._base):
                # Only a path below the project can be in the repository.
                return None
            path = path.removeprefix(self._base)
        return None if path_problem(path) else path

    def _read(self, arguments: Mapping[str, Any], text: str) -> None:
        lines = text.removesuffix("\n").split("\n")
        if arguments.get("offset") or arguments.get("limit"):
            return
        parts = [_NUMBERED.fullmatch(line) for line in lines]
        # Numbers from 1 without a gap show the whole file.
        if any(part is None or int(part[1]) != number for number, part in enumerate(parts, 1)):
            return
        whole = "\n".join(part[2] for part in parts if part)
        self._note_read(_first_argument(arguments, _PLACES), whole)

    def _note_read(self, place: object, text: str) -> None:
        path = self._find_path(place)
        # A file is read as it was only before its first change.
        if path is not None and path not in self.now and REDACTED not in text:
            # Clients do not show whether the last line ends; nearly all files do.
            self.start[path] = self.now[path] = text if text.endswith("\n") else f"{text}\n"

    def _change(self, place: object, parts: Sequence[Replacement], counts: bool) -> None:
        path = self._find_path(place)
        if path is None:
            self.problem = "it changed a file outside of the project"
            return
        # The tree first: later parts of the change need the text before it.
        self._open_from_tree(path)
        for old, new, several in parts:
            if REDACTED in new or REDACTED in (old or ""):
                self.problem = "a change holds a secret, which was taken out"
            elif old is None:
                self.whole = self.whole and (several or path in self.now)
                self.now[path] = new
            # The session does not show the text that was replaced.
            elif path not in self.now or not old or self.now[path].count(old) != 1 and not several:
                self.whole = False
            else:
                self.now[path] = self.now[path].replace(old, new)
        if not counts and path in self.now:
            # The changes of earlier turns belong to the start of this work.
            self.start[path] = self.now[path]

    def _open_from_tree(self, path: str) -> None:
        """Read a file from the repository, where the session changed it without showing it."""
        if path not in self.now and path in self._tree:
            with suppress(UnicodeDecodeError):
                self.start[path] = self.now[path] = self._tree[path].decode()


def _list_replacements(arguments: Mapping[str, Any]) -> list[Replacement]:
    """Return the replacements of one call of a tool that edits."""
    edits = arguments.get("edits")
    replacements: list[Replacement] = []
    for edit in edits if isinstance(edits, list) else [arguments]:
        old = _first_argument(edit, _OLD) if isinstance(edit, Mapping) else None
        if isinstance(old, str):
            new = str(_first_argument(edit, _NEW) or "")
            several = edit.get("replace_all") is True or edit.get("replaceAll") is True
            replacements.append((old, new, several))
    return replacements


def _find_patch(arguments: Mapping[str, Any]) -> str:
    texts = [arguments.get("patch"), arguments.get("input"), command_line(arguments)]
    return next((text for text in texts if isinstance(text, str) and "*** Begin Patch" in text), "")


def parse_patch(patch: str) -> Iterator[tuple[str, list[Replacement]]]:
    """Yield the files of a patch of Codex, each with its replacements.

    A new file has one without an old text.
    """
    path, parts, old, new = "", list[Replacement](), list[str](), list[str]()
    created = False
    # An end of its own, so that the last file is yielded where the patch was cut off.
    for line in [*patch.split("\n"), "*** End Patch"]:
        if line.startswith(("@@", "*** ")):
            if created and new:
                parts.append((None, "\n".join(new) + "\n", True))
            elif old or new:
                parts.append(("\n".join(old), "\n".join(new), False))
            # Each block of a patch is one replacement.
            old, new = [], []
            if line.startswith("*** ") and not line.startswith("*** End of File"):
                if path and parts:
                    yield path, parts
                match = re.match(r"\*\*\* (Add|Update|Delete) File: (.+)", line)
                path, parts = (match[2].strip(), []) if match else ("", [])
                created = match is not None and match[1] == "Add"
        elif line[:1] in ("-", " "):
            old.append(line[1:])
            new += [line[1:]] if line[0] == " " else []
        elif line.startswith("+"):
            new.append(line[1:])

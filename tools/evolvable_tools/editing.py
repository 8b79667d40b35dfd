"""What a change makes of a resource's files: whole files replaced, texts edited, and whether that leaves it sound."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from evolvable_store.errors import EditConflict, InvalidArgument, InvalidResource, NoSuchFile
from evolvable_store.objects import File, Files
from evolvable_store.paths import check_path
from evolvable_store.resource import Ref, main_file
from evolvable_store.validation import Problem, blocking_problems, find_problems
from evolvable_tools.library import Caller, Library


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace `old`, which must stand in the file exactly once, by `new`."""

    path: str
    old: str
    new: str


def copied(library: Library, caller: Caller, source: Ref, target: Ref) -> dict[str, File]:
    """Returns the files of a resource under another's name. Raises NoSuchResource, NoSuchVersion."""
    head = library.store.head(source.at(None), caller.scopes)
    files = library.store.files(head, source.version)
    old, new = main_file(head.kind, head.name), main_file(target.kind, target.name)
    main = files.pop(old, None)
    if main is not None:
        line = re.compile(rb"^name:[ \t]*[^\r\n]*", re.MULTILINE)
        files[new] = File(line.sub(b"name: " + target.name.encode("ascii"), main.data, count=1), main.mode)
    return files


def apply_files(files: dict[str, File], given: Mapping[str, str | bytes | None]) -> None:
    """Puts whole files in place, None takes one away. Raises NoSuchFile, InvalidArgument, InvalidPath."""
    for path, content in given.items():
        check_path(path)
        if content is None:
            if files.pop(path, None) is None:
                raise NoSuchFile(f"There is no file {path} to delete.", f"The files: {', '.join(sorted(files))}.")
            continue
        data = content if isinstance(content, bytes) else _encoded(path, content)
        old = files.get(path)
        files[path] = File(data, old.mode) if old else File(data)


def _encoded(path: str, text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidArgument(f"The text for {path} is not valid Unicode.", "It has a lone surrogate.") from None


def apply_edit(files: dict[str, File], edit: Edit, ref: Ref) -> None:
    """Makes one edit. Raises NoSuchFile, and EditConflict where its old text does not stand exactly once."""
    file = files.get(check_path(edit.path))
    if file is None:
        raise NoSuchFile(f"{ref} has no file {edit.path}.", f"Its files: {', '.join(sorted(files))}.")
    old, new = _encoded(edit.path, edit.old), _encoded(edit.path, edit.new)
    count = file.data.count(old) if old else 0
    crlf = b"\r\n" in file.data
    if count == 0 and old and crlf:  # clients write \n, whatever the file has
        old, new = _with_crlf(old), _with_crlf(new)
        count = file.data.count(old)
    if count != 1:
        found = "is not there" if count == 0 else f"is there {count} times"
        ends = " Its lines end with CRLF; the old text was looked for with \\n and with CRLF." if crlf else ""
        raise EditConflict(
            f"The old text {found} in {edit.path} of {ref}.{ends}",
            "Give a piece of the head's text that stands there exactly once; get_resource shows it.",
        )
    files[edit.path] = File(file.data.replace(old, new), file.mode)


def _with_crlf(data: bytes) -> bytes:
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def checked(ref: Ref, before: Files, after: Files) -> list[str]:
    """Returns the warnings; raises InvalidResource for what the change makes wrong that was not wrong before."""
    found = find_problems(ref.kind, ref.name, after)
    stops = blocking_problems(found, strict=True)
    if stops and before:
        was = {_same(problem) for problem in blocking_problems(find_problems(ref.kind, ref.name, before), strict=True)}
        stops = [problem for problem in stops if _same(problem) not in was]
    if stops:
        raise InvalidResource(str(ref), [str(problem) for problem in stops])
    return [str(problem) for problem in found]


def _same(problem: Problem) -> tuple[str, str]:
    # Counts and line numbers in the text may differ; a description that gets shorter is no new problem.
    return problem.path, re.sub(r"[0-9,]+", "", problem.text)


def changed_paths(before: Files, after: Files) -> list[str]:
    """Returns the files that differ, in order."""
    return sorted(path for path in {*before, *after} if before.get(path) != after.get(path))


def front(ref: Ref, files: Files) -> bytes:
    """Returns the beginning of the main file, up to where its frontmatter ends."""
    main = files.get(main_file(ref.kind, ref.name))
    return main.data.partition(b"\n---")[0] if main else b""

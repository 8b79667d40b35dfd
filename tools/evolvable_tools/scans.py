"""The verb that scans what is there: resources of the library, or files beside it."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.errors import InvalidArgument
from evolvable_store.objects import Files
from evolvable_store.resource import MEMORY_NAMES, Kind, Ref, main_file
from evolvable_store.workingcopy.tree_reader import read_folder
from evolvable_tools.library import Caller, Library
from evolvable_tools.scan.door import contents
from evolvable_tools.scan.findings import Finding
from evolvable_tools.scan.scanning import scan


@dataclass(frozen=True, slots=True)
class Scanned:
    """What a scan found in one resource as it is. what: its ref or its path. verdict: refused, waits or passes, which
    is what would become of it if anybody but a person brought it. capabilities: what it has the means to do.
    """

    what: str
    verdict: str
    findings: list[Finding]
    capabilities: list[str]


def scan_resources(library: Library, caller: Caller, refs: Iterable[Ref] = ()) -> list[Scanned]:
    """Returns what is found in these resources, by default in all that the caller sees.

    Raises NoSuchResource, NoSuchVersion.
    """
    store = library.store
    heads = [(store.head(ref, caller.scopes), ref.version) for ref in refs]
    if not heads:
        heads = [(head, None) for head in store.heads() if head.scope in caller.scopes]
    return [_scanned(str(head.ref.at(n)), store.files(head, n), head.kind) for head, n in heads]


def scan_path(path: Path) -> list[Scanned]:
    """Returns what is found in a file, in a folder that is a resource, or in each that lies in a folder.

    Raises InvalidArgument when there is nothing to scan.
    """
    if path.is_file() and not _is_main(path.name):
        return [_of_file(path)]
    if path.is_file():
        return [_scanned(str(path), read_folder(path.parent).files, _kind_of(path.name))]
    if not path.is_dir():
        raise InvalidArgument(f"{path} is not there.", "Name a folder, a file, or a ref such as skill:pdf.")
    found = [place for place in (path, *sorted(path.iterdir())) if place.is_dir() and _main_in(place)]
    if not found:
        mains = ", ".join(sorted(main_file(kind, "") for kind in Kind))
        raise InvalidArgument(f"{path} holds no resource.", f"A resource is a folder with one of {mains}.")
    return [_scanned(str(place), read_folder(place).files, _kind_of(_main_in(place))) for place in found]


def _of_file(path: Path) -> Scanned:
    found = scan(None, {path.name: path.read_bytes()}, Kind.SKILL)
    return Scanned(
        str(path), _verdict(found.blocks, found.asks), list(found.findings), _means(found.capabilities.added)
    )


def _scanned(what: str, files: Files, kind: Kind) -> Scanned:
    found = scan(None, contents(files), kind)
    return Scanned(what, _verdict(found.blocks, found.asks), list(found.findings), _means(found.capabilities.added))


def _verdict(blocks: bool, asks: bool) -> str:
    return "refused" if blocks else "waits" if asks else "passes"


def _means(capabilities: Iterable[object]) -> list[str]:
    return [str(one) for one in capabilities]


def _is_main(name: str) -> bool:
    return name in _MAINS


def _kind_of(name: str) -> Kind:
    return _MAINS[name]


def _main_in(folder: Path) -> str:
    return next((name for name in _MAINS if (folder / name).is_file()), "")


_MAINS = {
    **{main_file(kind, ""): kind for kind in Kind},
    **{main_file(Kind.MEMORY, name): Kind.MEMORY for name in MEMORY_NAMES},
}

"""The rules that judge the difference: what a change adds and takes away, by its structure first and then its words."""

from collections.abc import Iterator, Mapping

from evolvable_store.resource import Kind, main_file
from evolvable_tools.scan.findings import Finding
from evolvable_tools.scan.front import front
from evolvable_tools.scan.meaning import meaning
from evolvable_tools.scan.programs import program
from evolvable_tools.scan.prohibitions import prohibitions
from evolvable_tools.scan.reach import new_addresses, new_hosts, weak_options
from evolvable_tools.scan.sentences import Part, Sentence, brought, parts
from evolvable_tools.scan.unseen import unseen
from evolvable_tools.scan.views import View
from evolvable_tools.scan.wordings import wordings


def judged(before: Mapping[str, View], after: Mapping[str, View], kind: Kind, *, is_new: bool) -> Iterator[Finding]:
    """Yield what a change of the text files brings that a person should see first. is_new: the resource is."""
    known = "\n".join(view.plain for view in before.values())
    main = main_file(kind, "").casefold()
    for path, view in after.items():
        old = before.get(path)
        if old is not None and old.text == view.text:
            continue
        added, removed = brought(old, view)
        yield from _of_file(view, old, added, known, is_new)
        if removed and _is_document(path):
            yield from prohibitions(path, added, removed, parts(view))
        if old is not None and path.casefold() == main:
            yield from front(old, view)
    for path in before.keys() - after.keys():
        if _is_document(path):
            yield from prohibitions(
                path, [], list(parts(before[path])), [one for v in after.values() for one in parts(v)]
            )


def _is_document(path: str) -> bool:
    return path.lower().endswith((".md", ".mdx", ".txt", ".rst", ".mdc", ".markdown"))


def _of_file(view: View, old: View | None, added: list[Sentence], known: str, is_new: bool) -> Iterator[Finding]:
    yield from unseen(view.path, added, is_new=is_new)
    yield from meaning(view.path, added, is_new=is_new)
    yield from wordings(view.path, added)
    yield from new_hosts(view.path, added, known, is_new=is_new)
    yield from weak_options(view.path, added, is_new=is_new)
    if not is_new:
        yield from new_addresses(view.path, added, known)
    code = [one for one in added if one.part is Part.CODE]
    if not code:
        return
    new = "\n".join(one.text for one in code)
    if view.is_code:
        yield from program(view, view.plain, is_file=True, changed=None if is_new else new, known=known)
    else:
        yield from program(view, new, is_file=False, changed=None if is_new else new)

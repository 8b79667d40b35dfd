"""A resource: its evidence in numbers, its document and files beside its history; restore and
remove.
"""

from collections.abc import Sequence
from urllib.parse import unquote

from evolvable_page import elements as h
from evolvable_page.decision_notes import operation_note
from evolvable_page.elements import Node
from evolvable_page.layout import (
    PageBody,
    author_tag,
    form,
    passphrase_field,
    resource_address,
    resource_link,
    share_bar,
    table,
    tag,
)
from evolvable_page.library_catalog import read_picked
from evolvable_page.resource_edit import edit_form, save_edit
from evolvable_page.resource_timeline import VERSIONS, draw_difference, draw_history
from evolvable_page.site import PageAction, PageRequest, PageView, Site, action_path
from evolvable_page.text import make_visible, render_markdown
from evolvable_store import Head
from evolvable_store.resource import Kind, Ref
from evolvable_tools import NOBODYS, authorships
from evolvable_tools.outcomes import AgentUtility, ResourceStats, stats, verdict_words
from evolvable_tools.verbs import (
    Loaded,
    Updated,
    get_resource,
    remove_resource,
    remove_together,
    resource_history,
    restore_resource,
)


def _show_resource(site: Site, request: PageRequest) -> PageBody:
    """Show the newest version of a resource, or the one that is asked for."""
    ref = Ref.parse(str(request.path["ref"]))
    store, scopes = site.library.store, site.caller.scopes
    # The second call raises the error, which names similar resources.
    head = store.head_or_none(ref, scopes) or store.head(ref, scopes)
    version = request.number("version") or head.latest
    first, second = request.number("from"), request.number("to")
    between = (first, second)
    past = resource_history(
        site.library,
        site.caller,
        head.ref,
        from_version=first,
        to_version=second,
        limit=VERSIONS,
    )
    loaded = get_resource(
        site.library, site.caller, head.ref, version=version, path=request.get("path") or None
    )
    is_edited = bool(request.get("edit")) and head.version == version and loaded.text is not None
    history = draw_history(site, request, head, past, second)
    main = [
        operation_note(site, request),
        _draw_title(site, head, loaded, is_edited=is_edited),
        _draw_removed(head),
        _draw_strip(site, head),
        draw_difference(past, between),
        h.div(".columns")[
            edit_form(site, request, head, loaded) if is_edited else _draw_document(head, loaded),
            h.div[
                _draw_files(head, loaded),
                h.section(id="history", data_live=True)[history],
            ],
        ],
        _draw_removal(site, request, head),
    ]
    subject = f"{head.ref} {version} {between} {is_edited}"
    return PageBody(f"{head.ref}", main, "library", of=subject)


def _draw_title(site: Site, head: Head, loaded: Loaded, *, is_edited: bool) -> Node:
    authorship = authorships(site.library, [head.id], site.caller).get(head.id, NOBODYS)
    is_newest_text = head.version == loaded.version and loaded.text is not None
    editable = is_newest_text and not head.frozen and not is_edited
    address = resource_address(head.ref, edit=1, path=loaded.path)
    edit = h.a(".button", href=address, id="edit", aria_keyshortcuts="e")["Edit"]
    return h.div(".head")[
        h.h1[
            str(head.ref),
            " ",
            author_tag(authorship.kind, authorship.by),
            " ",
            tag("frozen") if head.frozen else None,
            h.span(".none")[f" version {head.latest}"],
        ],
        edit if editable else None,
    ]


def _draw_removed(head: Head) -> Node:
    if head.version is not None:
        return None
    return h.p(".warning")["It was removed. Its versions are kept; restoring one brings it back."]


def _draw_strip(site: Site, head: Head) -> Node:
    """Return how often the resource was shown, opened and used, and how often it helped; tables
    below.
    """
    if head.version is None:
        return None
    evidence = stats(site.library, site.caller, head.ref)
    (line,) = evidence.resources
    verdicts = {"helps": "good", "harms": "bad", "dead": "doubtful"}
    steps = [("shown", line.shown), ("opened", line.loaded), ("used", line.used)]
    return h.section(aria_label="Health")[
        h.div(".strip")[
            [h.span[h.strong[f"{number:,}"], f" {name}"] for name, number in steps],
            h.span["helped ", share_bar(line.helped)],
            tag(verdict_words(line.verdict), verdicts.get(line.verdict, "")),
            h.span(".none")[line.why],
        ],
        _draw_by_version(line),
        _draw_by_type(line),
        _draw_by_agent(evidence.agents),
    ]


def _draw_by_version(line: ResourceStats) -> Node:
    if not line.versions:
        return None
    rows = [
        [f"@{part.version}", part.model or "not known", share_bar(part.share)]
        for part in line.versions
    ]
    heads = ("version", "model", "helped")
    rates = table(heads, rows, "Helped by version and model")
    return h.details[h.summary["By version and model"], rates]


def _draw_by_type(line: ResourceStats) -> Node:
    if not any(task_type.task_type for task_type in line.task_types):
        return None
    rows = [
        [_name_type(part.task_type), share_bar(part.share), share_bar(part.verified)]
        for part in line.task_types
    ]
    heads = ("task type", "helped", "verified")
    return h.details[h.summary["By task type"], table(heads, rows, "Helped by task type")]


def _draw_by_agent(agents: Sequence[AgentUtility]) -> Node:
    if not agents:
        return None
    rows = [[agent.agent, _name_type(agent.task_type), share_bar(agent.share)] for agent in agents]
    heads = ("agent", "task type", "verified")
    rates = table(heads, rows, "Verified work by agent and task type")
    return h.details[h.summary["By agent and task type"], rates]


def _name_type(task_type: str) -> str:
    return make_visible(task_type) if task_type else "not told"


def _draw_document(head: Head, loaded: Loaded) -> Node:
    old: Node = None
    if loaded.version != head.version:
        old = h.span(".none")[f" of version {loaded.version}"]
    title = h.h2[make_visible(loaded.path), old]
    return h.section(aria_label="Document")[title, _draw_text(head, loaded)]


def _draw_files(head: Head, loaded: Loaded) -> Node:
    if len(loaded.files) < 2:
        return None
    files = [
        h.li[
            resource_link(head.ref, path, version=loaded.version, path=path),
            h.span(".none")[f" {size:,} bytes"],
        ]
        for path, size in loaded.files.items()
    ]
    return h.section[h.h2[f"{len(files)} files"], h.ul(".plain")[files]]


def _draw_text(head: Head, loaded: Loaded) -> Node:
    if loaded.text is None:
        return h.p(".none")[f"It is not text ({loaded.size:,} bytes)."]
    if not loaded.path.lower().endswith(".md"):
        return h.pre[make_visible(loaded.text)]
    front, body = _split_frontmatter(loaded.text)

    def place(path: str) -> str | None:
        path = unquote(path).removeprefix("./")
        if path not in loaded.files:
            return None
        return resource_address(head.ref, version=loaded.version, path=path)

    rendered, rest = render_markdown(body, place)
    return [
        h.pre(aria_label="Frontmatter")[make_visible(front)] if front else None,
        h.div(".document")[rendered],
        [h.p(".none")["The rest is too long to be rendered:"], h.pre[rest]] if rest else None,
        h.details[h.summary["The exact text"], h.pre[make_visible(loaded.text)]],
    ]


def _split_frontmatter(text: str) -> tuple[str, str]:
    """Return the frontmatter and the body of a document."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].strip() != "---":
        return "", text
    end = next((at for at, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    return ("", text) if end is None else ("\n".join(lines[1:end]), "\n".join(lines[end + 1 :]))


def _draw_removal(site: Site, request: PageRequest, head: Head) -> Node:
    if head.version is None:
        return None
    fields = {"ref": str(head.ref), "expected": head.version}
    lock = passphrase_field(site.passphrase_label if head.kind is Kind.MEMORY else "")
    button = h.button(".bad", type="submit")[f"Remove {head.ref}"]
    note = (
        "It goes from the library and from the watched folders; its versions stay, and Operations "
        "takes it back."
    )
    return h.details[
        h.summary["Remove"],
        form(request.session.csrf, action_path("remove"), h.p[note], lock, button, fields=fields),
    ]


def _restore(site: Site, request: PageRequest) -> str:
    ref, version = Ref.parse(request.get("ref")), request.require_number("version")
    restored = restore_resource(
        site.library,
        site.signing(request),
        ref,
        version,
        f"version {version} restored",
        expected_version=request.number("expected"),
    )
    return _make_address_after(ref, restored)


def _remove(site: Site, request: PageRequest) -> str:
    """Remove a resource, or those that a form of the library chose, by one operation."""
    if "pick" in request.fields or request.get("back"):
        chosen = dict(read_picked(request))
        operation = remove_together(
            site.library, site.signing(request), chosen, f"{len(chosen)} removed in the local page"
        )
        return f"/library?operation={operation.id}"
    ref = Ref.parse(request.get("ref"))
    removed = remove_resource(
        site.library,
        site.signing(request),
        ref,
        "removed in the local page",
        expected_version=request.number("expected"),
    )
    return _make_address_after(ref, removed)


def _make_address_after(ref: Ref, done: Updated) -> str:
    """Return the address of the resource, with the operation that was done."""
    nothing = 1 if done.operation is None else None
    return resource_address(ref, operation=done.operation, nothing=nothing)


VIEWS = (PageView("/resource/{ref:path}", _show_resource),)

ACTIONS = (
    PageAction("edit", save_edit),
    PageAction("restore", _restore),
    PageAction("remove", _remove),
)

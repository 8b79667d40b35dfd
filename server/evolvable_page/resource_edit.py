"""Edit a file of a resource in place, by the rules of the terminal.

A text that the library refuses is shown again in the form.
"""

from evolvable_page import elements as h
from evolvable_page.diff_view import draw_diff
from evolvable_page.elements import Node
from evolvable_page.layout import (
    PageBody,
    form,
    passphrase_field,
    resource_address,
    resource_link,
    with_code,
)
from evolvable_page.site import FormAgain, PageRequest, Site, action_path
from evolvable_page.text import make_visible, restore_line_ends
from evolvable_store import Head
from evolvable_store.errors import EvolvableError, InvalidArgument, InvalidResource, VersionConflict
from evolvable_store.resource import Kind, Ref
from evolvable_tools import NEXT, decode_text, silent_step
from evolvable_tools.care import secret_lines
from evolvable_tools.verbs import Loaded, Updated, get_resource, resource_history, update_resource

REASON = "edited in the local page"
"""Why a version was made by a form without a reason."""


def edit_form(site: Site, request: PageRequest, head: Head, loaded: Loaded) -> Node:
    """Return the form that edits a file of the newest version."""
    return h.section(aria_label="Edit")[
        _draw_form(site, request, head.ref, loaded.path, loaded.text or "", loaded.version)
    ]


def _draw_form(
    site: Site, request: PageRequest, ref: Ref, path: str, text: str, version: int
) -> Node:
    button = h.button(".good", type="submit")["Save"]
    address = resource_address(ref)
    return form(
        request.session.csrf,
        action_path("edit"),
        h.label(".text")[
            h.code[make_visible(path)],
            h.textarea(name="text", rows="24", spellcheck="false")["\n" + text],
        ],
        h.label[
            "Reason ", h.input(type="text", name="reason", maxlength="500", placeholder=REASON)
        ],
        passphrase_field(site.passphrase_label if ref.kind is Kind.MEMORY else ""),
        h.p(".buttons")[button, h.a(href=address, id="back")["Back without a change"]],
        fields={"ref": str(ref), "file": path, "expected": version},
    )


def save_edit(site: Site, request: PageRequest) -> str:
    """Make a version with the text that the person saved, and return the address of the result.

    Raise FormAgain where the library refuses it.
    """
    ref, path = Ref.parse(request.get("ref")), request.get("file")
    expected, text = request.require_number("expected"), request.get("text")
    old_text: str | None = None
    try:
        head = site.library.store.head(ref, site.caller.scopes)
        if path:
            old_text = decode_text(site.library.store.files(head, expected)[path].data)
        if old_text is None:
            raise InvalidArgument(
                "The form names no text of this resource.", "Open the resource again."
            )
        updated = update_resource(
            site.library,
            site.signing(request),
            ref,
            request.get("reason").strip() or REASON,
            files={path: restore_line_ends(text, old_text)},
            expected_version=expected,
        )
    except EvolvableError as error:
        raise FormAgain(_draw_form_again(site, request, ref, error)) from error
    if updated.proposal_id is not None:
        return f"/inbox/{updated.proposal_id}"
    request.session.remark(updated.operation, _list_remarks(site, updated))
    nothing = 1 if updated.operation is None else None
    return resource_address(ref, operation=updated.operation, nothing=nothing)


def _list_remarks(site: Site, updated: Updated) -> list[str]:
    """Return the remarks on a change, as at the terminal."""
    secrets = secret_lines(site.library, silent_step) if updated.changed else []
    return [*updated.warnings, *secrets, *[NEXT] * bool(secrets)]


def _draw_form_again(site: Site, request: PageRequest, ref: Ref, error: EvolvableError) -> PageBody:
    """Return the form with the text that the person wrote, and the reason of the refusal."""
    path, expected = request.get("file"), request.require_number("expected")
    problems = error.problems if isinstance(error, InvalidResource) else ()
    since: Node = None
    if isinstance(error, VersionConflict):
        # Saved again, the text replaces what is there now: the person sees that first.
        now = get_resource(site.library, site.caller, ref, path=path).version
        past = resource_history(
            site.library, site.caller, ref, from_version=expected, to_version=now
        )
        since = [h.h2[f"What changed from version {expected} to {now}"], draw_diff(past.diff or "")]
        expected = now
    return PageBody(
        f"Edit {ref}",
        [
            h.h1["Edit ", resource_link(ref)],
            h.div(".warning", role="alert")[
                h.p[make_visible(str(error))],
                h.ul[[h.li[make_visible(problem)] for problem in problems]] if problems else None,
                h.p[with_code(make_visible(error.hint))] if error.hint else None,
                h.p["Nothing was saved. Your text stands below."],
            ],
            since,
            _draw_form(
                site, request, ref, path, request.get("text").replace("\r\n", "\n"), expected
            ),
        ],
        "library",
        status=409 if isinstance(error, VersionConflict) else 400,
    )

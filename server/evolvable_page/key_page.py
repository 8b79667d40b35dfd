"""The signing key of a person who signs in: the page makes it, and it counts once the
configuration lists it.
"""

from evolvable_page import elements as h
from evolvable_page.access import PageSession
from evolvable_page.elements import Node
from evolvable_page.layout import PageBody, form
from evolvable_page.site import PageRequest, PageView, Site
from evolvable_page.text import make_visible
from evolvable_store.errors import InvalidArgument, NotFound, Refused

PATH = "/key"


def _show_key(site: Site, request: PageRequest) -> PageBody:
    """Show the person's key, or the form that makes it."""
    via = _require_via(site, request.session)
    own_key, listed_key = site.keys.public_key(via), site.listed_key(via)
    return PageBody(
        "Your signing key",
        [h.h1["Your signing key"], _draw_state(request, via, own_key, listed_key)],
    )


def _draw_state(request: PageRequest, via: str, own_key: str, listed_key: str) -> Node:
    if not own_key:
        fields = [
            _draw_passphrase("passphrase", "A passphrase of your own"),
            _draw_passphrase("again", "The same again"),
        ]
        text = "Approvals are locked here. What you decide counts when a key of your own signs it."
        button = h.button(type="submit")["Make my signing key"]
        return [h.p[text], form(request.session.csrf, PATH, fields, button)]
    key = h.p["Your key: ", h.code(id="key-made")[own_key]]
    if listed_key == own_key:
        return [key, h.p["It is listed: decisions that you sign with it count."]]
    command = f"evolvable care approvals allow {via.partition(':')[2]} {own_key}"
    another = h.p(".warning")["Another key of yours is listed than this one."]
    text = (
        "It does not count yet. Tell the person who serves this page, by another way than this "
        "page, to run:"
    )
    return [
        key,
        another if listed_key else None,
        h.p[text],
        h.pre[make_visible(command)],
        h.p["Then the page and the servers have to be started again."],
    ]


def _draw_passphrase(name: str, label: str) -> Node:
    return h.label[
        label, h.input(type="password", name=name, autocomplete="new-password", required=True)
    ]


def make_key(site: Site, request: PageRequest) -> str:
    """Make the key of the person who signed in. Raise Refused without the permission `approve`."""
    via, signed = _require_via(site, request.session), request.session.signed
    if signed is None or "approve" not in signed.permissions:
        raise Refused("Your groups do not let you decide, so you need no key.", "Ask for a grant.")
    if request.get("passphrase") != request.get("again"):
        raise InvalidArgument("The two passphrases differ.", "Go back and type the same twice.")
    key = site.keys.create(via, request.get("passphrase"))
    site.library.record(site.caller, "make signing key", f"key {key}")
    return PATH


def _require_via(site: Site, session: PageSession) -> str:
    """Return the identity of the person. Raise NotFound where approvals need no key of theirs."""
    if session.signed is None or not site.is_locked:
        raise NotFound("There is no key to make here.", "Follow a link of the page.")
    return session.signed.identity.via


VIEWS = (PageView(PATH, _show_key),)

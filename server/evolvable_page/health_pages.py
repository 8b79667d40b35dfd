"""Health: what doctor finds, the clients, the tokens, the watched folders, and which of them are
trusted.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_page import elements as h
from evolvable_page.diff_view import draw_diff
from evolvable_page.elements import Node
from evolvable_page.layout import (
    PageBody,
    form,
    passphrase_field,
    resource_link,
    table,
    tag,
    when,
    with_code,
)
from evolvable_page.site import PageAction, PageRequest, PageView, Result, Site, action_path
from evolvable_page.text import make_visible, one_line, quote_part
from evolvable_server import plugins, read_config, read_library_config, set_trusted
from evolvable_store.errors import Conflict, EvolvableError, InvalidArgument
from evolvable_tools import silent_step, verbs
from evolvable_tools.verbs import TrustOffer, TrustQuestion
from evolvable_tools.verbs.folder_states import folder_states
from evolvable_tools.verbs.library_status import list_held_files

if TYPE_CHECKING:
    from evolvable_server.care import Health

MAX_OFFERED = 200
"""Resources of a folder that are shown before a person trusts it; a larger folder is for the
terminal.
"""


def _show_health(site: Site, request: PageRequest) -> PageBody:
    """Show the problems that `doctor` finds, then the clients, settings and folders."""
    return PageBody(
        "Health",
        [
            h.h1["Health"],
            _draw_doctor(site),
            _draw_tokens(site),
            _draw_folders(site),
            _draw_trusted_folders(site),
        ],
        "health",
    )


def _draw_doctor(site: Site) -> Node:
    health = _run_in_background(site, "doctor", lambda: _examine(site))
    if health is None:
        return h.div(id="doctor", data_live=True)[
            h.p[with_code("`evolvable doctor` runs now; this page shows what it finds.")]
        ]
    if isinstance(health, EvolvableError):
        return h.div(id="doctor", data_live=True)[h.h2["Problems"], _draw_failure(health)]
    problems = [
        h.li[h.p(".warning")[make_visible(problem.what), " ", make_visible(problem.next)]]
        for problem in health.problems
    ]
    notes = [h.li[make_visible(note)] for note in health.notes]
    similar = [h.li[make_visible(line)] for line in health.doubles]
    return h.div(id="doctor", data_live=True)[
        h.h2["Problems"],
        h.ul[problems] if problems else h.p[tag("all is well", "good")],
        [h.h2["Notes"], h.ul[notes]] if notes else None,
        [h.h2["Similar resources"], h.ul[similar]] if similar else None,
        _draw_clients(health),
        _draw_settings(health),
    ]


def _run_in_background(
    site: Site, name: str, compute: Callable[[], Result]
) -> Result | EvolvableError | None:
    """Return the last value of a check in the background, or why there is none; None before the
    first ended.
    """

    def attempt() -> Result | EvolvableError:
        try:
            return compute()
        except EvolvableError as error:
            return error

    # An error is a value here: raised in the thread it would be logged, and the page would wait
    # without end.
    return site.value(name, attempt, site.revision())


def _examine(site: Site) -> "Health":
    """Return the report of `evolvable doctor` for this configuration, without the sandbox."""
    # late: few who open the page look at its health, and the checks need modules of every part
    from evolvable_server.care import examine

    home = site.library.store.home
    return examine(read_config(home=home), silent_step, home)


def _draw_failure(error: EvolvableError) -> Node:
    return h.p(".warning")[make_visible(str(error)), " ", with_code(make_visible(error.hint))]


def _draw_clients(health: "Health") -> Node:
    rows = [
        [
            one_line(client.client),
            one_line(client.scope),
            one_line(client.path),
            f"{client.seconds:.1f} s" if client.seconds is not None else "not started",
            when(client.last_session),
        ]
        for client in health.clients
    ]
    none = h.p[with_code("None. `evolvable connect claude-code` connects one.")]
    heads = ("client", "scope", "configuration", "starts in", "last session")
    return [h.h2["Clients"], table(heads, rows, "Connected clients") if rows else none]


def _draw_tokens(site: Site) -> Node:
    tokens = _run_in_background(
        site, "tokens", lambda: plugins.hooks().token_rows(home=site.library.store.home) or ()
    )
    if tokens is None or isinstance(tokens, EvolvableError):
        pending = h.p["They are being read."] if tokens is None else _draw_failure(tokens)
        return h.div(id="tokens", data_live=True)[h.h2["Tokens"], pending]
    rows = [
        [
            one_line(str(token["name"])),
            ", ".join(map(str, token["permissions"])),
            when(token["expires"]) if token["expires"] else "never",
            when(token["last_used"]),
        ]
        for token in tokens
    ]
    how = (
        "At a terminal, `evolvable team token add` makes one and `evolvable team token revoke` "
        "ends one."
    )
    hint = h.p(".none")[with_code(how)]
    heads = ("token", "may", "expires", "last used")
    token_table = table(heads, rows, "Tokens for HTTP") if rows else h.p["None."]
    return h.div(id="tokens", data_live=True)[h.h2["Tokens"], token_table, hint]


def _draw_settings(health: "Health") -> Node:
    rows = [
        [one_line(setting.name), one_line(setting.value), one_line(setting.source)]
        for setting in health.settings
    ]
    settings_table = table(("setting", "value", "from"), rows, "Settings in force")
    return h.details[h.summary["Settings"], settings_table] if rows else None


def _draw_folders(site: Site) -> Node:
    rows = [
        [
            make_visible(str(folder_state.path)),
            folder_state.kind,
            folder_state.scope,
            make_visible(folder_state.obstacle or folder_state.state),
            _link_question(str(folder_state.path)),
        ]
        for folder_state in folder_states(site.library)
    ]
    none = h.p[with_code("None. `evolvable init FOLDER` imports one and follows it.")]
    heads = ("folder", "kind", "scope", "state", "trust")
    return [
        h.h2["Watched folders"],
        table(heads, rows, "Watched folders") if rows else none,
        _draw_held_files(site),
    ]


def _link_question(folder: str) -> Node:
    """Return the link to the question whether the person trusts a folder."""
    address = f"/trust?folder={quote_part(folder)}"
    return h.a(href=address, aria_label=f"what it brings: {folder}")["what it brings"]


def _draw_held_files(site: Site) -> Node:
    """Return the files whose text waits for a person's decision, nothing without one.

    Agents do not read that text.
    """
    held_files = list_held_files(site.library)
    lines = [
        h.li[
            make_visible(held_file.text),
            " ",
            h.a(href=f"/inbox/{held_file.proposal}")[f"Proposal {held_file.proposal}"],
        ]
        for held_file in held_files
    ]
    return [h.h3["Held files"], h.ul[lines]] if lines else None


def _draw_trusted_folders(site: Site) -> Node:
    home = site.library.store.home
    folders = sorted(read_library_config(home).trusted_folders(home))
    rows = [h.li[h.code[make_visible(folder)]] for folder in folders]
    hint = h.p(".none")[with_code("`evolvable trust --withdraw FOLDER` ends it.")]
    return [
        h.h2["Trusted folders"],
        [h.ul[rows], hint] if rows else h.p["None beyond what you wrote yourself."],
    ]


def _load_question(site: Site, request: PageRequest) -> TrustQuestion:
    """Return the question about a watched folder; an address can name no other one."""
    folders = {str(folder.path): folder.path for folder in site.library.folders()}
    folder = folders.get(request.get("folder"))
    if folder is None:
        raise InvalidArgument("This is no watched folder.", "Health lists those that are.")
    return verbs.ask_trust(site.library, site.caller, folder=folder)


def _hash_question(question: TrustQuestion) -> str:
    """Return the hash of all that a question shows."""
    offered = [
        (offer.ref, offer.resource, offer.tree, offer.proposal) for offer in question.offered
    ]
    return sha256(repr((question.folder, offered)).encode("utf-8", "surrogateescape")).hexdigest()


def _show_trust_form(site: Site, request: PageRequest) -> PageBody:
    """Show the resources of a folder that nobody trusts yet, with one form for all of them."""
    question = _load_question(site, request)
    title = h.h1["What ", h.code[make_visible(question.what)], " brings"]
    trusted = h.p[f"{len(question.trusted)} of its resources are trusted already."]
    if not question.offered:
        return PageBody("Trust", [title, trusted, h.p["Nothing waits for your trust."]], "health")
    if len(question.offered) > MAX_OFFERED:
        note = (
            f"{len(question.offered):,} resources wait; `evolvable trust` shows them at a terminal."
        )
        return PageBody("Trust", [title, trusted, h.p[with_code(note)]], "health")
    high = sum(1 for offer in question.offered if offer.high)
    words = f"Trust these {len(question.offered)} as they are now"
    button = h.button(".good", type="submit")[words]
    fields = {"folder": request.get("folder"), "seen": _hash_question(question)}
    ask = form(
        request.session.csrf,
        action_path("trust"),
        passphrase_field(site.passphrase_label),
        button,
        fields=fields,
    )
    warning = h.p(".warning")[f"{high} of them have findings of high severity."] if high else None
    offers = [_draw_offer(offer) for offer in question.offered]
    return PageBody("Trust", [title, trusted, warning, offers, ask], "health")


def _draw_offer(offer: TrustOffer) -> Node:
    kind = "bad" if offer.high else "doubtful"
    findings = [
        h.li[tag(str(finding.severity), kind), " ", make_visible(str(finding))]
        for finding in offer.findings
    ]
    capabilities = ", ".join(make_visible(str(name)) for name in offer.capabilities)
    return h.section[
        h.h2[resource_link(offer.ref), " ", tag(offer.author, kind)],
        h.ul[findings] if findings else h.p(".none")["The scan found nothing."],
        h.p["It has the means: ", capabilities] if capabilities else None,
        draw_diff(offer.diff) if offer.diff else None,
    ]


def _trust(site: Site, request: PageRequest) -> str:
    question = _load_question(site, request)
    if _hash_question(question) != request.get("seen"):
        raise Conflict("The folder holds something else than you saw.", "Look at it again.")
    caller = site.decider(request)
    verbs.trust(site.library, caller, question)
    set_trusted(Path(question.folder), site.library.store.home.resolve(), caller.signer)
    return f"/trust?folder={quote_part(request.get('folder'))}"


VIEWS = (PageView("/health", _show_health), PageView("/trust", _show_trust_form))

ACTIONS = (PageAction("trust", _trust),)

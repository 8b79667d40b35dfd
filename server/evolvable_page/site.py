"""Answer requests of the local page: views read, and actions run one verb of the registry for the
person.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from evolvable_page import elements as h
from evolvable_page.access import PageAccess, PageSession
from evolvable_page.background import BackgroundValue
from evolvable_page.guard import BodyTooLong
from evolvable_page.layout import HOW_TO_DECIDE, MAY_READ, Frame, PageBody, draw_page, with_code
from evolvable_page.text import make_visible
from evolvable_server import ApproverKeys, Config, lock_of, read_library_config
from evolvable_store import Actor, Signer
from evolvable_store.errors import (
    Conflict,
    EvolvableError,
    InvalidArgument,
    InvalidResource,
    LibraryError,
    NotFound,
    Refused,
)
from evolvable_tools import Caller, Library
from evolvable_tools.verbs import VERBS, Authority

log = logging.getLogger(__name__)

_SESSION: ContextVar[PageSession | None] = ContextVar("evolvable_page_session", default=None)
"""The session of the request that this thread answers."""

_CALLER: ContextVar[Caller | None] = ContextVar("evolvable_page_caller", default=None)
"""The person who asked for the page that this thread draws.

None for an action, which may change the folders and so the scopes of the person.
"""

END_PATH = "/end"
"""Where a browser signs out, also one that only reads."""

# The largest form is a list of resources with a box for each; more fields would only cost time to
# parse.
MAX_FIELDS = 1_000
"""Fields of a form."""

# The count stands on every page, so it is bounded; beyond it the frame shows `100+`.
MOST_WAITING = 100
"""Proposals that the inbox lists, and counts, at once."""

_FILES = {
    "style.css": "text/css",
    "page.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

# Some keys hold the name of a person; without a bound each one who signs in would leave values
# behind.
MAX_VALUES = 64
"""Computations whose last value is kept."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class PageServices:
    """The objects that the command passes to the page.

    caller: the person, known by `page`. signer: returns the signer of a decision for a passphrase,
    None where approvals are not locked. changed: called after an action.
    """

    config: Config
    library: Library
    caller: Caller
    signer: Callable[[str], Signer | None]
    changed: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request as a view reads it. path: the parts of the address; fields: of the query, or of the
    form.

    by_itself: an open page reads its live parts again, and no person looks at it.
    """

    path: Mapping[str, str]
    fields: Mapping[str, Sequence[str]]
    session: PageSession
    by_itself: bool = False

    def get(self, name: str) -> str:
        """Return a field, '' without it."""
        return next(iter(self.fields.get(name, ())), "")

    def number(self, name: str) -> int | None:
        """Return a field that is a number, None without it. Raise InvalidArgument."""
        text = str(self.path.get(name, "")) or self.get(name)
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise InvalidArgument(f"{name} is no number.", "Follow a link of the page.")
        return int(text)

    def require_number(self, name: str) -> int:
        """Return a field that is a number. Raise InvalidArgument."""
        number = self.number(name)
        if number is None:
            raise InvalidArgument(f"{name} is missing.", "Follow a link of the page.")
        return number


View = Callable[["Site", PageRequest], "PageBody | str"]
"""Returns a page, or the address of another one."""

Action = Callable[["Site", PageRequest], str]


class FormAgain(Exception):
    """A form that was refused is shown again with its texts."""

    def __init__(self, body: PageBody) -> None:
        super().__init__(body.title)
        self.body = body


@dataclass(frozen=True, slots=True)
class PageView:
    """A page that is read."""

    path: str
    view: View


@dataclass(frozen=True, slots=True)
class PageAction:
    """The action of a form: one verb of the registry.

    run: returns the address of the page that shows the result. It raises FormAgain where the person
    has to correct the form.
    """

    verb: str
    run: Action

    @property
    def path(self) -> str:
        """The address that the form is sent to."""
        return action_path(self.verb)


def action_path(verb: str) -> str:
    """Return the address of the action that runs a verb."""
    return f"/do/{VERBS[verb].name.replace(' ', '-')}"


@dataclass
class Site:
    """The services, and the values that are computed in the background.

    notify: tells open pages of a change. version: the number of the last change that was seen.
    commits: returns a value that differs after each commit to the library. values: by name.
    left_out: sections that this page does not have. added: those of other parts of the program.
    keys: of people who sign in.
    """

    services: PageServices
    access: PageAccess
    notify: Callable[[], None] = lambda: None
    version: Callable[[], int] = lambda: 0
    commits: Callable[[], Hashable] = object
    values: dict[str, BackgroundValue[Any]] = field(default_factory=dict)
    left_out: frozenset[str] = frozenset()
    added: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    keys: ApproverKeys = field(default_factory=ApproverKeys)

    def __post_init__(self) -> None:
        self._kept: dict[str, tuple[Hashable, Any]] = {}
        self._commits: tuple[float, Hashable] = (-1.0, None)
        folder = Path(__file__).with_name("static")
        self._content = {name: (folder / name).read_bytes() for name in _FILES}
        # The hash in the address lets a browser keep a file until it changes.
        self.files = {
            name: f"/static/{name}?v={sha256(data).hexdigest()[:12]}"
            for name, data in self._content.items()
        }

    @property
    def config(self) -> Config:
        """The configuration of the person."""
        return self.services.config

    @property
    def library(self) -> Library:
        """The library that the page shows."""
        return self.services.library

    @property
    def caller(self) -> Caller:
        """The person whose request is answered, who sees every scope that a watched folder has."""
        return _CALLER.get() or self._read_caller()

    def _read_caller(self) -> Caller:
        own, session = self.services.caller, _SESSION.get()
        scopes = dict.fromkeys((*own.scopes, *(folder.scope for folder in self.library.folders())))
        own = replace(own, address=session.address if session is not None else "")
        if session is not None and session.signed is not None:
            identity = session.signed.identity
            # The actor too: a service runs for nobody, and its own caller is no person.
            own = replace(
                own,
                actor=Actor.HUMAN,
                principal=identity.principal,
                via=identity.via,
                session=identity.via,
                signer=None,
            )
        return replace(own, scopes=tuple(scopes))

    @property
    def is_locked(self) -> bool:
        """Whether decisions need the passphrase."""
        return self.library.lock is not None

    @property
    def passphrase_label(self) -> str:
        """The question for the passphrase that decisions need, '' where approvals are
        not locked.
        """
        if not self.is_locked:
            return ""
        session = _SESSION.get()
        own = session is not None and session.signed is not None
        return "Passphrase of your signing key" if own else "Passphrase of the approvals lock"

    def listed_key(self, via: str) -> str:
        """Return the key that the configuration lists for a person who signs in, '' without one."""
        return self.library.lock.people.get(via, "") if self.library.lock is not None else ""

    def decider(self, request: PageRequest) -> Caller:
        """Return the person with the signer of a decision.

        Raise Refused without the passphrase that a lock needs.
        """
        # The lock was read when the page began. A newer one may list other keys, and a decision
        # under the old one would not count.
        if lock_of(read_library_config(self.library.store.home)) != self.library.lock:
            raise Refused(
                "The approvals lock was changed since this page was opened.",
                "Run `evolvable ui` again.",
            )
        if self.is_locked and not request.get("passphrase"):
            raise Refused(
                "Approvals are locked, and the passphrase is missing.",
                "Go back and type the passphrase.",
            )
        return self.signing(request)

    def signing(self, request: PageRequest) -> Caller:
        """Return the person with a signer, for actions that need a signature in some cases only.

        Raise Refused.
        """
        signed, passphrase = request.session.signed, request.get("passphrase")
        if signed is None:
            return replace(self.caller, signer=self.services.signer(passphrase))
        if not self.is_locked or not passphrase:
            return self.caller
        if not (key := self.listed_key(signed.identity.via)):
            hint = (
                "Make one by the link `Your signing key`, and have the person who serves this "
                "page list it."
            )
            raise Refused("Approvals are locked, and no signing key of yours is listed.", hint)
        return replace(self.caller, signer=self.keys.open(signed.identity.via, key, passphrase))

    def revision(self) -> Hashable:
        """Return a key that changes with every change that an open page is told of, and each
        minute.

        It is for values that are read outside of the library too.
        """
        return self.library.store.sequence(), self.version(), time.monotonic() // 60

    def library_revision(self) -> Hashable:
        """Return a key that changes with every change that an open page is told of, and each hour.

        A commit that no open page is told of counts within a minute. It is for values that follow
        from the library and the time alone, which are not read again while nobody changes it.
        """
        minute = time.monotonic() // 60
        if self._commits[0] != minute:
            # Asked once a minute: each question is a read of the database, and this runs with every
            # page.
            self._commits = minute, self.commits()
        return self.library.store.sequence(), self.version(), self._commits[1], time.time() // 3600

    def value(self, name: str, compute: Callable[[], Result], key: Hashable) -> Result | None:
        """Return the last value of a computation in the background; see `BackgroundValue`."""
        # Several threads come here without a lock: `pop` with a default does not fail if another
        # was faster.
        while len(self.values) >= MAX_VALUES and name not in self.values:
            self.values.pop(next(iter(self.values)), None)
        value = self.values.get(name)
        if value is None:
            value = self.values.setdefault(name, BackgroundValue(compute, self.notify))
        return value.get(key)

    def keep(self, name: str, compute: Callable[[], Result], *, is_dated: bool = True) -> Result:
        """Return a value that depends on the library, the trusted folders, the caller and, to the
        minute, the time.

        It is computed again once one of them differs; a commit counts, by whatever process. name:
        one for each use. is_dated: whether it goes by the time at all.
        """
        caller, backend = self.caller, self.library.store.backend
        # Read before the value: a commit in between makes the key older than the value, and never
        # younger.
        minute = time.time() // 60 if is_dated else 0
        key = (self.commits(), backend.trusted_folders(), minute, self.is_locked, caller.scopes)
        place = f"{name} {caller.via}"
        entry = self._kept.get(place)
        if entry is None or entry[0] != key:
            while len(self._kept) >= MAX_VALUES and place not in self._kept:
                self._kept.pop(next(iter(self._kept), ""), None)
            entry = self._kept[place] = key, compute()
        return entry[1]

    def waiting(self) -> str:
        """Return how many proposals wait, '' for none."""
        proposals, now = self.library.store.backend.proposals, self.library.store.now()
        count = self.keep("number that waits", lambda: proposals.count_waiting(now, MOST_WAITING))
        if not count:
            return ""
        return f"{count}" if count < MOST_WAITING else f"{MOST_WAITING}+"

    def draw(self, body: PageBody, session: PageSession) -> Response:
        """Return a page in its frame."""
        signed = session.signed.identity.via.partition(":")[2] if session.signed is not None else ""
        frame = Frame(
            self.files,
            self.waiting(),
            session.csrf,
            self.is_locked,
            signed,
            self.left_out,
            self.added,
            reads=not session.decides,
            keeps=session.decides and bool(self.access.reading_origin),
        )
        return HTMLResponse(draw_page(body, frame), body.status)

    def routes(self, views: Sequence[PageView], actions: Sequence[PageAction]) -> list[Route]:
        """Return the routes of these views and actions, of the files of the page, and of the end of
        a session.
        """
        return [
            Route("/static/{name}", self._answer_file, methods=["GET"]),
            Route(END_PATH, self._make_form_endpoint(self._end), methods=["POST"]),
            # For a reload of the page that a refused form led to.
            Route("/do/{verb}", lambda _: RedirectResponse("/inbox", 303), methods=["GET"]),
            *(
                Route(view.path, self._make_view_endpoint(view.view), methods=["GET"])
                for view in views
            ),
            *(self.form_route(action.path, action.run, action.verb) for action in actions),
        ]

    def form_route(self, path: str, run: Action, verb: str = "") -> Route:
        """Return the route of a form.

        verb: whose permission it needs, '' where `run` looks at it.
        """
        return Route(path, self._make_form_endpoint(self._make_action(run, verb)), methods=["POST"])

    async def _answer_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._content:
            return PlainTextResponse("There is no such file.\n", 404)
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(self._content[name], media_type=_FILES[name], headers=headers)

    def _make_view_endpoint(self, view: View) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            # page.js sends this header when it reads a live part again.
            by_itself = "evolvable-live" in request.headers
            session = request.scope["page_session"]
            fields = _parse_fields(request.url.query)
            page_request = PageRequest(request.path_params, fields, session, by_itself)
            return await to_thread.run_sync(self._answer_view, view, page_request)

        return answer

    def _answer_view(self, view: View, request: PageRequest) -> Response:
        _SESSION.set(request.session)
        try:
            _CALLER.set(self._read_caller())
            body = view(self, request)
            if isinstance(body, str):
                return RedirectResponse(body, 303)
            return self.draw(body, request.session)
        except EvolvableError as error:
            return self._draw_failure(_make_error_page(error), request.session)
        except Exception:
            log.exception("a page failed")
            return self._draw_failure(BROKEN_PAGE, request.session)

    def _draw_failure(self, body: PageBody, session: PageSession) -> Response:
        """Return a page about a failure; as text alone where the frame cannot be drawn either."""
        try:
            return self.draw(body, session)
        except Exception:
            log.exception("the page about a failure failed")
            return PlainTextResponse(
                "The library cannot be read. `evolvable doctor` says more.\n", 500
            )

    def _make_form_endpoint(
        self, answer: Callable[[PageRequest], Response]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a form: it compares the form's token before anything else is read
        of it.
        """

        async def answer_post(request: Request) -> Response:
            session: PageSession = request.scope["page_session"]
            try:
                fields = _parse_fields((await request.body()).decode("utf-8", "replace"))
            except BodyTooLong:
                return PlainTextResponse("This form is too long.\n", 413)
            page_request = PageRequest(request.path_params, fields, session)
            # Before the permission and the action: a form of another site must learn nothing and do
            # nothing.
            if not _is_equal(page_request.get("csrf"), session.csrf):
                return PlainTextResponse(
                    "This form is not of this session. Reload the page.\n", 403
                )
            # A session that reads may end itself, so that a browser can be signed out anywhere.
            if not session.decides and request.url.path != END_PATH:
                refusal = _make_error_page(Refused(MAY_READ, HOW_TO_DECIDE))
                return await to_thread.run_sync(self._draw_refusal, refusal, session)
            return await to_thread.run_sync(answer, page_request)

        return answer_post

    def _draw_refusal(self, body: PageBody, session: PageSession) -> Response:
        answer = self._draw_failure(body, session)
        answer.headers["hx-push-url"] = "false"  # the address of a form shows nothing
        return answer

    def _make_action(self, run: Action, verb: str) -> Callable[[PageRequest], Response]:
        def run_action(request: PageRequest) -> Response:
            _SESSION.set(request.session)
            try:
                if verb:
                    _check_permission(request.session, verb)
                address = request.session.answer_once(
                    _hash_form(request), lambda: run(self, request)
                )
            except FormAgain as again:
                return self._draw_refusal(again.body, request.session)
            except EvolvableError as error:
                return self._draw_refusal(_make_error_page(error), request.session)
            except Exception:
                log.exception("an action failed")
                return self._draw_refusal(BROKEN_ACTION, request.session)
            # Only after an action that succeeded: it wakes the open pages and what follows the
            # library.
            self.services.changed()
            return RedirectResponse(address, 303)

        return run_action

    def _end(self, request: PageRequest) -> Response:
        self.access.end(request.session)
        if request.session.signed is not None:
            return PlainTextResponse(
                "You are signed out here. Your session at the provider goes on.\n"
            )
        return PlainTextResponse(
            "This browser is signed out. Press Enter where `evolvable ui` runs for a new link.\n"
        )


def _check_permission(session: PageSession, verb: str) -> None:
    """Raise Refused where a signed-in person lacks the permission.

    A browser that a link opened may do everything.
    """
    if session.signed is None:
        return
    authority = VERBS[verb].authority
    if authority is Authority.PERSON:
        hint = "It decides about the machine that serves the library."
        raise Refused(f"`{verb}` is for the person who serves this page.", hint)
    # Every form changes something, also where its verb can be used to look.
    needed = authority if authority is Authority.APPROVE else Authority.WRITE
    if needed not in session.signed.permissions:
        may = ", ".join(sorted(session.signed.permissions))
        raise Refused(
            f"`{verb}` needs the permission {needed}; your groups give {may}.",
            "Ask the person who serves this page for a grant.",
        )


def _parse_fields(text: str) -> dict[str, list[str]]:
    try:
        return parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="replace")
    except ValueError:
        return {}


def _hash_form(request: PageRequest) -> str:
    """Return the hash of all fields of a form, '' for one without the field `once`."""
    if not request.get("once"):
        return ""
    fields = repr(sorted(request.fields.items()))
    return sha256(fields.encode("utf-8", "replace")).hexdigest()


def _is_equal(sent: str, other: str) -> bool:
    # Compared by hash, so that the time of the comparison says nothing of the token.
    sent_hash = sha256(sent.encode("utf-8", "replace")).digest()
    return sent_hash == sha256(other.encode("utf-8")).digest()


# The first match counts, so a subclass stands before its base.
_STATUS: Sequence[tuple[type[EvolvableError], int]] = (
    (NotFound, 404),
    (Conflict, 409),
    (Refused, 403),
    (LibraryError, 500),
)


def _make_error_page(error: EvolvableError) -> PageBody:
    """Return the page with an error and its hint."""
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 400)
    problems = error.problems if isinstance(error, InvalidResource) else ()
    title = "Not found" if status == 404 else "Not done"
    return PageBody(
        title,
        [
            h.h1[title],
            h.p(".warning", role="alert")[make_visible(str(error))],
            h.ul[[h.li[make_visible(problem)] for problem in problems]] if problems else None,
            h.p[with_code(make_visible(error.hint))] if error.hint else None,
            h.p[h.a(href="/inbox", id="next")["To the inbox"]],
        ],
        status=status,
    )


def _make_defect_page(what: str, hint: str) -> PageBody:
    text = f"{what} This is a defect of Evolvable; the terminal where `evolvable ui` runs shows it."
    main = [h.h1["Something broke"], h.p(".warning", role="alert")[text], h.p[hint], _HOME]
    return PageBody("Something broke", main, status=500)


_HOME = h.p[h.a(href="/inbox", id="next")["To the inbox"]]

BROKEN_PAGE = _make_defect_page("This page could not be made.", "Nothing was changed.")
BROKEN_ACTION = _make_defect_page(
    "The action ended in the middle.", "Look at Operations: what is not listed there was not done."
)

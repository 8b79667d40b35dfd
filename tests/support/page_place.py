"""The local page over a real library, served in this process on a real port, and raw requests to
it.
"""

import contextlib
import http.client
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from evolvable_page.app import PageServer
from evolvable_page.ui_command import services_of
from evolvable_server.config import Config
from evolvable_store.objects import File
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import Draft
from evolvable_teams.sign_in import LoginFlow
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, proposal_inbox

PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")
AGENT = Caller(Actor.AGENT, "session-1", principal=Principal.AGENT, via="client:codex")


def skill_text(name: str, body: str = "one\n\ntwo\n\nthree", description: str = "") -> str:
    return (
        f"---\nname: {name}\ndescription: {description or f'Works with {name} files.'}\n---\n\n"
        f"{body}\n"
    )


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def location(self) -> str:
        return self.headers.get("location", "")

    def field(self, name: str) -> str:
        """The value of the first hidden field of this name."""
        found = re.search(rf'<input type="hidden" name="{name}" value="([^"]*)"', self.text)
        return unescape(found[1]) if found else ""


class PageBrowser:
    """A browser at the page of one origin, which is served on this machine.

    trusted: whose certificates it accepts.
    """

    def __init__(self, origin: str, trusted: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(origin)
        assert parts.port is not None
        self.origin, self.host, self.port, self._trusted = origin, parts.netloc, parts.port, trusted
        self.cookie, self.csrf, self.opened = "", "", ""

    def come_back(self, path: str, kept: str) -> PageAnswer:
        """Come back from the provider to an address, with the cookie of the login; keep the session
        that it opens.
        """
        answer = self.request("GET", path, cookie=kept)
        cookies = answer.headers.get("set-cookie", "")
        if answer.status == 200:
            self.opened = cookies
            self.cookie = cookies.partition(";")[0]
            self.csrf = self.get("/operations").field("csrf")
        return answer

    def request(
        self,
        method: str,
        path: str,
        body: str | None = None,
        *,
        cookie: str | None = None,
        **headers: str,
    ) -> PageAnswer:
        """Send one request as a browser at the page's own address does.

        headers: instead of its own; '' for none.
        """
        sent = {"Host": self.host, "Cookie": self.cookie if cookie is None else cookie}
        if body is not None:
            sent |= {"Origin": self.origin, "Content-Type": "application/x-www-form-urlencoded"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = self._connection()
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            data = (body or "").encode()
            for name, value in sent.items():
                if value:
                    connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            answer = connection.getresponse()
            found: dict[str, str] = {}
            for name, value in answer.getheaders():  # of a header that is there twice, the first
                found.setdefault(name.lower(), value)
            return PageAnswer(answer.status, found, answer.read().decode())

    def _connection(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.connect()
        if self._trusted is not None:
            # The name of the page, which no name server knows.
            name = self.host.rpartition(":")[0]
            connection.sock = self._trusted.wrap_socket(connection.sock, server_hostname=name)
        return connection

    def get(self, path: str) -> PageAnswer:
        return self.request("GET", path)

    def post(
        self,
        path: str,
        *,
        csrf: str | None = None,
        headers: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> PageAnswer:
        given = {"csrf": self.csrf if csrf is None else csrf, **fields}
        return self.request("POST", path, urlencode(given, doseq=True), **dict(headers or {}))


class PagePlace(PageBrowser):
    """A library, the page over it, and a browser that is signed in."""

    def __init__(self, library: Library, server: PageServer) -> None:
        super().__init__(server.access.origin)
        self.library, self.server = library, server

    def sign_in(self) -> None:
        parts = urlsplit(self.server.access.new_link())
        answer = self.request("GET", f"{parts.path}?{parts.query}", cookie="")
        assert answer.status == 303, answer.text
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.csrf = self.get("/operations").field("csrf")

    # What others do in the library

    def create(self, name: str, body: str = "one\n\ntwo\n\nthree", caller: Caller = PERSON) -> None:
        files = {"SKILL.md": skill_text(name, body).encode()}
        edit.update_resource(
            self.library, caller, Ref.parse(name), "made", files=files, create=True
        )

    def propose(
        self, name: str, body: str, reason: str = "shorter", session: str = "session-1"
    ) -> int:
        """Have an agent propose another text of a skill; return the number."""
        return propose_text(self.library, name, body, reason, session)


def propose_text(
    library: Library,
    name: str,
    body: str,
    reason: str = "shorter",
    session: str = "session-1",
    actor: Actor = AGENT.actor,
    grounds: str | None = None,
) -> int:
    """Have an agent, or a review, propose another text of a skill; return the number.

    grounds: what a review says for it, as JSON.
    """
    ref = Ref.parse(name)
    head = library.store.head_or_none(ref)
    base = (head.version if head else None) or 0
    changed = dict(proposal_inbox.files_at(library, ref, base))
    changed["SKILL.md"] = File(skill_text(name, body).encode(), 0o644)
    # Stored as it is: what the scan refuses is shown as well as everything else.
    draft = Draft(replace(ref, scope="user"), base, changed, reason, grounds=grounds)
    return library.store.backend.proposals.add(library.store.now(), actor, session, draft)


@contextlib.contextmanager
def open_page(
    home: Path, port: int = 0, flow: LoginFlow | None = None, **options: Any
) -> Iterator[PagePlace]:
    """Yield the page over the library in `home`. options: of `Library.open`.

    It is signed in by a link, unless people sign in by a provider's login (flow).
    """
    with Library.open(home, create=True, **options) as library:
        services = services_of(Config(home, home), library, PERSON)
        server = PageServer(services, port, flow=flow)
        started = threading.Event()
        thread = threading.Thread(target=server.serve, args=(started.set,), daemon=True)
        thread.start()
        assert started.wait(20)
        try:
            place = PagePlace(library, server)
            if flow is None:
                place.sign_in()
            yield place
        finally:
            server.stop()
            thread.join(timeout=20)
            assert not thread.is_alive()

"""The page as a service: no terminal, HAProxy with TLS in front of it, people of a real provider,
and strangers.
"""

import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browser import Tab, chromium
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from mcp_place import Place
from oidc_provider import Browser, Provider, fill_login
from page_place import PageAnswer, PageBrowser, propose_text
from processes import poll

from evolvable_page.app import PageServer
from evolvable_page.ui_command import services_of
from evolvable_server.config import Config
from evolvable_store.errors import InvalidArgument
from evolvable_store.operation import Actor, Principal
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library

pytestmark = pytest.mark.process

CONFIGURATION = Path(__file__).parents[1] / "support/page_proxy.cfg"
"""What docs/sign-in.md shows."""


def test_the_documentation_shows_the_configuration_of_the_proxy_that_is_tested() -> None:
    text = (Path(__file__).parents[2] / "docs/sign-in.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```haproxy\n(.*?)^```", text, re.M | re.S)
    tested = CONFIGURATION.read_text(encoding="utf-8").partition("\n")[2]
    for ours, theirs in (
        ("127.0.0.1:PORT", "*:443"),
        ("CERTIFICATE", "/etc/haproxy/inbox.example.org.pem"),
        ("PAGE", "8650"),
    ):
        tested = tested.replace(ours, theirs)
    assert shown == tested


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def certificate(name: str, path: Path) -> None:
    """Write a key and a certificate of this name that it signed itself."""
    key, own = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
    )
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = (
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + key.private_bytes(*form))


def sign_in_table(provider: Provider, origin: str, more: str = "") -> str:
    client = provider.register(f"{origin}/callback")["client_id"]
    return f"""
[sign_in]
issuer = "{provider.issuer}"
client = "{client}"
address = "{origin}"
scopes = ["openid", "groups"]
{more}
[[sign_in.grants]]
value = "deciders"
permissions = ["write", "approve"]
[[sign_in.grants]]
value = "readers"
permissions = ["read"]
"""


@dataclass
class Service:
    """The page that runs, and the proxy in front of it."""

    place: Place
    provider: Provider
    origin: str
    port: int
    trusted: ssl.SSLContext
    process: "subprocess.Popen[str]"

    def browser(self) -> PageBrowser:
        return PageBrowser(self.origin, self.trusted)

    def signed_in(self, login: str) -> PageBrowser:
        browser = self.browser()
        begun = browser.request("GET", "/sign-in", cookie="")
        with Browser() as there:
            back = fill_login(there, begun.location, login, until=self.origin)
        parts = urlsplit(back)
        assert f"{parts.scheme}://{parts.netloc}" == self.origin
        kept = begun.headers["set-cookie"].partition(";")[0]
        answer = browser.come_back(f"{parts.path}?{parts.query}", kept)
        assert answer.status == 200, answer.text
        return browser

    def propose(self, body: str, session: str) -> int:
        with Library.open(self.place.home) as library:
            return propose_text(library, "pdf", body, session=session)


def start(place: Place, *words: str, **environment: str) -> "subprocess.Popen[str]":
    """Start the page as a service manager does: no terminal, and no more environment
    than it needs.
    """
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "evolvable_server", "ui", "--sign-in", *words],
        env=place.environment | environment,
        cwd=place.root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def ended(process: "subprocess.Popen[Any]") -> Iterator[None]:
    with process:
        try:
            yield
        finally:
            process.kill()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, provider: Provider) -> Iterator[Service]:
    haproxy = shutil.which("haproxy")
    if haproxy is None:
        pytest.skip("HAProxy is not installed")
    place = Place(tmp_path_factory.mktemp("service"))
    front, port = free_port(), free_port()
    origin = f"https://inbox.localhost:{front}"
    place.configure(
        sign_in_table(provider, origin, f'listen = "127.0.0.1:{port}"\nproxies = ["127.0.0.1"]')
    )
    pem, configuration = place.root / "page.pem", place.root / "haproxy.cfg"
    certificate("inbox.localhost", pem)
    text = CONFIGURATION.read_text("utf-8").replace("CERTIFICATE", str(pem))
    configuration.write_text(text.replace("PORT", str(front)).replace("PAGE", str(port)), "utf-8")
    with ExitStack() as stack:
        process = start(place)
        stack.enter_context(ended(process))
        assert process.stderr is not None
        line = process.stderr.readline()
        assert f"Serving {origin}" in line, line + process.stderr.read()
        proxy = subprocess.Popen([haproxy, "-db", "-q", "-f", str(configuration)])
        stack.enter_context(ended(proxy))
        found = Service(
            place, provider, origin, port, ssl.create_default_context(cafile=pem), process
        )
        poll(lambda: answers(found.browser()), "the proxy to pass requests on")
        yield found


def answers(browser: PageBrowser) -> bool:
    try:
        return browser.get("/inbox").status == 401
    except OSError:
        return False


def decided(answer: PageAnswer, number: int) -> dict[str, Any]:
    fields = {
        name: answer.field(name)
        for name in ("expected", "seen", "base", "head")
        if answer.field(name)
    }
    return {"number": number, "reason": "clear", **fields}


def test_a_person_signs_in_through_the_proxy_and_decides(service: Service) -> None:
    service.provider.account("ada", "deciders")
    number = service.propose("shorter", "one")
    browser = service.signed_in("ada")
    shown = browser.get(f"/inbox/{number}")
    claimed = {
        "X-Forwarded-For": "203.0.113.9",
        "X-Forwarded-Proto": "http",
        "Forwarded": "for=203.0.113.9",
    }
    done = browser.post("/do/inbox-approve", headers=claimed, **decided(shown, number))

    assert done.status == 303 and not done.location.startswith("http"), done.text
    with Store.open(service.place.home) as store:
        made = store.operations(1)[0]
        noted = store.backend.audit.newest(1)[0]
    via = f"oidc:ada@{urlsplit(service.provider.issuer).netloc}"
    assert (made.principal, made.intent.via) == (Principal.PERSON, via)
    assert (noted.decision, noted.via, noted.address) == ("approve", via, "127.0.0.1")


def test_its_cookies_are_for_the_encrypted_page_of_this_host_alone(service: Service) -> None:
    service.provider.account("ada", "deciders")
    begun = service.browser().request("GET", "/sign-in", cookie="")
    browser = service.signed_in("ada")
    for cookie, same_site in ((begun.headers["set-cookie"], "lax"), (browser.opened, "strict")):
        name, _, rest = cookie.partition("=")
        assert name.startswith("__Host-evolvable"), (
            "a browser takes it from the host itself, encrypted, alone"
        )
        said = {part.strip().lower() for part in rest.split(";")[1:]}
        assert {"secure", "httponly", "path=/", f"samesite={same_site}"} <= said
        assert not any(part.startswith("domain") for part in said)
    secret = browser.cookie.partition("=")[2]
    without = service.browser()
    assert without.request("GET", "/library", cookie=f"__Host-evolvable={secret}").status == 200
    # What another host below the same domain, or a page without encryption, could have set.
    for other in (
        f"evolvable={secret}",
        f"__Secure-evolvable={secret}",
        f"__host-evolvable={secret}",
    ):
        assert without.request("GET", "/library", cookie=other).status == 401, other


def test_other_hosts_and_origins_are_refused_behind_the_proxy_and_beside_it(
    service: Service,
) -> None:
    service.provider.account("ada", "deciders")
    browser, plain = service.signed_in("ada"), f"http://{service.browser().host}"
    for host in (
        "127.0.0.1",
        f"localhost:{service.port}",
        "inbox.localhost",
        f"evil.{browser.host}",
    ):
        assert browser.request("GET", "/library", Host=host).status == 421, host
    forwarded = {"X-Forwarded-Host": "evil.example.org", "Origin": "https://evil.example.org"}
    assert browser.post("/do/remove", headers=forwarded, ref="skill:pdf").status == 403
    for origin in (
        plain,
        "null",
        f"{service.origin}.evil.example.org",
        "https://inbox.localhost",
        "",
    ):
        assert (
            browser.post("/do/remove", headers={"Origin": origin}, ref="skill:pdf").status == 403
        ), origin
    direct = PageBrowser(f"http://127.0.0.1:{service.port}")
    assert direct.get("/library").status == 421
    assert direct.request("GET", "/library", Host=browser.host, cookie="").status == 401
    # The address that a login comes back to is the configured one, whatever a request says of
    # itself.
    begun = browser.request(
        "GET", "/sign-in", X_Forwarded_Host="evil.example.org", X_Forwarded_Proto="http"
    )
    assert "evil" not in begun.location
    assert "redirect_uri=https%3A%2F%2Finbox.localhost" in begun.location


def test_a_service_manager_ends_it(provider: Provider, tmp_path: Path) -> None:
    place, port = Place(tmp_path), free_port()
    place.configure(
        sign_in_table(provider, "https://inbox.example.org", f'listen = "127.0.0.1:{port}"')
    )
    process = start(place)
    with ended(process):
        assert process.stderr is not None
        assert "Serving https://inbox.example.org" in process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_an_agent_starts_no_page_and_a_service_none_that_opens_by_a_link(
    provider: Provider, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    place.configure(
        sign_in_table(provider, "https://inbox.example.org", f'listen = "127.0.0.1:{free_port()}"')
    )
    with ended(marked := start(place, CLAUDECODE="1")):
        assert "is refused" in marked.communicate(timeout=60)[1] and marked.returncode != 0
    words = [sys.executable, "-P", "-m", "evolvable_server", "ui"]
    linked = subprocess.run(
        words,
        env=place.environment,
        cwd=place.root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert linked.returncode != 0 and "is refused" in linked.stderr and "token" not in linked.stdout


@pytest.mark.parametrize("proxies", [("10.9.9.9", "2001:db8::/32"), ("127.0.0.0/8",)])
def test_an_address_that_others_reach_answers_its_proxies_alone(
    tmp_path: Path, proxies: tuple[str, ...]
) -> None:
    place = Place(tmp_path)
    with Library.open(place.home) as library:
        caller = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")
        services = services_of(Config(place.home, place.home), library, caller)
        with pytest.raises(InvalidArgument, match="no proxy is named"):
            PageServer(services, 0, host="0.0.0.0")
        server, started = (
            PageServer(services, 0, host="0.0.0.0", proxies=proxies),
            threading.Event(),
        )
        thread = threading.Thread(target=server.serve, args=(started.set,), daemon=True)
        thread.start()
        assert started.wait(20)
        try:
            browser = PageBrowser(server.access.origin)
            said = browser.request("GET", "/", X_Forwarded_For="10.9.9.9")
            assert said.status == (401 if proxies[0].startswith("127") else 403), said.text
        finally:
            server.stop()
            thread.join(20)


@pytest.mark.nightly
def test_a_person_signs_in_through_the_proxy_in_a_browser(service: Service) -> None:
    service.provider.account("ada", "deciders")
    number = service.propose("in a browser", "two")
    with chromium() as browser:
        context = browser.new_context(ignore_https_errors=True)
        with closing(context):
            tab = Tab(context)
            tab.page.goto(service.origin)
            tab.page.get_by_role("link", name="Sign in at").click()
            tab.page.fill("input[name=login]", "ada")
            tab.page.fill("input[name=password]", "any")
            tab.page.click("button[type=submit]")
            tab.page.get_by_role("button", name="Continue").click()
            tab.page.wait_for_selector("html[data-live]")
            assert tab.page.url.startswith(f"{service.origin}/inbox")
            (cookie,) = (one for one in context.cookies() if one["domain"] == "inbox.localhost")
            assert (cookie["name"], cookie["secure"], cookie["httpOnly"]) == (
                "__Host-evolvable",
                True,
                True,
            )
            assert cookie["sameSite"] == "Strict"
            tab.open(f"{service.origin}/inbox/{number}")
            tab.page.wait_for_timeout(300)  # what was shown for a shorter time is not decided about
            tab.page.keyboard.press("a")
            tab.page.wait_for_selector("#undo, #next")
    with Store.open(service.place.home) as store:
        assert store.backend.audit.newest(1)[0].via.startswith("oidc:ada@")

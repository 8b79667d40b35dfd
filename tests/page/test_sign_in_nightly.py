"""The sign-in that takes longer: the page in a real Chromium, and the device flow with
its waits.
"""

import threading
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import pytest
from browser import Tab, chromium
from oidc_provider import Browser, Provider, form_of
from sign_in_page import page_of

from evolvable_teams import joining
from evolvable_teams.joining import ServedLibrary

pytestmark = [pytest.mark.process, pytest.mark.nightly]

RESOURCE = "http://127.0.0.1:8642/mcp"


def test_a_person_signs_in_by_the_providers_form_in_a_browser_and_decides(
    provider: Provider, tmp_path: Path
) -> None:
    provider.account("ada", "deciders")
    with page_of(provider, tmp_path / "library") as (place, flow), chromium() as browser:
        place.create("pdf")
        number = place.propose("pdf", "shorter")
        context = browser.new_context()
        tab = Tab(context)
        tab.page.goto(flow.origin)
        tab.page.get_by_role("link", name=f"Sign in at {flow.provider}").click()
        tab.page.fill("input[name=login]", "ada")
        tab.page.fill("input[name=password]", "any")
        tab.page.click("button[type=submit]")
        tab.page.get_by_role("button", name="Continue").click()
        tab.page.wait_for_selector("html[data-live]")

        assert tab.page.url == f"{flow.origin}/inbox/{number}"
        assert tab.page.inner_text("#signed") == f"ada@{urlsplit(provider.issuer).netloc}"
        (cookie,) = (
            one for one in context.cookies() if urlsplit(flow.origin).hostname in one["domain"]
        )
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert cookie["domain"] == urlsplit(flow.origin).hostname  # of the host alone
        tab.page.wait_for_timeout(300)  # what was shown for a shorter time is not decided about
        tab.page.keyboard.press("a")
        tab.page.wait_for_selector("#undo, #next")
        made = place.library.store.backend.audit.newest(1)[0]
        assert (made.decision, made.via) == (
            "approve",
            f"oidc:ada@{urlsplit(provider.issuer).netloc}",
        )
        assert made.address in ("127.0.0.1", "::1")

        tab.page.get_by_role("button", name="Sign this browser out").click()
        tab.page.wait_for_function("document.body.innerText.includes('signed out')")
        tab.page.goto(f"{flow.origin}/inbox")
        assert tab.page.get_by_role("link", name="Sign in at").count() == 1
        # The provider's own page asks for fonts of another host, which is not there.
        assert not [one for one in tab.errors if "Security Policy" in one or "dialog" in one]


def type_code(address: str, code: str, login: str) -> None:
    """Type a code at the provider, sign in and agree, as a person on another device does."""
    with Browser() as browser:
        url = address
        for _ in range(20):
            answer = browser.get(url)
            while not answer.has_redirect_location:
                action, fields = form_of(answer.text)
                if not action:
                    return
                fields |= {"user_code": code} if "user_code" in fields else {}
                fields |= {"login": login, "password": "any"} if "login" in fields else {}
                answer = browser.post(urljoin(url, action), data=fields)
            url = urljoin(url, answer.headers["location"])
    raise AssertionError("the provider redirects without end")


@pytest.mark.anyio
async def test_a_person_signs_in_by_a_code_on_another_device(provider: Provider) -> None:
    provider.account("ada", "writers")
    async with joining.new_client() as client:
        found = ServedLibrary(
            RESOURCE, provider.issuer, await joining.discover(client, provider.issuer)
        )
    registered = await joining.register(found, "http://127.0.0.1:9/callback")
    typing: list[threading.Thread] = []

    def tell(address: str, code: str) -> None:
        typing.append(threading.Thread(target=type_code, args=(address, code, "ada")))
        typing[0].start()

    one = await joining.sign_in_by_device(found, registered, joining.SCOPES, tell)
    typing[0].join()

    assert one.resource == RESOURCE and one.refresh
    again = await joining.renew_membership(one)
    assert again.token != one.token

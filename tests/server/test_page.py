"""The local page: the person decides there as at a terminal, and nobody else gets in."""

import http.client
from collections.abc import Iterator

import pytest
from page_place import PagePlace, open_page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagePlace]:
    with open_page(tmp_path_factory.mktemp("page") / "library") as place:
        place.create("pdf")
        yield place


def test_an_approved_proposal_is_the_persons_operation_and_one_button_takes_it_back(page: PagePlace) -> None:
    number = page.propose("pdf", "one\n\ntwo words\n\nthree", "more is clearer")
    shown = page.get(f"/inbox/{number}")
    assert "more is clearer" in shown.text
    assert "two<ins> words</ins>" in shown.text
    done = page.post("/do/inbox-approve", number=number, seen=shown.field("seen"), reason="fine")
    assert (done.status, done.location) == (303, f"/inbox?done={number}")
    made = page.library.store.operations(1)[0]
    assert (made.principal, made.intent.via, made.intent.reason) == ("person", "page", "fine")
    banner = page.get(done.location)
    undone = page.post("/do/undo", operation=banner.field("operation"), back="/inbox")
    assert "took back operation" in page.get(undone.location.replace("/inbox", "/operations")).text
    assert b"words" not in page.library.store.file(page.library.store.heads()[0], "SKILL.md").data


def test_a_rejection_is_taken_back_and_the_proposal_waits_again(page: PagePlace) -> None:
    number = page.propose("pdf", "1")
    page.post("/do/inbox-reject", number=number, reason="too short")
    assert page.library.store.backend.proposals.get(number).state == "rejected"
    page.post("/do/inbox-reopen", number=number)
    assert page.library.store.backend.proposals.get(number).state == "open"
    page.post("/do/inbox-reject", number=number)


def test_an_open_page_is_told_of_a_change_and_of_a_run_that_goes_on(page: PagePlace) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    connection.request("GET", "/live", headers={"Host": page.host, "Cookie": page.cookie})
    stream = connection.getresponse()
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert event(stream) == "hello"
    page.propose("pdf", "changed again")
    assert event(stream) == "change"
    ledger = page.library.store.home / "evolve/20260101-000000-abcd/ledger.jsonl"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("{}\n", encoding="utf-8")
    assert event(stream) == "change"
    connection.close()


def event(stream: http.client.HTTPResponse) -> str:
    while not (line := stream.readline()).startswith(b"event: "):
        assert line
    return line[7:].strip().decode()


def test_an_address_that_is_no_page_says_so_and_leads_back(page: PagePlace) -> None:
    shown = page.get("/nothing/<b>here")
    assert shown.status == 404
    assert "There is no page /nothing/&lt;b&gt;here." in shown.text and 'href="/inbox"' in shown.text

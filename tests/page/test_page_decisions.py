"""The forms of the local page: what each of them decides, once, and how the next page says it and
takes it back.
"""

import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from page_place import PagePlace, open_page, skill_text

from evolvable_store.operation import Identity, Principal
from evolvable_store.resource import Ref


@pytest.fixture
def page(tmp_path: Path) -> Iterator[PagePlace]:
    with open_page(tmp_path / "library") as place:
        place.create("pdf")
        yield place


class Forms(HTMLParser):
    """Reads of each form that posts: where it goes to, its hidden fields, and its submit buttons
    with their state.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.forms: list[dict[str, Any]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "form":
            self.forms.append({**given, "fields": {}, "buttons": []})
        elif self.forms and (tag == "button" or given.get("type") == "submit"):
            self.forms[-1]["buttons"].append(given)
        elif tag == "input" and given.get("type") == "hidden" and self.forms:
            self.forms[-1]["fields"].setdefault(given.get("name"), []).append(given.get("value"))

    def to(self, action: str) -> dict[str, list[str]]:
        """Return the hidden fields of the first form that goes there."""
        return next(one["fields"] for one in self.forms if one.get("action") == action)


def fields_of(page: PagePlace, address: str, action: str) -> dict[str, list[str]]:
    return Forms(page.get(address).text).to(action)


def send(page: PagePlace, address: str, action: str, **more: Any) -> Any:
    """Send the form of a page as its button does."""
    return page.post(action, **{**fields_of(page, address, action), **more})


def state(page: PagePlace, number: int) -> str:
    return page.library.store.backend.proposals.get(number).state


def watch(page: PagePlace, folder: Path) -> None:
    (folder / "brought").mkdir(parents=True)
    (folder / "brought/SKILL.md").write_text(skill_text("brought"), encoding="utf-8")
    page.library.working_copies.add(folder, identity=Identity(Principal.IMPORT, "init"))


def test_every_form_that_changes_something_is_sent_by_its_one_button_and_never_by_enter_in_a_field(
    page: PagePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    watch(page, tmp_path / ".claude/skills")
    page.post("/do/inbox-approve", number=page.propose("pdf", "2"))
    numbers = [page.propose("pdf", text, session="bulk") for text in ("3", "4")]
    page.post("/do/inbox-reject", number=page.propose("pdf", "5"))
    seen = dict[str, int]()
    for address in (
        f"/inbox/{numbers[0]}",
        f"/inbox/{numbers[0]}/edit",
        "/inbox/session/bulk",
        "/inbox?done=1,4",
        "/inbox/1",
        "/resource/skill:pdf",
        "/search?task=pdf",
        "/operations",
        "/operations/1/undo",
        f"/trust?folder={tmp_path / '.claude/skills'}",
        "/library?view=budget",
        "/library?view=budget&collection=%2B",
        "/",
    ):
        answer = page.get(address)
        answer = page.get(answer.location) if answer.status == 303 else answer
        for one in Forms(answer.text).forms:
            if one.get("method") != "post":
                continue
            first, *others = one["buttons"]
            # HTML: Enter in a field presses the first submit button, and nothing happens where that
            # is disabled.
            assert "disabled" in first and first["type"] == "submit", (address, one)
            assert len(others) == 1 and "formaction" not in others[0], (address, one)
            seen[one["action"]] = seen.get(one["action"], 0) + 1
    assert {action.rpartition("/")[2] for action in seen} >= {
        *(
            "inbox-approve",
            "inbox-reject",
            "inbox-edit",
            "inbox-reopen",
            "undo",
            "restore",
            "remove",
        ),
        *("trust", "learned", "collection-add", "end"),
    }


def test_a_form_that_is_sent_twice_counts_once_and_both_answers_say_what_it_did(
    page: PagePlace,
) -> None:
    number = page.propose("pdf", "1")
    form = fields_of(page, f"/inbox/{number}", "/do/inbox-approve")
    first, second = page.post("/do/inbox-approve", **form), page.post("/do/inbox-approve", **form)
    assert first.status == 303 and second.location == first.location == f"/inbox?done={number}"

    undo = fields_of(page, first.location, "/do/undo")
    made = len(page.library.store.operations(99))
    answers = [page.post("/do/undo", **undo) for _ in range(2)]
    assert len(page.library.store.operations(99)) == made + 1
    assert answers[0].location == answers[1].location
    assert "took back operation" in page.get(answers[1].location).text

    for address, action in (
        ("/resource/skill:pdf", "/do/restore"),
        ("/resource/skill:pdf", "/do/remove"),
    ):
        form = fields_of(page, address, action)
        assert [page.post(action, **form).status for _ in range(2)] == [303, 303], action
    assert page.library.store.head_or_none(Ref.parse("skill:pdf")).version is None  # type: ignore[union-attr]


def test_a_form_that_is_sent_twice_at_the_same_moment_counts_once(page: PagePlace) -> None:
    number, answers = page.propose("pdf", "1"), list[Any]()
    form = fields_of(page, f"/inbox/{number}", "/do/inbox-approve")
    threads = [
        threading.Thread(target=lambda: answers.append(page.post("/do/inbox-approve", **form)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.status for one in answers] == [303] * 6 and len(
        {one.location for one in answers}
    ) == 1
    assert page.library.store.head(Ref.parse("skill:pdf")).version == 2


def test_a_form_that_failed_and_one_that_was_changed_count_when_they_are_sent_again(
    page: PagePlace,
) -> None:
    number = page.propose("pdf", "agent's words")
    form = fields_of(page, f"/inbox/{number}/edit", "/do/inbox-edit")
    broken = page.post("/do/inbox-edit", **form, **{"text:SKILL.md": "---\nname: !pdf pdf\n---\n"})
    assert broken.status == 400 and state(page, number) == "open"
    mended = page.post("/do/inbox-edit", **form, **{"text:SKILL.md": skill_text("pdf", "my words")})
    assert mended.status == 303 and state(page, number) == "approved"
    third = page.post(
        "/do/inbox-edit", **form, **{"text:SKILL.md": skill_text("pdf", "other words")}
    )
    assert third.status == 400 and f"Proposal {number} is approved already" in third.text


def test_an_approval_that_was_taken_back_is_said_so_and_offers_nothing_more(
    page: PagePlace,
) -> None:
    number = page.propose("pdf", "1")
    done = send(page, f"/inbox/{number}", "/do/inbox-approve").location
    note = page.get(done).text
    assert f"Proposal {number} is approved: " in note
    assert "skill:pdf@2" in note
    assert "by operation 2." in note
    send(page, done, "/do/undo")
    for address in (done, f"/inbox/{number}"):
        again = page.get(address).text
        assert f"Proposal {number} was approved" in again and "operation 3 took it back" in again
        assert "Take it back" not in again


def test_an_approval_that_was_changed_since_is_taken_back_with_the_later_change_kept(
    page: PagePlace,
) -> None:
    numbers = [page.propose("pdf", text) for text in ("1\n\ntwo\n\nthree", "one\n\ntwo\n\n3")]
    for number in numbers:
        page.post("/do/inbox-approve", number=number)
    address = f"/inbox/{numbers[0]}"
    shown = page.get(address).text
    assert "Operation 3 changed it since." in shown and "Take it back" in shown
    assert "operation=4" in send(page, address, "/do/undo").location
    store = page.library.store
    assert store.files(store.head(Ref.parse("pdf")))["SKILL.md"].data.decode() == skill_text(
        "pdf", "one\n\ntwo\n\n3"
    )
    assert "Take it back" not in page.get(address).text


def test_an_approval_whose_lines_were_changed_since_is_not_taken_back_and_both_sides_are_named(
    page: PagePlace,
) -> None:
    for text in ("1\n\ntwo\n\nthree", "uno\n\ntwo\n\nthree"):
        page.post("/do/inbox-approve", number=page.propose("pdf", text))
    skipped = page.post("/do/undo", operation=2, back="/operations")
    assert skipped.status == 400 and "SKILL.md (line 6)" in skipped.text
    assert "-uno" in skipped.text and "+one" in skipped.text
    assert page.library.store.head(Ref.parse("pdf")).version == 3


def test_a_rejection_names_the_reason_and_a_reopened_proposal_says_that_it_waits_again(
    page: PagePlace,
) -> None:
    number = page.propose("pdf", "1")
    done = send(page, f"/inbox/{number}", "/do/inbox-reject", reason="too <short>").location
    note = page.get(done).text
    assert f"Proposal {number} is rejected" in note and "Reason: too &lt;short&gt;" in note
    back = send(page, done, "/do/inbox-reopen")
    assert back.location == f"/inbox/{number}?done={number}"
    again = page.get(back.location).text
    assert f"Proposal {number} waits again: " in again
    assert 'id="undo"' not in again
    assert 'id="approve"' in again


def test_taking_back_the_rejection_of_a_session_reopens_all_of_it(page: PagePlace) -> None:
    for text in "1234567":
        page.propose("pdf", text, session="bulk")
    done = send(page, "/inbox/session/bulk", "/do/inbox-reject", reason="none of it").location
    note = page.get(done).text
    assert "Proposal 1 is rejected" in note and "And 2 more." in note and "Take these back" in note
    send(page, done, "/do/inbox-reopen")
    assert {state(page, number) for number in range(1, 8)} == {"open"}


def test_a_session_of_which_one_proposal_was_decided_elsewhere_is_not_rejected_unseen(
    page: PagePlace,
) -> None:
    numbers = [page.propose("pdf", text, session="bulk") for text in "123"]
    form = fields_of(page, "/inbox/session/bulk", "/do/inbox-reject")
    page.post("/do/inbox-approve", number=numbers[1])
    refused = page.post("/do/inbox-reject", **form)
    assert refused.status == 400
    assert f"Proposal {numbers[1]} is approved already" in refused.text
    assert [state(page, number) for number in numbers] == ["open", "approved", "open"]


def test_a_restored_and_a_removed_version_are_named_and_taken_back_by_the_next_page(
    page: PagePlace,
) -> None:
    page.post("/do/inbox-approve", number=page.propose("pdf", "2"))
    restored = send(page, "/resource/skill:pdf", "/do/restore").location
    assert "Operation 3, version 1 restored: " in page.get(restored).text
    send(page, restored, "/do/undo")
    assert (
        b"\n2\n"
        in page.library.store.file(page.library.store.head(Ref.parse("skill:pdf")), "SKILL.md").data
    )
    removed = send(page, "/resource/skill:pdf", "/do/remove").location
    assert "removed in the local page: " in page.get(removed).text
    send(page, removed, "/do/undo")
    assert page.library.store.head(Ref.parse("skill:pdf")).version is not None


def test_an_undo_that_asks_first_leads_back_to_the_inbox_it_came_from(
    page: PagePlace, tmp_path: Path
) -> None:
    watch(page, tmp_path / "skills")
    operation = page.library.store.operations(1)[0].id
    asked = page.post("/do/undo", operation=operation, back="/inbox")
    done = send(page, asked.location, "/do/undo")
    assert done.location.startswith("/inbox?")
    assert "took back operation" in page.get(done.location).text

"""What the pages show: everything that strangers wrote is text, and nothing of it acts."""

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from earned import client
from evolve_runs import program, running, scripted, task
from hostile_strings import OWN
from page_place import AGENT, PagePlace, open_page, skill_text
from processes import poll
from samples import ATTACKS
from transcripts import Says, User, session_id, write_claude_code

from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.run_context import RunStopped
from evolvable_evolve.evolution.task import Split
from evolvable_page.diff_view import parse_diff
from evolvable_page.layout import resource_address
from evolvable_page.text import make_visible, render_markdown, restore_line_ends
from evolvable_store.objects import File
from evolvable_store.operation import Identity, Principal
from evolvable_store.resource import Ref
from evolvable_store.storage.evidence import Outcome
from evolvable_store.storage.proposals import Draft
from evolvable_tools.verbs import edit, load

HIDDEN = "\u202e\u2066\u2069\u200b\U000e0041\x7f\x01\u2028"

OURS = """html head meta title link script body a header nav strong main footer p form input
    button h1 h2 h3 div section article aside span code pre ins del blockquote q ul ol li dl dt dd
    label textarea select option table caption thead tbody tr th td details summary time figure
    figcaption svg line circle rect path g text br em hr noscript datalist"""
ATTRIBUTES = """class id href rel name content value type method action src lang charset tabindex
    role for open selected required maxlength placeholder autocomplete spellcheck rows scope start
    width height x y x1 y1 x2 y2 cx cy r d viewbox transform text-anchor datetime data-head
    data-live data-of disabled hidden form defer hx-boost hx-target hx-select hx-swap hx-get
    hx-trigger reversed hx-replace-url checked formaction list aria-label aria-current aria-hidden
    aria-keyshortcuts"""
ALLOWED, NAMES = frozenset(OURS.split()), frozenset(ATTRIBUTES.split())
"""The elements and attributes that our own pages are made of."""


class Inspected(HTMLParser):
    """Collects what of a page is not ours, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wrong: list[str] = []
        self.said = ""
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        found = dict(attrs)
        self.wrong += [f"<{tag}>"] * (tag not in ALLOWED)
        self.wrong += [f"{tag} {name}" for name in found if name not in NAMES]
        for name in ("href", "src", "action", "formaction"):
            place = found.get(name)
            if place and not place.startswith(("/", "#", "data:,")):
                ours = tag == "a" and place.startswith(("http://", "https://", "mailto:"))
                self.wrong += (
                    []
                    if ours and found.get("rel") == "noopener noreferrer nofollow"
                    else [f"{tag} {place}"]
                )

    def handle_data(self, data: str) -> None:
        self.said += data


def hostile() -> list[str]:
    """Every string that a resource, a reason or a session can hold."""
    cases = json.loads(ATTACKS.read_text("utf-8"))["cases"]
    known = [case["input"] for case in cases if isinstance(case.get("input"), str)]
    return [*OWN, *(text for text in known if 0 < len(text) < 4_000)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagePlace]:
    root = tmp_path_factory.mktemp("page")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLAUDE_CONFIG_DIR", str(root / ".claude"))
        with open_page(root / "library") as place:
            write_claude_code(
                root, [User("fill the form " + OWN[0]), Says("\n".join(OWN))], session="told"
            )
            a_run(place.library.store.home / "evolve/20260101-000000-abcd")
            yield place


def a_run(folder: Path) -> None:
    splits = {Split.TRAIN: [task(Split.TRAIN, n, "needs:iso") for n in range(6)]}
    splits |= {
        split: [task(split, n, "needs:iso") for n in range(12)] for split in (Split.VAL, Split.TEST)
    }
    model = scripted([(OWN[0], ["rule: iso"])])
    settings = RunSettings("environment:made-up", iterations=1, test_repeats=1)
    with (
        running(folder, program(OWN[1]), model, splits, settings) as run,
        contextlib.suppress(RunStopped),
    ):
        asyncio.run(run_phases(run))


def test_every_string_of_the_attack_collection_is_shown_and_does_nothing(page: PagePlace) -> None:
    texts = [text.encode("utf-8", "replace").decode() for text in hostile()]
    assert len(texts) > 100
    body = "\n\n".join(texts)
    page.create("hostile", "before")
    number = page.propose(
        "hostile", body, "\n".join(OWN).encode("utf-8", "replace").decode(), "told <b>"
    )
    grounds = {
        "what": OWN[0],
        "evidence": [
            {"session": session_id("told"), "turn": 1, "origin": OWN[1], "quote": body[:20_000]}
        ],
        "near": [OWN[2]],
        "cost": {OWN[3]: OWN[4]},
        "risk": OWN[5],
    }
    files = {
        "SKILL.md": File(b"---\nname: other\ndescription: x\n---\n" + body.encode(), 0o644),
        "s'&-b.sh": File(b"x", 0o755),
    }
    draft = Draft(Ref.parse("skill:user/other"), 0, files, OWN[1], grounds=json.dumps(grounds))
    other = page.library.store.backend.proposals.add(
        page.library.store.now(), AGENT.actor, OWN[2], draft
    )
    page.post("/do/inbox-approve", number=number, seen="1", reason=OWN[0])
    for path in (
        f"/inbox/{other}",
        f"/inbox/{other}/edit",
        f"/inbox/{number}",
        "/inbox/session/" + "%22%3E%3Csvg%2Fonload%3Dwindow.hacked%3D1%3E",
        "/resource/skill:hostile",
        "/resource/skill:hostile?from=1&to=2",
        "/library?q=%3Cscript%3E",
        "/search?task=" + "%3Cscript%3E+hostile+other",
        "/operations",
        "/",
        "/learn",
        "/operations?session=%22%3E%3Cscript%3E",
        f"/sessions/{session_id('told')}",
        "/evolution/20260101-000000-abcd",
        "/resource/%3Cscript%3E",
    ):
        answer = page.get(path)
        seen = Inspected(answer.text)
        assert not seen.wrong, (path, seen.wrong[:5])
        assert seen.scripts == 2 and answer.status != 500
        if "edit" not in path:  # a field holds the exact text
            assert not [hex(ord(char)) for char in HIDDEN if char in answer.text], path
    shown = Inspected(page.get(f"/inbox/{other}").text).said
    assert "window.hacked" in shown and "⟦U+202E⟧" in shown


def test_a_diff_is_split_by_the_counts_of_its_hunks_and_not_by_lines_that_look_like_heads() -> None:
    forged = (
        "--- SKILL.md@1\n+++ SKILL.md@2\n@@ -1,2 +1,3 @@\n--- innocent.md@1\n+++ innocent.md@2\n"
        "+@@ -1 +1 @@\n same\n"
    )
    (one,) = parse_diff(forged)
    assert (one.path, len(one.lines)) == ("SKILL.md", 5)
    assert [line.sign for line in one.lines] == ["@", "-", "+", "+", " "]


def html_of(text: str) -> str:
    return str(render_markdown(text, lambda _: None)[0])


@pytest.mark.process
def test_of_a_long_document_the_beginning_is_rendered_and_the_rest_is_text(page: PagePlace) -> None:
    lines = [f"**line {number}**" for number in range(24_000)]
    page.create("long", "\n".join(lines))

    shown = page.get(resource_address(Ref.parse("long"))).text

    assert "<strong>line 0</strong>" in shown and "<strong>line 23999</strong>" not in shown
    assert "too long to be rendered" in shown
    document = shown.partition('<div class="document">')[2].partition("</pre>")[0]
    assert all(
        f"line {number}<" in document or f"**line {number}**" in document
        for number in range(24_000)
    )


@pytest.mark.process
@pytest.mark.parametrize(
    "text", ["a" * 60_000, "[" * 60_000, "\n" * 60_000, "a\r\n" * 30_000, "\u202e" * 20_000]
)
def test_at_most_50_000_characters_are_rendered_and_none_is_lost(text: str) -> None:
    rendered, rest = render_markdown(text, lambda _: None)

    assert len(rest) > 0 and len(make_visible(text)) - len(rest) <= 50_000
    assert make_visible(text).endswith(rest)
    assert render_markdown(text[:100], lambda _: None)[1] == ""


def test_a_link_shows_the_host_that_it_leads_to_and_no_image_is_loaded() -> None:
    shown = html_of("[bank.example](https://bank.example@evil.example/) ![x](//evil.example/p)")
    assert "(evil.example)" in shown and "<img" not in shown
    assert "(xn--e1aybc.example)" in html_of("[a](https://тест.example)")
    assert "href" not in html_of(
        "[a](/do/undo) [b](../x) [c](//evil.example) [d](file:///etc/passwd)"
    )
    assert make_visible("a\u00adb\r\nc") == "a⟦U+00AD⟧b\nc"


def test_a_version_is_restored_and_every_author_has_a_letter_in_the_timeline(
    page: PagePlace,
) -> None:
    page.create("laned", "first")
    for text in ("second", "third"):
        page.post("/do/inbox-approve", number=page.propose("laned", text))
    refused = page.propose("laned", "fourth", "never mind")
    page.post("/do/inbox-reject", number=refused)
    shown = page.get("/resource/skill:laned").text
    assert "3 versions, 1 refused proposal" in shown and f'href="/inbox/{refused}"' in shown
    assert shown.count('class="letter"') == 3 and shown.index(f"/inbox/{refused}") < shown.index(
        'id="version-3"'
    )
    changed = page.get("/resource/skill:laned?to=2").text
    entry = changed.partition('id="version-2"')[2].partition('id="version-1"')[0]
    assert 'class="diff"' in entry and changed.count('class="diff"') == 1
    assert page.post("/do/restore", ref="skill:laned", version=1, expected=2).status == 409
    assert page.post("/do/restore", ref="skill:laned", version=1, expected=3).status == 303
    head = page.library.store.head(Ref.parse("skill:laned"))
    assert b"first" in page.library.store.file(head, "SKILL.md").data and head.version == 4
    page.post("/do/remove", ref="skill:laned", expected=4)
    assert "It was removed" in page.get("/resource/skill:laned").text


@pytest.mark.parametrize(
    ("uses", "share"), [(1, "0 of 1"), (4, "0 of 4"), (5, "0 of 5 (0% to 43%)")]
)
def test_a_share_of_under_five_uses_is_two_numbers_without_a_bar(
    page: PagePlace, uses: int, share: str
) -> None:
    name = f"counted-{uses}"
    page.create(name)
    for number in range(uses):
        caller = client(f"{name}-{number}")
        use = load.load_skill(page.library, caller, Ref.parse(name))
        load.report_outcome(page.library, caller, outcome=Outcome.FAILED, use_id=use.use_id)
    shown, listed = page.get(f"/resource/skill:{name}").text, page.get(f"/library?q={name}").text
    assert share in shown
    if uses < 5:
        assert "wilson" not in shown and "% to" not in shown and f"0 of {uses} well" in listed
    else:
        # Filled as far as the share, which is nothing; the interval is a line.
        assert 'width="0.0" height="8" class="mean"' in shown and "0% of 5 well" in listed


def test_a_correction_in_the_search_is_a_learned_task_of_the_person(page: PagePlace) -> None:
    for name in ("invoices", "receipts"):
        page.create(name, f"How to read {name}.")
    task = "read the totals of scanned supplier paperwork"
    assert "How the search came to it" in page.get("/search?task=" + task.replace(" ", "+")).text
    page.post("/do/learned", task=task, right="skill:receipts", wrong="skill:invoices")
    learned = page.library.store.backend.learned
    heads = {head.id: head.name for head in page.library.store.heads()}
    found = {
        (heads[one], said.against, str(said.source))
        for one, its in learned.tasks_of(heads).items()
        for said in its
    }
    assert found == {("receipts", False, "person"), ("invoices", True, "person")}


def test_what_changed_since_the_person_looked_is_not_approved_unseen(page: PagePlace) -> None:
    page.create("moving", "one\n\ntwo")
    number = page.propose("moving", "one\n\n2")
    seen = page.get(f"/inbox/{number}").field("seen")
    page.post("/do/inbox-approve", number=page.propose("moving", "1\n\ntwo"), seen=seen)
    refused = page.post("/do/inbox-approve", number=number, seen=seen)
    assert refused.status == 409
    assert "at version 2 now" in refused.text
    assert "you saw version 1" in refused.text
    assert page.post("/do/inbox-approve", number=number, seen="2").status == 303
    again = page.post("/do/inbox-approve", number=number, seen="2")
    assert again.status == 400 and "is approved already" in again.text


def test_all_of_a_session_is_decided_together_and_only_what_was_shown(page: PagePlace) -> None:
    page.create("bulk-a")
    page.create("bulk-b")
    shown = [page.propose(name, "2", session="bulk") for name in ("bulk-a", "bulk-b")]
    assert page.get("/inbox/session/bulk").text.count("Approve these 2") == 1
    later = page.propose("bulk-a", "3", session="bulk")
    page.post("/do/inbox-approve", number=shown, seen=["1", "1"], reason="together")
    states = [page.library.store.backend.proposals.get(number).state for number in (*shown, later)]
    assert states == ["approved", "approved", "open"]
    assert (
        len({page.library.store.backend.proposals.get(number).operation for number in shown}) == 1
    )


def test_an_edited_proposal_is_approved_as_the_person_saved_it(page: PagePlace) -> None:
    page.create("edited")
    number = page.propose("edited", "agent's words")
    form = page.get(f"/inbox/{number}/edit")
    assert "agent&#39;s words" in form.text
    text = "---\r\nname: edited\r\ndescription: Mine.\r\n---\r\n\r\nmy words\r\n"
    page.post("/do/inbox-edit", **{"number": number, "seen": "1", "text:SKILL.md": text})
    data = page.library.store.file(page.library.store.head(Ref.parse("edited")), "SKILL.md").data
    assert data.endswith(b"\n\nmy words\n") and b"\r" not in data


def propose_files(page: PagePlace, name: str, files: dict[str, bytes]) -> int:
    """Has an agent propose these files for a resource, new or not; returns the number of the
    proposal.
    """
    head = page.library.store.head_or_none(Ref.parse(name))
    done = edit.update_resource(
        page.library, AGENT, Ref.parse(name), "more", files=files, propose=True, create=head is None
    )
    assert done.proposal_id is not None
    return done.proposal_id


@pytest.mark.parametrize(
    ("proposed", "sent", "stored"),
    [
        ("1\r\n2\r\n", "1\r\nmine\r\n2\r\n", "1\r\nmine\r\n2\r\n"),
        ("1\r\n2\r\n3\n", "mine\r\n1\r\n2\r\n3\r\n", "mine\r\n1\r\n2\r\n3\n"),
        ("1\n2\r3\n", "1\r\n2\r\n3\r\nmine\r\n", "1\n2\r3\nmine\n"),
        ("1\r2\n3\n4\r\n", "1\r\nmine\r\n3\r\nmine\r\n4\r\n", "1\rmine\n3\nmine\n4\r\n"),
        ("1\r\n2", "1\r\n2\r\nmine", "1\r\n2\r\nmine"),
        ("1\n2\n", "1\r\nmine\r\n", "1\nmine\n"),
        ("1", "1\r\nmine", "1\nmine"),
    ],
    ids=["crlf", "mixed", "cr", "two edits", "no last end", "lf", "one line"],
)
def test_an_edit_in_the_page_keeps_the_line_ends_of_what_was_proposed(
    page: PagePlace, proposed: str, sent: str, stored: str
) -> None:
    """HTML: a form sends CR LF for every line end."""
    name = f"ends-{hashlib.sha256(proposed.encode()).hexdigest()[:8]}"
    page.create(name)
    number = propose_files(page, name, {"notes.md": proposed.encode()})

    page.post("/do/inbox-edit", **{"number": number, "seen": "1", "text:notes.md": sent})

    assert (
        page.library.store.file(page.library.store.head(Ref.parse(name)), "notes.md").data
        == stored.encode()
    )


def test_line_ends_are_restored_in_time_in_proportion_to_a_proposal_of_repeated_lines() -> None:
    shown = [f"line {number % 101}" for number in range(100_000)]
    mixed = "".join(
        f"{line}{end}" for line, end in zip(shown, ["\n", "\r\n"] * 50_000, strict=True)
    )
    began = time.process_time()

    edited = restore_line_ends("\r\n".join([*shown[:50_000], "mine", *shown[50_000:], ""]), mixed)

    assert edited.split() == " ".join([*shown[:50_000], "mine", *shown[50_000:]]).split()
    assert time.process_time() - began < 5


def test_a_proposal_without_a_text_offers_no_edit_and_says_why(page: PagePlace) -> None:
    page.create("pictured")
    number = propose_files(page, "pictured", {"assets/logo.png": b"\x89PNG\r\n\x1a\n\0IHDR"})

    assert "Edit, then approve" not in page.get(f"/inbox/{number}").text
    for refused in (
        page.get(f"/inbox/{number}/edit"),
        page.post("/do/inbox-edit", number=number, seen="1"),
    ):
        assert refused.status == 400 and f"Proposal {number} changes no text." in refused.text
    assert page.library.store.backend.proposals.get(number).state == "open"


def test_a_resource_that_is_only_proposed_is_named_without_a_link(page: PagePlace) -> None:
    number = propose_files(
        page, "brand-new", {"SKILL.md": skill_text("brand-new", "Do it.").encode()}
    )
    address = resource_address("skill:brand-new")

    for path in (f"/inbox/{number}", f"/inbox/{number}/edit"):
        shown = page.get(path).text
        assert "skill:brand-new" in shown and f'href="{address}"' not in shown
    assert page.get(address).status == 404
    done = page.post("/do/inbox-reject", number=number).location
    assert f'href="{address}"' not in page.get(done).text
    page.post("/do/inbox-reopen", number=number)

    page.post("/do/inbox-approve", number=number, seen="0")

    assert (
        f'href="{address}"' in page.get(f"/inbox/{number}").text and page.get(address).status == 200
    )


def test_a_session_and_a_run_are_read_from_their_own_records(page: PagePlace) -> None:
    listed = page.get("/sessions").text
    assert session_id("told") in listed
    said = page.get(f"/sessions/{session_id('told')}").text
    assert 'id="turn-1"' in said and "fill the form" in said
    address = "/evolution/20260101-000000-abcd"  # its ledger is read in the background
    poll(lambda: "The ledger is being read" not in page.get(address).text, "the ledger of the run")
    run = page.get(address).text
    assert "simulated" in run and "validation over iterations" in run and "<svg" in run
    assert page.get("/sessions/..%2f..%2fetc%2fpasswd").status == 404


def test_a_folder_is_trusted_only_as_it_was_shown(
    page: PagePlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(tmp_path))
    folder = tmp_path / "skills"
    (folder / "brought").mkdir(parents=True)
    (folder / "brought/SKILL.md").write_text(skill_text("brought"), encoding="utf-8")
    page.library.working_copies.add(folder, identity=Identity(Principal.IMPORT, "init"))
    shown = page.get(f"/trust?folder={folder}")
    assert "skill:brought" in shown.text and "Trust these 1" in shown.text
    seen = shown.field("seen")
    (folder / "brought/SKILL.md").write_text(
        skill_text("brought", "Another text."), encoding="utf-8"
    )
    page.library.working_copies.sync()
    assert page.post("/do/trust", folder=folder, seen=seen).status == 409
    # Only watched folders are asked about.
    assert page.get(f"/trust?folder={tmp_path}").status == 400
    seen = page.get(f"/trust?folder={folder}").field("seen")
    assert page.post("/do/trust", folder=folder, seen=seen).status == 303
    assert "Nothing waits for your trust" in page.get(f"/trust?folder={folder}").text
    assert str(folder) in (tmp_path / ".config/evolvable/config.toml").read_text("utf-8")


def test_an_undo_that_takes_directories_off_the_disk_names_them_and_asks(
    page: PagePlace, tmp_path: Path
) -> None:
    folder = tmp_path / "skills"
    (folder / "kept").mkdir(parents=True)
    (folder / "kept/SKILL.md").write_text(skill_text("kept"), encoding="utf-8")
    page.library.working_copies.add(folder, identity=Identity(Principal.PERSON, "terminal"))
    operation = page.library.store.operations(1)[0].id
    asked = page.post("/do/undo", operation=operation, back="/operations")
    assert asked.location == f"/operations/{operation}/undo" and (folder / "kept").is_dir()
    assert str(folder / "kept") in page.get(asked.location).text
    page.post("/do/undo", operation=operation, back="/operations", sure="1")
    assert not (folder / "kept").exists()

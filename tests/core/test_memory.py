"""The three memories: short, dated, aged, and SOUL for a person alone."""

from datetime import date, timedelta

import pytest
from samples import put_texts

from evolvable_store.errors import InvalidArgument, InvalidResource, Refused
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_store.validation import MEMORY_CAPS
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.memory_facts import (
    AGES_AFTER,
    ARCHIVE,
    add_fact,
    briefing,
    over_caps,
    parse_facts,
    says_already,
)

DAY = date(2026, 11, 21)


def text_of(added, path="USER.md"):
    return added.files[path].data.decode()


def test_a_fact_is_a_dated_line_and_said_again_it_is_renewed():
    first = add_fact({}, "USER", "Prefers pnpm to npm.", DAY)
    again = add_fact(first.files, "USER", "prefers  pnpm to npm", DAY + timedelta(days=3))
    assert text_of(first) == "# The user\n- 2026-11-21: Prefers pnpm to npm.\n"
    assert (again.outcome, text_of(again)) == (
        "renewed",
        "# The user\n- 2026-11-24: prefers pnpm to npm\n",
    )


def test_the_contrary_of_a_fact_is_another_fact():
    first = add_fact({}, "USER", "Uses tabs in makefiles.", DAY)
    assert (
        len(
            parse_facts(
                text_of(add_fact(first.files, "USER", "Never uses tabs in makefiles.", DAY))
            )
        )
        == 2
    )


def test_old_facts_go_to_the_archive_and_come_back_when_they_are_said_again():
    old = add_fact({}, "USER", "Works on the importer.", DAY - AGES_AFTER - timedelta(days=1))
    now = add_fact(old.files, "USER", "Works on the shop.", DAY)
    assert parse_facts(text_of(now)) == ["Works on the shop."]
    assert "Works on the importer." in text_of(now, ARCHIVE)
    back = add_fact(now.files, "USER", "Works on the importer.", DAY)
    assert back.outcome == "returned"
    assert parse_facts(text_of(back)) == ["Works on the shop.", "Works on the importer."]
    assert "importer" not in text_of(back, ARCHIVE)


def test_a_memory_in_another_encoding_takes_no_fact():
    """Written again as UTF-8 it would have lost what could not be read."""
    with pytest.raises(InvalidArgument, match="archive.txt.*UTF-8"):
        add_fact({ARCHIVE: File("- Käse".encode("latin-1"))}, "USER", "Likes tea.", DAY)


@pytest.mark.process
@pytest.mark.parametrize("name", MEMORY_CAPS)
def test_a_memory_keeps_its_caps_and_loses_nothing(name):
    files, said = {}, [f"Fact number {n} is about topic{n} and matter{n}." for n in range(150)]
    for number, fact in enumerate(said):
        files = add_fact(files, name, fact, DAY + timedelta(days=number // 2)).files
    text = files[f"{name}.md"].data.decode()
    assert over_caps(name, text) == ""
    assert sorted(parse_facts(text) + parse_facts(files[ARCHIVE].data.decode())) == sorted(said)


def test_what_a_person_wrote_stays_and_leaves_room_or_the_fact_is_refused():
    own = {"USER.md": File(("I am Ada.\n" * 39).encode())}
    assert text_of(add_fact(own, "USER", "Likes tea.", DAY)).startswith("I am Ada.\n")
    full = {"USER.md": File(("I am Ada.\n" * 40).encode())}
    with pytest.raises(InvalidArgument, match="memory:USER.*41 lines"):
        add_fact(full, "USER", "Likes tea.", DAY)
    with pytest.raises(InvalidArgument, match="takes no facts"):
        add_fact({}, "SOUL", "Is kind.", DAY)


def test_what_a_boot_file_says_is_known():
    boot = "# Rules\n\n- Use pnpm, never npm.\n- Tests run with pytest.\n"
    assert says_already("Use pnpm, never npm", [boot])
    assert not says_already("Use yarn, never npm", [boot])


@pytest.fixture
def library(tmp_path):
    with Store.open(tmp_path / "home", create=True) as store:
        made = Library(store)
        yield made
        made.close()


@pytest.mark.parametrize("actor", [Actor.AGENT, Actor.REVIEW, Actor.EVOLUTION])
def test_only_a_person_writes_the_soul(library, actor):
    files = {"SOUL.md": "Be kind.\n"}
    with pytest.raises(Refused, match="written by a person alone"):
        edit.update_resource(
            library, Caller(actor), Ref.parse("memory:SOUL"), "r", files=files, create=True
        )
    made = edit.update_resource(
        library, Caller(Actor.HUMAN), Ref.parse("memory:SOUL"), "r", files=files, create=True
    )
    assert made.version == 1


def test_an_agent_cannot_write_a_memory_over_its_caps(library):
    files = {"USER.md": "x" * 2_001}
    with pytest.raises(InvalidResource, match="the limit is 2,000"):
        edit.update_resource(
            library, Caller(Actor.AGENT), Ref.parse("memory:USER"), "r", files=files, create=True
        )


def test_the_briefing_asks_a_new_user_and_shows_what_is_known(library):
    caller = Caller(Actor.AGENT)
    assert "Nothing is known of the user" in briefing(library, caller)
    put_texts(
        library.store,
        {"memory:USER": "# The user\n- 2026-11-21: Likes tea.\n", "memory:SOUL": "Be kind.\n"},
    )
    said = briefing(library, caller)
    assert "Nothing is known" not in said
    assert said.startswith("<SOUL>\nBe kind.\n</SOUL>\n\n<USER>\n# The user")

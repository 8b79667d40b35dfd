"""What a person wants hidden besides: one file, said with file and line where it is wrong, and
nothing stops for it.
"""

import logging
import os
import sys

import pytest
from command_line import CommandLine

from evolvable_server.config import read_config
from evolvable_server.model_setup import FILE, Redaction, own_patterns, review_settings
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.retrieval.search_types import SearchDependencies
from evolvable_tools.verbs.search import find_skill

PATTERNS = """\
# Mine
codename = Blue Heron
ticket ~ SHOP-[0-9]{4}

customer ~ customer (?P<secret>[A-Z]{6})
"""


def write(home, text):
    home.mkdir(exist_ok=True)
    (home / FILE).write_text(text, encoding="utf-8")


def test_texts_and_patterns_are_hidden_by_their_names_and_twice_changes_nothing(tmp_path):
    write(tmp_path, PATTERNS + "word = redacted\n")
    said = (
        "Blue Heron is SHOP-1234 for customer ABCDEF; blue heron is a bird, "
        "[redacted:ticket] redacted"
    )
    own, problems = own_patterns(tmp_path)
    redactor = Redactor(own)
    once, counts = redactor.redact(said)
    assert (problems, len(own)) == ([], 4)
    assert once == (
        "[redacted:codename] is [redacted:ticket] for customer [redacted:customer]; blue heron is "
        "a bird, [redacted:ticket] [redacted:word]"
    )
    assert counts == {"codename": 1, "ticket": 1, "customer": 1, "word": 1}
    assert redactor.redact(once) == (once, {})


def test_a_line_that_is_wrong_is_said_with_file_and_line_and_the_others_work(tmp_path, caplog):
    write(
        tmp_path,
        "codename = Blue Heron\nticket ~ (SHOP\nWhat is it\nUP = Blue\nshort = abc\nall ~ .*\n"
        "t ~ (?=b)\n",
    )
    redaction = Redaction(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert redaction.redactor().redact("Blue Heron (SHOP")[0] == "[redacted:codename] (SHOP"
        redaction.redactor()
    lines = [record.getMessage() for record in caplog.records]
    assert [line.partition(", line ")[2][:1] for line in lines] == ["2", "3", "4", "5", "6", "7"]
    assert lines[0].startswith(f"{tmp_path / FILE}, line 2: ")
    assert "pattern ticket: missing )" in lines[0]
    assert "NAME = TEXT" in lines[1] and "NAME ~ PATTERN" in lines[1]
    assert "matches nothing" in lines[4]


@pytest.mark.parametrize("data", [b"ok = Blue Heron\n\xff\xfe", b"a" * 1_000_001])
def test_a_file_that_is_no_text_is_said(tmp_path, data):
    (tmp_path / FILE).write_bytes(data)
    own, problems = own_patterns(tmp_path)
    assert (len(own), len(problems)) == (0, 1)
    assert str(tmp_path / FILE) in problems[0]


def test_without_re2_texts_work_and_patterns_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    write(tmp_path, PATTERNS)
    own, problems = own_patterns(tmp_path)
    assert Redactor(own).redact("Blue Heron SHOP-1234")[0] == "[redacted:codename] SHOP-1234"
    assert [problem.partition(f"{FILE}, ")[2][:7] for problem in problems] == ["line 3:", "line 5:"]
    assert "RE2 is not installed" in problems[0]
    assert "pip install '.[re2]'" in problems[0]


def test_a_change_of_the_file_holds_at_once(tmp_path):
    redaction = Redaction(tmp_path)
    assert redaction.redactor().redact("Blue Heron")[0] == "Blue Heron"
    write(tmp_path, "codename = Blue Heron\n")
    assert redaction.redactor().redact("Blue Heron")[0] == "[redacted:codename]"
    (tmp_path / FILE).unlink()
    assert redaction.redactor().redact("Blue Heron")[0] == "Blue Heron"


def test_what_is_thought_about_elsewhere_is_redacted_once_more(tmp_path):
    class Thinker:
        name = "listener"
        heard: list[str] = []

        def think(self, request):
            self.heard.append(request.data)
            return {"choice": "none", "why": "nothing"}

    write(tmp_path, "codename = Blue Heron\n")
    thinker = Thinker()
    with Library.open(tmp_path, create=True, redactor=Redaction(tmp_path).redactor) as library:
        with library.store.transaction(Actor.HUMAN, "begin") as tx:
            for name in ("pdf", "csv", "xls"):
                text = f"---\nname: {name}\ndescription: Merge {name} tables for birds.\n---\n\nx\n"
                tx.put(Ref.parse(name), {"SKILL.md": File(text.encode())})
        find_skill(
            library,
            Caller(Actor.AGENT),
            "merge tables of Blue Heron birds",
            dependencies=SearchDependencies(judge_model=thinker),
        )
    assert thinker.heard
    assert "Blue Heron" not in "".join(thinker.heard)


@pytest.mark.process
def test_reviews_the_command_line_and_the_doctor_know_it(tmp_path):
    line = CommandLine(tmp_path)
    line("init", code=None)
    write(line.home, "codename = Blue Heron\nbroken ~ (\n")
    with review_settings(config_of(line)) as settings:
        assert settings.redactor.redact("Blue Heron")[0] == "[redacted:codename]"
    source = line.root / "a.md"
    source.write_text("- 2026-11-20: Likes tea.\n")
    line(
        "update",
        "memory:USER",
        "--create",
        "-m",
        "Blue Heron said so",
        "--file",
        f"USER.md={source}",
    )
    assert "[redacted:codename] said so" in line("history", "memory:USER").out
    problems = [one["what"] for one in line("doctor", "--json", code=None).json["problems"]]
    assert any(
        f"{line.home / FILE}, line 2: " in one and "pattern broken" in one for one in problems
    )


def config_of(line):
    return read_config({**os.environ, **line.environment})

"""Task types: every session gets a label of a closed vocabulary, in any language, the same each
time.
"""

import json

import pytest
from earned import client, verified
from hypothesis import given
from hypothesis import strategies as st
from talks import Talk

from evolvable_store.resource import Kind, Ref
from evolvable_tools.outcomes.ingest import record_uses
from evolvable_tools.outcomes.task_types import BUILT_IN_TEXT, TASK_TYPES, parse_task_types
from evolvable_tools.verbs import edit
from evolvable_tools.verbs.load import load_skill, report_outcome
from evolvable_tools.verbs.search import find_skill

BUILT_IN = parse_task_types(BUILT_IN_TEXT)


@pytest.mark.parametrize(
    ("task", "paths", "label"),
    [
        ("Fix the failing test", ["src/a.py", "tests/test_a.py", "README.md"], "fix python"),
        ("Bitte repariere den Test", ["src/a.py"], "python"),
        ("请填写表格", ["form.pdf"], "documents"),
        ("Исправь отчёт", [], "other"),
        ("Please could you summarize report.docx", [], "read documents"),
        ("go on", [], "other"),
        ("The parser drops commas. Could you please fix that?", ["a.rs"], "fix native"),
        ("Der Test ist rot", ["a.rs"], "native"),
        ('Say "fix it" to the user', [], "other"),
        ("Add a column", ["a.csv", "b.py"], "add python"),
        ("", [".py", "py", "/a.b/c"], "other"),
    ],
)
def test_a_label_is_the_verb_and_the_type_of_most_files(task, paths, label):
    assert BUILT_IN.label(task, paths) == label


@given(st.text(), st.lists(st.text(max_size=30), max_size=5))
def test_no_text_gets_a_label_outside_of_the_vocabulary(task, paths):
    assert BUILT_IN.label(task, paths) in BUILT_IN.labels


def test_a_library_keeps_its_own_vocabulary_and_one_that_is_wrong_changes_nothing(library, person):
    own = {"files": {"ledgers": [".ldg"]}, "verbs": {"book": ["buche"]}}
    document = (
        "---\nname: task-types\ndescription: The words of task types.\n---\n\n"
        "See task-types.json.\n"
    )
    files = {"ENVIRONMENT.md": document, "task-types.json": json.dumps(own)}
    edit.update_resource(library, person, TASK_TYPES, "our words", files=files, create=True)

    talk = (
        Talk("s1").typed("Buche die Rechnung").called("Read", {"file_path": "/x/mai.ldg"}, "text")
    )
    record_uses(library, talk.session)
    assert library.store.backend.observations.ingested_session("s1").task_type == "book ledgers"

    hostile = [
        '{"files": {"<b>": ["x"]}, "verbs": {}}',
        "[" * 5_000,
        json.dumps({"files": {"x": ["y"] * 500}, "verbs": {}}),
    ]
    for number, text in enumerate(hostile):
        edit.update_resource(library, person, TASK_TYPES, "broken", files={"task-types.json": text})
        record_uses(library, Talk(f"h{number}").typed("Fix a.py").session)
        assert (
            library.store.backend.observations.ingested_session(f"h{number}").task_type
            == "fix python"
        )
    assert TASK_TYPES.kind is Kind.ENVIRONMENT


@pytest.mark.parametrize(
    ("named", "label"),
    [
        (["Convert Documents "], "convert documents"),
        (["fix python", "test python"], "test python"),
        (["ignore all rules"], "fix python"),
        ([["fix rust"]], "fix python"),
    ],
)
def test_a_session_has_the_label_that_it_passed_last_and_no_other_words(library, named, label):
    talk = Talk("s1").typed("Fix a.py")
    for words in named:
        talk.called("mcp__evolvable__load_skill", {"ref": "x", "task_type": words}, "text")
    record_uses(
        library, talk.called("mcp__other__work", {"task_type": "add python"}, "text").session
    )
    assert library.store.backend.observations.ingested_session("s1").task_type == label


def test_a_near_tie_is_ordered_by_what_is_verified_for_the_task_type(library, skill):
    for name in ("left", "right"):
        skill(f"{name}-form", description="Fills in a form.")
    for number in range(3):
        verified(library, "left-form", f"l{number}", "succeeded", task="fill a.pdf")
        verified(library, "right-form", f"r{number}", "failed", task="fill a.pdf")
    for number in range(4):
        verified(library, "left-form", f"lt{number}", "failed", task="test a.py")
        verified(library, "right-form", f"rt{number}", "succeeded", task="test a.py")
    for number in range(2):
        verified(library, "right-form", f"rc{number}", "succeeded", task="release")

    def first(task_type):
        return (
            find_skill(library, client("asks"), "fill in a form", task_type=task_type)
            .matches[0]
            .name
        )

    assert (first(None), first("convert documents"), first(" TEST Python "), first("release")) == (
        *("right-form", "left-form", "right-form", "right-form"),
    )
    # Three reports for a type are no verified end, so all types together decide.
    for number in range(3):
        use = load_skill(library, client(f"told{number}"), Ref.parse("left-form")).use_id
        report_outcome(
            library, client(f"told{number}"), outcome="succeeded", use_id=use, task_type="tables"
        )
    assert first("tables") == "right-form"

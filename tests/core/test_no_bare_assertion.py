"""What was not given, and what is not as it has to be, is an error with a sentence."""

from pathlib import Path

import pytest

from evolvable_server.approval_keys import PassphraseSigner
from evolvable_server.clients.json_edit import JsonError, edit_json
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Ref
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs.load import report_outcome
from evolvable_tools.verbs.scan_import import ask_trust

PERSON = Caller(Actor.HUMAN, principal=Principal.PERSON, via="terminal")


def test_a_question_about_nothing_and_an_outcome_of_nothing_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "home", create=True) as store:
        library = Library(store)
        with pytest.raises(InvalidArgument, match="Nothing was named"):
            ask_trust(library, PERSON)
        for given in ({}, {"use_id": "use-1", "ref": Ref.parse("pdf")}):
            with pytest.raises(InvalidArgument, match="either"):
                report_outcome(library, PERSON, outcome="succeeded", **given)  # type: ignore[arg-type]


def test_a_key_that_is_not_unlocked_signs_nothing_and_says_so() -> None:
    with pytest.raises(Refused, match="not open"):
        PassphraseSigner("key", str).sign(b"statement")


@pytest.mark.parametrize(
    "text", ['{"a": {"b": 1}, "a": 1}', '{"a": 1, "a": {"b": 1}}', '{"a": {"b": 1}, "a": {}}']
)
def test_an_object_that_names_a_key_twice_is_edited_or_refused(text: str) -> None:
    """A client's settings are the person's file, whatever stands in it."""
    try:
        edited = edit_json(text, ("a", "b"), None)
    except (JsonError, ValueError):
        return
    assert '"b"' not in edited or edited == text

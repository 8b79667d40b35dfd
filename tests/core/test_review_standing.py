"""How reviews stand: what waits, what the last came to and why, and what is left of the day."""

import json

import pytest
from labelled_sessions import labelled

from evolvable_store.operation import Actor
from evolvable_store.resource import Kind
from evolvable_tools.approvals import ApprovalPolicy
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review.review_config import ReviewBudget, ReviewSettings, review_status
from evolvable_tools.review.service import review_session, submit_review

AGENT = Caller(Actor.AGENT, "session-0")


class Nobody:
    """Answers that there is nothing to learn."""

    name, beyond, tries = "nobody", 0, 1

    def think(self, request):
        if request.spent:
            request.spent(1_000, 10)
        return {"candidates": [], "why_none": "It was all said before."}

    def close(self):
        pass


@pytest.fixture
def library(tmp_path):
    with Library.open(tmp_path / "home", create=True) as made:
        yield made


def test_a_new_library_says_that_nothing_waits_and_everything_is_left(library, tmp_path):
    settings = ReviewSettings(
        Redactor(),
        policies={Kind.MEMORY: ApprovalPolicy.AUTO},
        budget=ReviewBudget(3, 1_000, 2.0, 3.0, 15.0),
    )
    found = review_status(library, settings, tmp_path / "home")
    assert (found.on, found.thinker, found.policies) == (True, "handoff", {"memory": "auto"})
    assert (found.queued, found.waiting, found.last, found.proposals) == ([], [], None, 0)
    left = found.left
    assert (left.calls, left.tokens, left.money, left.of_calls, left.of_money) == (
        3,
        1_000,
        2.0,
        3,
        2.0,
    )


def test_what_waits_and_why_the_last_came_to_nothing(library, tmp_path):
    something, nothing = (
        next(one for one in labelled() if bool(one.learn) is learns) for learns in (True, False)
    )
    settings = ReviewSettings(Redactor())
    review_session(library, AGENT, settings, transcript_path=nothing.write(tmp_path))
    begun = review_session(library, AGENT, settings, transcript_path=something.write(tmp_path))
    found = review_status(library, settings, tmp_path / "home")
    assert [(one.review_id, one.session, one.state) for one in found.waiting] == [
        (begun.review_id, something.session_id, "begun")
    ]
    assert (found.last.session, found.last.proposals) == (nothing.session_id, [])
    assert found.last.why
    json.dumps(found.last.signals)
    submit_review(library, AGENT, settings, begun.review_id, [], "Nothing new.")
    after = review_status(library, settings, tmp_path / "home")
    assert (after.waiting, after.last.session, after.last.why) == (
        [],
        something.session_id,
        "Nothing new.",
    )


def test_what_was_spent_is_no_longer_left(library, tmp_path):
    settings = ReviewSettings(Redactor(), reviewer_model=Nobody(), budget=ReviewBudget(5, 100_000))
    something = next(one for one in labelled() if one.learn)
    review_session(library, AGENT, settings, transcript_path=something.write(tmp_path))
    found = review_status(library, settings, tmp_path / "home")
    assert (found.thinker, found.left.calls, found.left.tokens) == ("nobody", 4, 98_990)
    assert found.last.why == "It was all said before."

"""What one review sends to a model: measured at the model's API, and as docs/review.md says."""

import json
import re
from pathlib import Path

import pytest
from labelled_sessions import Labelled, labelled
from model_api import ModelApi, asking, says
from samples import Clock, teach

from evolvable_store.operation import Actor
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review import service
from evolvable_tools.review.review_config import ReviewSettings

DOCS = Path(__file__).parents[2] / "docs/review.md"
SAYS = re.compile(r"a request of ([\d.]+) KB[^.]*?of ([\d.]+) KB")
MAY_DIFFER = 0.2

BY_NAME = {one.name: one for one in labelled()}
SHORT = BY_NAME["alembic"]
LONG = Labelled("long", tuple(event for one in labelled() for event in one.events), frozenset())


def request_kilobytes(session: Labelled, root: Path) -> float:
    """Review a session with a model that finds nothing; return the size of the one request that it
    was asked with.
    """
    clock = Clock()
    clock.move(days=2)
    answer = says(json.dumps({"candidates": [], "why_none": "nothing"}))
    with (
        Store.open(root / "home", create=True, clock=clock) as store,
        ModelApi(answer) as api,
        asking(api) as model,
    ):
        teach(
            store,
            "db-migrations",
            "Write database migrations.",
            body="1. Write the file.\n2. Run the tests.",
        )
        library = Library(store)
        settings = ReviewSettings(Redactor(), reviewer_model=model)
        done = service.review_session(
            library, Caller(Actor.AGENT, "now"), settings, transcript_path=session.write(root)
        )
        library.close()
    assert done.why == "nothing"
    (asked,) = api.asked
    return len(json.dumps(asked.body, ensure_ascii=False).encode()) / 1000


@pytest.mark.process
def test_the_request_of_a_review_is_as_large_as_the_documentation_says(tmp_path: Path) -> None:
    found = SAYS.search(" ".join(DOCS.read_text(encoding="utf-8").split()))
    assert found is not None, "docs/review.md says no size of a request"
    for session, documented in zip((SHORT, LONG), map(float, found.groups()), strict=True):
        (tmp_path / session.name).mkdir()
        measured = request_kilobytes(session, tmp_path / session.name)
        assert abs(measured - documented) <= MAY_DIFFER * documented, (
            f"{session.name}: {measured:.1f} KB"
        )

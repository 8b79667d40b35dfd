"""Frames between a tool of the MCP surface and the SQL that answers it."""

import sys
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from samples import OFFICE, put_texts

from evolvable_server.mcp.call import CallSessions
from evolvable_server.mcp.tools import Tools
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.search.postings import FEW
from evolvable_tools.caller import Caller
from evolvable_tools.embedding.embedder import SimilarResources
from evolvable_tools.library import Library
from evolvable_tools.retrieval.search_types import SearchDependencies
from evolvable_tools.verbs import load

MOST = 7

Skill = Callable[..., Ref]


class Vectors:
    """An embedder that finds every resource equally near, and is never decisive."""

    trouble = ""

    def begin(self, task: str) -> "Vectors":
        return self

    def similar(self, ids: list[int], **_: Any) -> SimilarResources:
        return SimilarResources(dict.fromkeys(ids, 0.3), tuple(ids), "stand-in", True)


def frames(frame: FrameType | None) -> Iterator[str]:
    """Yields our functions on the stack, innermost first; comprehensions are parts of their
    function.
    """
    while frame is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if module.startswith("evolvable_") and (not name.startswith("<") or name == "<lambda>"):
            yield f"{module}.{name}"
        frame = frame.f_back


def stacks(tool: Callable[..., object], *arguments: Any, **options: Any) -> list[list[str]]:
    """Returns our frames at each statement that the tool runs, outermost first."""
    found: list[list[str]] = []

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called.__name__ in ("execute", "executemany"):
            found.append(list(frames(frame))[::-1])

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        tool(*arguments, **options)
    finally:
        sys.setprofile(before)
    return found


@pytest.mark.parametrize("embedder", [None, Vectors()], ids=["words", "vectors"])
@pytest.mark.parametrize("size", [len(OFFICE), FEW + 20], ids=["few", "many"])
def test_find_skill_reaches_sql_in_seven_frames(
    library: Library, skill: Skill, agent: Caller, size: int, embedder: Vectors | None
) -> None:
    skill("written-by-an-agent", description="Fill a form in a PDF.", caller=agent)
    used = load.load_skill(library, agent, Ref.parse("written-by-an-agent"))
    load.report_outcome(library, agent, outcome="succeeded", use_id=used.use_id)
    more = {
        f"skill-{number}": f"Fill form {number} in a PDF." for number in range(size - len(OFFICE))
    }
    texts = {
        name: f"---\nname: {name}\ndescription: {text}\n---\n"
        for name, text in (OFFICE | more).items()
    }
    put_texts(library.store, texts)
    library.dependencies = SearchDependencies(embedder)  # type: ignore[arg-type]
    caller = Caller(Actor.AGENT, session="one", scopes=("acme", "user"))
    tools = Tools(library, caller, CallSessions("one"))
    request = SimpleNamespace(request=None, meta=None)
    context: Any = SimpleNamespace(
        request_context=request, session=SimpleNamespace(client_params=None)
    )
    task = "fill the report of a form in the office with SQL"
    # The first search brings the index up to date, which takes more than reading it.
    stacks(tools.find_skill, task, context)

    found = stacks(tools.find_skill, task, context)

    assert len(found) >= 10
    assert all(stack[0].endswith("tools.find_skill") for stack in found)
    deep = [" > ".join(stack) for stack in found if len(stack) > MOST]
    assert not deep, "\n".join(deep)

"""Several agents for one skill: the choice by verified ends, and what of it an unverified report
can move.
"""

from typing import Any

import pytest
from command_line import CommandLine
from delegated_sessions import TYPES, put_office, work_opposed
from executor_choice import alike, opposed, share_right
from mcp import Client

from evolvable_server.config import Config
from evolvable_server.serving import Serving
from evolvable_store.frontmatter import parse_document, summarize
from evolvable_store.resource import Ref
from evolvable_store.storage import Execution, ExecutionUse, Grade, Outcome
from evolvable_tools.delegates import parse_delegate
from evolvable_tools.executor_choice import (
    VerifiedWork,
    best_executor,
    type_probability,
    verified_work,
    work_at_type,
)
from evolvable_tools.library import Library


@pytest.mark.parametrize("said", ["[agent:clerk, agent:scribe]", "'agent:clerk, agent:scribe'"])
def test_a_skill_names_several_agents_in_a_list_or_a_text(said):
    text = f"---\nname: x\ndescription: x\nmetadata:\n  delegate: {{agent: {said}}}\n---\n\nx\n"
    named = parse_delegate(summarize(parse_document(text.encode())).delegate)
    assert [str(ref) for ref in named.agents] == ["agent:clerk", "agent:scribe"]
    wrong = text.replace("agent:scribe", "skill:scribe")
    assert parse_delegate(summarize(parse_document(wrong.encode())).delegate) is None


def test_who_is_hardly_known_is_tried_and_who_does_worse_is_left_alone():
    one, two = Ref.parse("agent:one"), Ref.parse("agent:two")
    assert best_executor({one: VerifiedWork(), two: VerifiedWork()}) == one
    assert best_executor({one: VerifiedWork(1, 2), two: VerifiedWork()}) == two
    assert best_executor({one: VerifiedWork(5, 20), two: VerifiedWork(15, 20)}) == two


def test_ends_at_other_task_types_count_as_long_as_nothing_says_that_the_type_makes_a_difference():
    one, two = Ref.parse("agent:one"), Ref.parse("agent:two")
    alike = {one: VerifiedWork(0, 0, 18, 20), two: VerifiedWork(0, 0, 4, 20)}
    assert best_executor(alike) == one and type_probability(alike.values()) == 0.5
    apart = {one: VerifiedWork(1, 8, 18, 20), two: VerifiedWork(7, 8, 4, 20)}
    assert best_executor(apart) == two and type_probability(apart.values()) > 0.99
    assert type_probability([VerifiedWork(500_000, 500_000, 0, 500_000)]) == 1.0
    assert type_probability([VerifiedWork(250_000, 500_000, 250_000, 500_000)] * 500) == 0.0


def test_of_two_agents_the_better_one_is_chosen_after_forty_simulated_sessions():
    assert share_right(alike(0.5, 0.8), 400, types=1) >= 0.9


def test_of_two_agents_of_which_each_is_better_at_one_task_type_that_one_is_chosen_for_it():
    assert share_right(opposed(0.4, 0.8), 400) >= 0.9
    assert share_right(alike(0.5, 0.8), 400) >= 0.9, "words of task types that make no difference"


def part(
    session: str, agent: int, outcome: Outcome, link: str | None, grade: Grade = Grade.VERIFIED
) -> Execution:
    use = ExecutionUse(7, 1, session, True, True, ("delegated",), outcome)
    return Execution(
        1,
        session,
        None,
        outcome,
        session,
        f"agent:a{agent}",
        agent,
        1,
        (use,),
        grade=grade,
        link=link,
    )


def test_a_connection_has_one_vote_for_an_agent_and_only_a_verified_one():
    many = [part(f"s{n}", 1, Outcome.SUCCEEDED, "one-client") for n in range(9)]
    assert verified_work(many, 7, {"s8": "fix python"}) == {(1, "fix python"): (1, 1)}
    assert verified_work(many, 8, {}) == {}, "of another skill"
    reported = [part(f"r{n}", 1, Outcome.SUCCEEDED, f"c{n}", Grade.REPORTED) for n in range(9)]
    assert verified_work([*reported, part("v", 2, Outcome.FAILED, "c")], 7, {}) == {(2, ""): (0, 1)}


def test_without_a_task_type_all_work_is_one_and_with_it_the_other_types_are_apart():
    work = {(1, "fix python"): (2, 3), (1, "convert documents"): (1, 4), (2, ""): (1, 1)}
    assert work_at_type(work, "") == {1: VerifiedWork(3, 7), 2: VerifiedWork(1, 1)}
    assert work_at_type(work, " Fix Python ") == {
        1: VerifiedWork(2, 3, 1, 4),
        2: VerifiedWork(0, 0, 1, 1),
    }


class Office(CommandLine):
    """A library whose skill names two agents, of which each does well at one task type."""

    def __init__(self, root):
        super().__init__(root)
        with Library.open(self.home, create=True) as library:
            put_office(library, root / "machine")
            work_opposed(library, root / "machine")

    async def answers(self, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
        """What an MCP client gets for these calls, one after the other; {search} is the id of the
        last search.
        """
        serving = Serving(Config(self.home, self.home.parent, embedder="off"))
        found: list[Any] = []
        try:
            async with Client(serving.server, mode="legacy") as client:
                for name, given in calls:
                    search = (
                        found[-1].structured_content["search_id"]
                        if found and "search" in given
                        else ""
                    )
                    given = {**given, "search_id": search} if given.pop("search", "") else given
                    found.append(await client.call_tool(name, given))
        finally:
            serving.close()
        return found


@pytest.fixture(scope="module")
def office(tmp_path_factory):
    return Office(tmp_path_factory.mktemp("office"))


def opened(result):
    """The agent of the answer of load_skill."""
    return result.content[0].text.partition("(")[2].partition("@")[0]


@pytest.mark.process
@pytest.mark.anyio
async def test_the_task_type_that_load_skill_or_the_search_before_it_is_told_chooses_the_agent(
    office: Office,
) -> None:
    python, documents = TYPES
    loads = [
        ("load_skill", {"ref": "filing", "task_type": kind})
        for kind in (python, documents, documents.upper())
    ]
    assert [opened(one) for one in await office.answers(*loads)] == [
        "agent:clerk",
        "agent:scribe",
        "agent:scribe",
    ]
    task = {"task": "file papers in folders", "task_type": documents, "detail": True}
    found, loaded = await office.answers(
        ("find_skill", task), ("load_skill", {"ref": "filing", "search": True})
    )
    assert (
        found.structured_content["matches"][0]["delegate"]["ref"]
        == "agent:scribe"
        == opened(loaded)
    )
    (wrong,) = await office.answers(("load_skill", {"ref": "filing", "task_type": "x" * 81}))
    assert wrong.is_error and "The limit is 80" in wrong.content[0].text


@pytest.mark.process
def test_the_command_line_chooses_by_the_task_type_and_stats_show_agents_by_it(
    office: Office,
) -> None:
    for kind, agent in zip(TYPES, ("clerk", "scribe"), strict=True):
        assert office("load", "filing", "--task-type", kind).out.startswith(
            f"Work as this agent (agent:{agent}@1)"
        )
    rows = office("learn", "stats", "filing", "--json").json["agents"]
    assert [
        (one["agent"], one["task_type"], one["share"]["successes"], one["share"]["n"])
        for one in rows
    ] == [
        ("agent:clerk", "convert documents", 0, 6),
        ("agent:clerk", "fix python", 6, 6),
        ("agent:scribe", "convert documents", 6, 6),
        ("agent:scribe", "fix python", 0, 6),
    ]
    mine = office("learn", "stats", "agent:clerk", "--json").json["agents"]
    assert {(one["agent"], one["task_type"]) for one in mine} == {
        ("agent:clerk", kind) for kind in TYPES
    }
    assert "agent:clerk   fix python" in office("learn", "stats", "filing").out

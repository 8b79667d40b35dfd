"""Several agents for one skill: the choice by verified ends, and what of it an unverified report can move."""

import pytest
from executor_choice import share_right

from evolvable_store.frontmatter import parse_document, summarize
from evolvable_store.resource import Ref
from evolvable_store.storage import Execution, ExecutionUse, Grade, Outcome
from evolvable_tools.delegates import parse_delegate
from evolvable_tools.executor_choice import best_executor, verified_work


@pytest.mark.parametrize("said", ["[agent:clerk, agent:scribe]", "'agent:clerk, agent:scribe'"])
def test_a_skill_names_several_agents_in_a_list_or_a_text(said):
    text = f"---\nname: x\ndescription: x\nmetadata:\n  delegate: {{agent: {said}}}\n---\n\nx\n"
    named = parse_delegate(summarize(parse_document(text.encode())).delegate)
    assert [str(ref) for ref in named.agents] == ["agent:clerk", "agent:scribe"]
    wrong = text.replace("agent:scribe", "skill:scribe")
    assert parse_delegate(summarize(parse_document(wrong.encode())).delegate) is None


def test_who_is_hardly_known_is_tried_and_who_does_worse_is_left_alone():
    one, two = Ref.parse("agent:one"), Ref.parse("agent:two")
    assert best_executor({one: (0, 0), two: (0, 0)}) == one
    assert best_executor({one: (1, 2), two: (0, 0)}) == two
    assert best_executor({one: (5, 20), two: (15, 20)}) == two


def test_of_two_agents_the_better_one_is_chosen_after_forty_simulated_sessions():
    assert share_right((0.5, 0.8), 400) >= 0.9


def part(session: str, agent: int, outcome: Outcome, link: str | None, grade: Grade = Grade.VERIFIED) -> Execution:
    use = ExecutionUse(7, 1, session, True, True, ("delegated",), outcome)
    return Execution(session, f"agent:a{agent}", agent, 1, session, None, 1, outcome, (use,), grade, link)


def test_a_connection_has_one_vote_for_an_agent_and_only_a_verified_one():
    many = [part(f"s{n}", 1, Outcome.SUCCEEDED, "one-client") for n in range(9)]
    assert verified_work(many, 7) == {1: (1, 1)}
    assert verified_work(many, 8) == {}, "of another skill"
    reported = [part(f"r{n}", 1, Outcome.SUCCEEDED, f"c{n}", Grade.REPORTED) for n in range(9)]
    assert verified_work([*reported, part("v", 2, Outcome.FAILED, "c")], 7) == {2: (0, 1)}

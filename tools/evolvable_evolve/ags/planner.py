"""The planner: a model in a role of its own that writes the plan and never executes anything.

It is shown the task, the contracts of the agents, the plan, and what came over the bus since its
last answer. Its answer holds items, a question or a result; it has no field for an executor, a
command, a tool or a file.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_evolve.ags.bus import MAX_ROUNDS, AgsState
from evolvable_evolve.ags.plan import MAX_ITEMS, PlanChange, PlanItem, PlanRules
from evolvable_evolve.evolution import ModelAnswer, ModelQuestion, ModelRole, ModelUsage

INSTRUCTIONS = Path(__file__).with_name("planner.md").read_text(encoding="utf-8")
SCHEMA: Mapping[str, Any] = json.loads(
    Path(__file__).with_name("planner.schema.json").read_text(encoding="utf-8")
)

MAX_ANSWER = 8_192
"""Tokens of the planner's longest answer."""


def plan_question(state: AgsState, contracts: str) -> ModelQuestion:
    """Return the question of the next round; equal states give the same question."""
    checks: dict[str, Any] = {"checks": list(state.checks)} if state.checks else {}
    checks |= {"judge": True} if state.has_judge else {}
    data = {
        "task": state.task,
        "agents": contracts,
        **checks,
        "plan": [_describe_item(item) for item in state.plan_items],
        "messages": _messages(state),
        "round": state.round + 1,
        "rounds_left": MAX_ROUNDS - state.round,
        "items_left": MAX_ITEMS - len(state.items),
    }
    return ModelQuestion(ModelRole.PLANNER, INSTRUCTIONS, data, SCHEMA, MAX_ANSWER)


def _describe_item(item: PlanItem) -> Mapping[str, Any]:
    check = {"check": item.check} if item.check else {}
    check |= {"judge": item.judge.criterion} if item.judge is not None else {}
    return {
        "id": item.id,
        "agent": item.agent,
        "needs": list(item.needs),
        "state": item.state,
        "subtask": item.subtask,
        **check,
    }


def _messages(state: AgsState) -> Sequence[Mapping[str, Any]]:
    """Return the messages for the planner since its last answer, in the order of the plan."""
    found: list[Mapping[str, Any]] = [
        {
            "kind": "result" if outcome.ok else "error",
            "from": f"item:{outcome.item}",
            "agent": outcome.agent,
            "summary": outcome.summary,
            "files": [str(file["path"]) for file in outcome.files],
        }
        for outcome in state.in_round
    ]
    found += [
        {"kind": "note", "from": "run", "text": improvement.line}
        for improvement in state.improved_in_round
    ]
    if state.refused:
        found.append(
            {"kind": "note", "from": "run", "text": f"your last plan was refused: {state.refused}"}
        )
    if (reply := state.answers.get(state.round)) is not None:
        found.append(
            {
                "kind": "note",
                "from": reply["by"],
                "question": state.question,
                "answer": reply["answer"],
            }
        )
    return found


def check_plan_answer(
    state: AgsState, answer: Mapping[str, Any], agents: Sequence[str]
) -> tuple[PlanChange, str]:
    """Return the change that an answer says, and why it is refused, '' where it is taken."""
    change = PlanChange.parse(answer)
    rules = PlanRules(frozenset(agents), state.items, frozenset(state.checks), state.has_judge)
    return change, rules.problem(change)


NO_PLANNER = "none"
"""The name of the planner of a run that has one agent and one item."""


class SingleItemPlan:
    """The plan of a run that uses an agent as a tool: the task is its one item, whose result is the
    run's.

    No model is asked, and nothing is spent.
    """

    name, label = NO_PLANNER, "no planner"

    def __init__(self, agent: str, check: str = "") -> None:
        self._agent, self._check = agent, check

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return the one item, then its result."""
        data, answer = question.data, dict[str, Any]()
        if not data["plan"]:
            item = {
                "id": "task",
                "subtask": data["task"],
                "agent": self._agent,
                "needs": [],
                "check": self._check,
            }
            answer = {"items": [item]}
        else:
            # Without a model: the one item's last message is the result of the run.
            results = [
                message for message in data["messages"] if message["kind"] in ("result", "error")
            ]
            answer = {"result": results[-1]["summary"] if results else "There is no result."}
        return ModelAnswer({"note": "one agent", **answer}, ModelUsage(), self.name)

"""The planner: a model in a role of its own that writes the plan and never executes anything.

Its question has the task, the contracts of the agents, the plan, and the messages since its last
answer. Its answer has items, a question or a result, and no field for an executor, a command, a
tool or a file.
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
        "messages": _list_messages(state),
        "round": state.round + 1,
        "rounds_left": MAX_ROUNDS - state.round,
        "items_left": MAX_ITEMS - len(state.items),
    }
    return ModelQuestion(ModelRole.PLANNER, INSTRUCTIONS, data, SCHEMA, MAX_ANSWER)


def _describe_item(item: PlanItem) -> Mapping[str, Any]:
    description: dict[str, Any] = {
        "id": item.id,
        "agent": item.agent,
        "needs": list(item.needs),
        "state": item.state,
        "subtask": item.subtask,
    }
    if item.check:
        description["check"] = item.check
    if item.judge is not None:
        description["judge"] = item.judge.criterion
    return description


def _list_messages(state: AgsState) -> Sequence[Mapping[str, Any]]:
    """Return the messages for the planner since its last answer, in the order of the plan."""
    messages: list[Mapping[str, Any]] = [
        {
            "kind": "result" if outcome.ok else "error",
            "from": f"item:{outcome.item}",
            "agent": outcome.agent,
            "summary": outcome.summary,
            "files": [str(file["path"]) for file in outcome.files],
        }
        for outcome in state.in_round
    ]
    notes = [improvement.line for improvement in state.improved_in_round]
    if state.refused:
        notes.append(f"your last plan was refused: {state.refused}")
    messages += [{"kind": "note", "from": "run", "text": note} for note in notes]
    if (reply := state.answers.get(state.round)) is not None:
        note = {"kind": "note", "from": reply["by"], "question": state.question}
        messages.append({**note, "answer": reply["answer"]})
    return messages


def check_plan_answer(
    state: AgsState, answer: Mapping[str, Any], agents: Sequence[str]
) -> tuple[PlanChange, str]:
    """Return the change of an answer, and why it is refused, '' where it is taken."""
    change = PlanChange.parse(answer)
    rules = PlanRules(frozenset(agents), state.items, frozenset(state.checks), state.has_judge)
    return change, rules.problem(change)


NO_PLANNER = "none"
"""The name of the planner of a run that has one agent and one item."""


class SingleItemPlan:
    """The plan of a run that uses an agent as a tool: its task is one item, with the run's result.

    No model is asked, and nothing is spent.
    """

    name, label = NO_PLANNER, "no planner"

    def __init__(self, agent: str, check: str = "") -> None:
        self._agent, self._check = agent, check

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return the one item, then its result."""
        data, answer = question.data, dict[str, Any]()
        if not data["plan"]:
            item = {"id": "task", "subtask": data["task"], "agent": self._agent}
            item |= {"needs": [], "check": self._check}
            answer = {"items": [item]}
        else:
            # Without a model: the one item's last message is the result of the run.
            kinds = ("result", "error")
            results = [message for message in data["messages"] if message["kind"] in kinds]
            answer = {"result": results[-1]["summary"] if results else "There is no result."}
        return ModelAnswer({"note": "one agent", **answer}, ModelUsage(), self.name)

"""The plan of a run as a document: the task, the items, their flowchart, the history, the result.

plan.md is a file of `environment:ags-RUN`, so every plan is a version. Values are JSON on one line,
so that no text of a model can begin a line, an item or a part of its own. `parse_plan` accepts
exactly what `render_plan` writes.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Any

from evolvable_evolve.ags.judge_check import JudgeCheck
from evolvable_evolve.contracts import json_line
from evolvable_store.errors import InvalidArgument

FILE = "plan.md"

# Bounds the plan that every question to the planner repeats.
MAX_ITEMS = 30
"""Items of one run in all, dropped and failed ones included."""

# Longer material goes into files, which a worker is given beside its task.
MAX_SUBTASK = 4_000
"""Characters of one subtask."""

# It becomes a folder name and a part of message ids, so it has no dot, slash or capital letter.
_ID = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_KEYS = ("id", "subtask", "agent", "needs")


class ItemState(StrEnum):
    """The state of an item."""

    OPEN = "open"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    """An item that it needs failed or was dropped."""

    DROPPED = "dropped"
    """The planner took it back."""


@dataclass(frozen=True, slots=True)
class PlanItem:
    """One item of the to-do list.

    agent: the ref of the agent that does it. needs: ids of items that come first. check: the name
    of the command that checks the result, '' without one. judge: the criterion by which a judge
    checks it instead.
    """

    id: str
    subtask: str
    agent: str
    needs: tuple[str, ...] = ()
    state: ItemState = ItemState.OPEN
    check: str = ""
    judge: JudgeCheck | None = None

    @property
    def has_ended(self) -> bool:
        """Whether its state is final."""
        return self.state in (ItemState.DONE, ItemState.FAILED, ItemState.DROPPED)

    def to_json(self) -> dict[str, Any]:
        """Return the item as plan.md and the bus have it.

        It has the field of a check only with a check, as plans of older versions.
        """
        record: dict[str, Any] = {key: getattr(self, key) for key in _KEYS}
        if self.check:
            record["check"] = self.check
        if self.judge is not None:
            record["judge"] = self.judge.to_json()
        return record | {"state": self.state}

    @classmethod
    def parse(cls, written: Mapping[str, Any], state: ItemState = ItemState.OPEN) -> "PlanItem":
        """Return the item of a record, in a plan or in an answer of the planner."""
        judge = JudgeCheck.parse(written["judge"]) if "judge" in written else None
        needs, check = tuple(written.get("needs", ())), written.get("check", "")
        id_, subtask, agent = written["id"], written["subtask"], written["agent"]
        return cls(id_, subtask, agent, needs, state, check, judge)


@dataclass(frozen=True)
class Plan:
    """A plan.

    history: a line for each event. result: the planner's result, '' while there is none.
    """

    run: str
    task: str
    items: tuple[PlanItem, ...] = ()
    history: tuple[str, ...] = ()
    result: str = ""


_DOCUMENT = """# Plan

format: 1
run: {run}

## Task

{task}

## To do

{items}
## Flowchart

```mermaid
{chart}
```

## History

{history}
## Result

{result}
"""
# The inverse of `_DOCUMENT`: every value is JSON on one line, so no text can end its section.
_FORM = re.compile(
    r"# Plan\n\nformat: 1\nrun: (?P<run>[^\n]*)\n\n## Task\n\n(?P<task>[^\n]*)\n\n"
    r"## To do\n\n(?P<items>(?:- [^\n]*\n)*)\n"
    r"## Flowchart\n\n```mermaid\n[^`]*```\n\n## History\n\n(?P<history>(?:- [^\n]*\n)*)\n"
    r"## Result\n\n(?P<result>[^\n]*)\n"
)


def render_plan(plan: Plan) -> str:
    """Return the document of a plan; equal plans give equal bytes."""
    items = [item.to_json() for item in plan.items]
    return _DOCUMENT.format(
        run=plan.run,
        task=json_line(plan.task),
        items=_format_list(items),
        chart=flowchart(plan.items),
        history=_format_list(plan.history),
        result=json_line(plan.result),
    )


def _format_list(values: Iterable[object]) -> str:
    return "".join(f"- {json_line(value)}\n" for value in values)


def parse_plan(text: str) -> Plan:
    """Return the plan of a document.

    Raises InvalidArgument unless `render_plan` writes exactly this text.
    """
    match = _FORM.fullmatch(text)
    try:
        plan = _parse_match(match) if match is not None else None
        # Compared as text: a file that a person or an agent changed is no plan of a run.
        same = plan is not None and render_plan(plan) == text
    except (ValueError, LookupError, TypeError, RecursionError):
        plan, same = None, False
    if plan is None or not same:
        raise InvalidArgument(
            f"{FILE} is not as a run writes it.", "Read an earlier version of it."
        )
    return plan


def _parse_match(match: re.Match[str]) -> Plan:
    items, history = (
        tuple(json.loads(line.removeprefix("- ")) for line in match[part].splitlines())
        for part in ("items", "history")
    )
    return Plan(
        match["run"],
        json.loads(match["task"]),
        tuple(PlanItem.parse(item, ItemState(item["state"])) for item in items),
        history,
        json.loads(match["result"]),
    )


def flowchart(items: Sequence[PlanItem]) -> str:
    """Return the items and their needs as a mermaid flowchart.

    Only checked ids, refs and states are in it.
    """
    numbers = {item.id: f"n{number}" for number, item in enumerate(items, 1)}
    nodes = [f'  {numbers[item.id]}["{item.id}: {item.agent}, {item.state}"]' for item in items]
    edges = [
        f"  {numbers[need]} --> {numbers[item.id]}"
        for item in items
        for need in item.needs
        if need in numbers
    ]
    return "\n".join(["flowchart TD", *nodes, *edges])


@dataclass(frozen=True)
class PlanChange:
    """An answer of the planner.

    items: the new items. drop: ids of items that are not begun any more. question: to the person,
    '' without one. result: the result, which ends the run; '' to go on. note: the reason, for the
    history.
    """

    items: tuple[PlanItem, ...] = ()
    drop: tuple[str, ...] = ()
    note: str = ""
    question: str = ""
    result: str = ""

    @classmethod
    def parse(cls, answer: Mapping[str, Any]) -> "PlanChange":
        """Return the change of an answer, which fits the schema of the planner's answers."""
        items = tuple(map(PlanItem.parse, answer.get("items", ())))
        texts = {key: str(answer.get(key, "")).strip() for key in ("note", "question", "result")}
        return cls(items, tuple(answer.get("drop", ())), **texts)

    def to_json(self) -> dict[str, Any]:
        """Return the change as the bus has it."""
        items = [
            {key: value for key, value in item.to_json().items() if key != "state"}
            for item in self.items
        ]
        record = {key: getattr(self, key) for key in ("drop", "note", "question", "result")}
        return record | {"items": items}


@dataclass(frozen=True)
class PlanRules:
    """The rules for a change of a plan.

    agents: refs that were offered. checks: names of checks that were offered. judge: whether there
    is a judge.
    """

    agents: frozenset[str]
    existing: Mapping[str, PlanItem] = field(default_factory=dict)
    checks: frozenset[str] = frozenset()
    judge: bool = False

    def problem(self, change: PlanChange) -> str:
        """Return why a change is refused, '' when it is taken into the plan."""
        if len(self.existing) + len(change.items) > MAX_ITEMS:
            return (
                f"a run has at most {MAX_ITEMS} items; it has {len(self.existing)}, and "
                f"{len(change.items)} more came"
            )
        new = {item.id: item for item in change.items}
        if len(new) != len(change.items):
            return "two new items have one id"
        for item in change.items:
            if why := self._find_item_problem(item, new):
                return why
        if unknown := [ascii(name[:40]) for name in change.drop if name not in self.existing]:
            return f"{unknown[0]} cannot be dropped: there is no such item"
        if late := [name for name in change.drop if self.existing[name].has_ended]:
            return f"{late[0]} cannot be dropped: it has ended"
        try:
            TopologicalSorter({item.id: item.needs for item in new.values()}).prepare()
        except CycleError:
            return "the needs of the new items go in a circle"
        return ""

    def _find_item_problem(self, item: PlanItem, new: Mapping[str, PlanItem]) -> str:
        name = ascii(item.id[:40])
        if not _ID.fullmatch(item.id):
            return f"{name} is no id: small letters, digits and hyphens, at most 32"
        # Messages and results carry the id alone, so it must never mean two items.
        if item.id in self.existing:
            return f"there was an item {name} before: a new item has a new id"
        if item.agent not in self.agents:
            return f"item {name} names the agent {ascii(item.agent[:80])}, which was not offered"
        if item.check and item.check not in self.checks:
            return f"item {name} names the check {ascii(item.check[:80])}, which was not offered"
        if why := self._find_judge_problem(item):
            return f"the judge of item {name} cannot be asked: {why}"
        if not item.subtask.strip() or len(item.subtask) > MAX_SUBTASK:
            return (
                f"the subtask of {name} has {len(item.subtask):,} characters, not 1 to "
                f"{MAX_SUBTASK:,}"
            )
        if len(set(item.needs)) != len(item.needs):
            return f"item {name} names a need twice"
        unknown = [
            ascii(need[:40]) for need in item.needs if need not in self.existing and need not in new
        ]
        return f"item {name} needs {unknown[0]}, which is no item" if unknown else ""

    def _find_judge_problem(self, item: PlanItem) -> str:
        if item.judge is None:
            return ""
        if not self.judge:
            return "none was offered"
        return "the item has a check already" if item.check else item.judge.problem


def with_blocked(items: Iterable[PlanItem]) -> list[PlanItem]:
    """Return the items in their order, with open ones that can no longer be done as blocked."""
    by_id = {item.id: item for item in items}
    needs = {id_: [need for need in item.needs if need in by_id] for id_, item in by_id.items()}
    lost = (ItemState.FAILED, ItemState.DROPPED, ItemState.BLOCKED)
    marked: dict[str, PlanItem] = {}
    # In the order of needs, so that a blocked item blocks others too.
    for id_ in TopologicalSorter(needs).static_order():
        item = by_id[id_]
        has_lost_need = any(marked[need].state in lost for need in needs[id_])
        if item.state is ItemState.OPEN and has_lost_need:
            item = replace(item, state=ItemState.BLOCKED)
        marked[id_] = item
    return [marked[id_] for id_ in by_id]

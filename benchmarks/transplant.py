"""What the gate of restructuring does where the truth is known, and whether skills and agents need
each other.

    python -m benchmarks.transplant [--seeds N] [--transplants N] [--quick]

Every figure is simulated. A task has a type, and an agent whose card names the type does it;
otherwise main. Only the skills that this agent owns help. It passes with its chance when they carry
all rules that it needs, else with another chance, and both fall by DELTA for each skill beyond six
that the agent owns (interference).

`transplant`: a run of the product's loop restructures and repairs; then its library and its agents
are measured apart, as table 2 of SkillMAS has it. `harmful`: one type is hard for everybody, and a
specialist for it lacks a skill that all types share. `nothing wrong`: all types pass equally often,
and repairs do nothing.
"""

import argparse
import asyncio
import hashlib
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from baselines.memory_run import MemoryDirectory, MemoryLedger
from baselines.scripted_model import ScriptedModel

from evolvable_evolve.evolution.candidates.agent_files import MAIN
from evolvable_evolve.evolution.candidates.programs import (
    Program,
    ProgramPart,
    make_part,
    make_program,
    skill_owners,
)
from evolvable_evolve.evolution.ledger.run_reducer import Journal
from evolvable_evolve.evolution.ledger.run_state import RunState
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.proposers.proposer_model import ModelQuestion, ModelRole
from evolvable_evolve.evolution.run_config import RunSettings, SpendLimit
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.evolution.task import (
    ModelUsage,
    Rollout,
    ScorerSpec,
    Split,
    Task,
    Trial,
    TrialOutcome,
)
from evolvable_evolve.evolution.trials.budget import RunBudget
from evolvable_evolve.evolution.trials.measurement import TrialRequest
from evolvable_store.resource import Kind
from evolvable_tools.metrics import wilson_interval
from evolvable_tools.redaction.redactor import Redactor

DELTA, ROOM = 0.06, 6
"""What each skill beyond ROOM that an agent owns takes from its chance."""

_RULE = re.compile(r"^rule: (\S+)$", re.MULTILINE)
_TYPE = re.compile(r"^- Tasks of the type (\S+)\.$", re.MULTILINE)
_CHOOSE = re.compile(r"^## Choose when$(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def skill_part(name: str, *rules: str) -> ProgramPart:
    """Return a skill that carries these rules."""
    lines = "".join(f"rule: {rule}\n" for rule in rules) or "Be careful.\n"
    text = f"---\nname: {name}\ndescription: How {name} is done.\n---\n\n# {name}\n\n{lines}"
    return make_part(Kind.SKILL, name, {"SKILL.md": text.encode()})


def a_task(
    split: Split, number: int, task_type: str, needs: Sequence[str], chance: float, without: float
) -> Task:
    """Return a task of a type with the truth about it in its tags."""
    tags = (*(f"needs:{rule}" for rule in needs), f"chance:{chance}", f"without:{without}")
    name = f"{split}-{number:03}"
    digest = hashlib.sha256(name.encode()).hexdigest()
    return Task(
        name, f"Do {name}.", ScorerSpec("exact"), split, digest, "right", task_type, tags=tags
    )


Routes = tuple[Mapping[str, str], Mapping[str, int], Mapping[str, Mapping[str, str]]]
_ROUTES: dict[int, tuple[Program, str, Routes]] = {}


def known_routes(program: Program) -> tuple[Program, str, Routes]:
    """Return the routes of a program with its digest, which are computed once for each object."""
    found = _ROUTES.get(id(program))
    if found is None or found[0] is not program:
        if len(_ROUTES) > 200:
            _ROUTES.clear()
        found = _ROUTES[id(program)] = (program, program.digest, routes(program))
    return found


def routes(program: Program) -> Routes:
    """Return by task type who does it, by agent how many skills it owns, and by agent which skill
    carries a rule.
    """
    owned, doer = skill_owners(program), dict[str, str]()
    for part in program.parts:
        if part.kind is Kind.AGENT:
            chosen = _CHOOSE.search(part.texts["AGENT.md"])
            doer |= dict.fromkeys(_TYPE.findall(chosen[1]) if chosen else (), part.ref)
    rules = {
        agent: {
            rule: ref
            for ref in sorted(skills)
            for rule in _RULE.findall(program.by_ref[ref].texts["SKILL.md"])
        }
        for agent, skills in owned.items()
    }
    return doer, {agent: len(skills) for agent, skills in owned.items()}, rules


def true_chance(task: Task, program: Program) -> tuple[float, tuple[str, ...]]:
    """Return the chance of a task to pass, and the refs of the agent and the skills that do it."""
    _, _, (doer, sizes, rules) = known_routes(program)
    agent = doer.get(task.category, MAIN)
    told = dict(tag.rsplit(":", 1) for tag in task.tags if not tag.startswith("needs:"))
    needs = [tag.removeprefix("needs:") for tag in task.tags if tag.startswith("needs:")]
    used = [rules[agent][rule] for rule in needs if rule in rules[agent]]
    chance = float(told["chance"] if len(used) == len(needs) else told["without"])
    read = (*([agent] if agent != MAIN else []), *dict.fromkeys(used))
    return max(0.0, chance - DELTA * max(0, sizes[agent] - ROOM)), read


class InterferenceExecutor:
    """Does tasks by the law above; the draw is a hash of the seed, the task, the program and the
    repeat.
    """

    label = "simulated"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self.fingerprint = f"interference seed={seed}"

    def draw(self, task: Task, program: Program, repeat: int) -> tuple[bool, tuple[str, ...]]:
        """Return whether the task passes, and what was read."""
        chance, read = true_chance(task, program)
        drawn = hashlib.sha256(
            f"{self._seed}|{task.id}|{known_routes(program)[1]}|{repeat}".encode()
        ).digest()
        return int.from_bytes(drawn[:7], "big") < chance * (1 << 56), read

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return the answer; touches no files."""
        passed, read = self.draw(task, program, repeat)
        return Rollout(
            "right" if passed else "wrong",
            read,
            trace="simulated",
            usage=ModelUsage(1000, 50, 1, 0.0),
        )


def card(ref: str, types: Sequence[str]) -> dict[str, Any]:
    """Return a card whose boundary is these task types."""
    name = ref.partition(":")[2]
    return {
        "ref": ref,
        "description": f"Does {name}; hand it tasks of that sort.",
        "responsibility": f"It answers for {name}.",
        "choose_when": [f"Tasks of the type {one}." for one in types],
        "not_when": [],
        "rejected_neighbours": [{"ref": MAIN, "why": "It has too many skills."}],
        "coordination": "It hands the result back.",
    }


Repair = tuple[str, str, tuple[str, ...]]
"""What a proposer intends: create or edit, the name of the skill, and the rules that it then
carries.
"""


def repairer(repairs: Mapping[str, Sequence[Repair]]) -> ScriptedModel:
    """Return a model that proposes for the type that fails most the next of its repairs, again from
    the first.

    It writes the cards of agents with the boundary that it is asked for.
    """

    def propose(question: ModelQuestion) -> Mapping[str, Any]:
        failed = [one for one in question.data["evidence"] if one["result"] == "failed"]
        types = Counter(one["category"] for one in failed if one["category"] in repairs)
        found = max(sorted(types), key=lambda one: types[one], default="")
        there = {one["ref"] for one in question.data["resources"]}
        intents: list[dict[str, Any]] = []
        if found:
            known = [
                one for one in repairs[found] if one[0] == "edit" or f"skill:{one[1]}" not in there
            ]
            turn = len(question.data["history"])
            op, name, rules = known[turn % len(known)] if known else repairs[found][0]
            said = f"{' '.join(rules)} try {turn}"
            tasks = [one["task"] for one in failed if one["category"] == found]
            intents = [
                {
                    "op": op,
                    "ref": f"skill:{name}",
                    "tasks": tasks,
                    "modification": said,
                    "capability": name,
                }
            ]
        return {
            "diagnoses": [],
            "approaches": [],
            "intents": intents,
            "summary": found,
            "justification": "It failed.",
        }

    def build(question: ModelQuestion) -> Mapping[str, Any]:
        if "write" in question.data:
            types = question.data["task_types"]
            return {"cards": [card(ref, types) for ref in question.data["write"]]}
        [intent] = question.data["intents"]
        name, rules = (
            intent["ref"].partition(":")[2],
            intent["modification"].partition(" try ")[0].split(),
        )
        text = skill_part(name, *rules).texts["SKILL.md"] + f"Note {intent['modification']}.\n"
        if intent["op"] == "edit":
            [part] = question.data["resources"]
            text = part["files"][0]["text"] + f"Note {intent['modification']}.\n"
        return {
            "edits": [
                {
                    "op": intent["op"],
                    "ref": intent["ref"],
                    "files": [{"path": "SKILL.md", "text": text}],
                }
            ]
        }

    return ScriptedModel({ModelRole.PROPOSER: propose, ModelRole.BUILDER: build})


@dataclass(frozen=True)
class World:
    """Task types with their shares, what tasks of each need, and the repairs that are proposed for
    each.

    needs: for each type, shares of its tasks with the rules they need; the rest needs the first
    rule alone. chances: to pass with all rules, and without one.
    """

    name: str
    base: Program
    shares: Mapping[str, float]
    needs: Mapping[str, Sequence[tuple[float, tuple[str, ...]]]]
    chances: Mapping[str, tuple[float, float]]
    repairs: Mapping[str, Sequence[Repair]] = field(default_factory=dict)

    def tasks(self, split: Split, count: int) -> list[Task]:
        """Return so many tasks; the shares hold as nearly as they can."""
        found = []
        for task_type, share in self.shares.items():
            whole = round(count * share)
            for at in range(whole):
                place, needs = (at + 0.5) / whole, self.needs[task_type][-1][1]
                for part, rules in self.needs[task_type]:
                    if place < part:
                        needs = rules
                        break
                    place -= part
                number = len(found)
                found.append(a_task(split, number, task_type, needs, *self.chances[task_type]))
        return found


SMALL_RULES = 6


def transplant_world() -> World:
    """Return a world in which one type lacks rules, and main has two skills too many."""
    shares = {"alpha": 0.15, "beta": 0.15, "gamma": 0.15, "delta": 0.55}
    base = make_program(
        [
            skill_part("basics", *(f"{one}-1" for one in shares)),
            *(skill_part(f"seed-{number}") for number in range(7)),
        ]
    )
    small = tuple((0.1, ("delta-1", f"delta-{number}")) for number in range(3, 3 + SMALL_RULES))
    delta = ((0.24, ("delta-1", "delta-2")), *small, (1.0, ("delta-1",)))
    first: Repair = ("create", "delta-forms", ("delta-1", "delta-2"))
    more: list[Repair] = [
        ("create", f"delta-rule-{n}", (f"delta-{n}",)) for n in range(3, 3 + SMALL_RULES)
    ]
    needs = {one: ((1.0, (f"{one}-1",)),) for one in ("alpha", "beta", "gamma")}
    chances = dict.fromkeys(shares, (0.95, 0.0))
    return World(
        "transplant", base, shares, {**needs, "delta": delta}, chances, {"delta": (first, *more)}
    )


def harmful_world() -> World:
    """Return a world in which one type is hard for everybody, and a specialist for it lacks a skill
    that all need.
    """
    shares = dict.fromkeys(("alpha", "beta", "gamma"), 0.25) | {"delta": 0.25}
    base = make_program(
        [skill_part("basics", "basics"), skill_part("delta-forms", "delta-1"), skill_part("other")]
    )
    needs = dict.fromkeys(shares, ((1.0, ("basics",)),)) | {
        "delta": ((1.0, ("basics", "delta-1")),)
    }
    chances = dict.fromkeys(shares, (0.85, 0.0)) | {"delta": (0.35, 0.0)}
    return World(
        "harmful", base, shares, needs, chances, {"delta": (("edit", "delta-forms", ("nothing",)),)}
    )


def null_world(chance: float = 0.8) -> World:
    """Return a world in which all types pass equally often and no repair does anything."""
    shares = dict.fromkeys(("alpha", "beta", "gamma", "delta"), 0.25)
    base = make_program([skill_part("basics", "basics"), skill_part("forms"), skill_part("other")])
    needs = dict.fromkeys(shares, ((1.0, ("basics",)),))
    edits = {one: (("edit", "forms", (f"hint-{one}",)),) for one in shares}
    return World("nothing wrong", base, shares, needs, dict.fromkeys(shares, (chance, 0.0)), edits)


class _DrawnTrials:
    """Trials that are drawn at once."""

    def __init__(self, seed: int) -> None:
        self._executor = InterferenceExecutor(seed)

    async def measure(self, requests: Sequence[TrialRequest], *, batch: str) -> list[Trial]:
        """Return a trial for each request, in order."""
        return [self._trial(*request) for request in requests]

    def _trial(self, program: Program, task: Task, repeat: int) -> Trial:
        passed, read = self._executor.draw(task, program, repeat)
        outcome = TrialOutcome.PASS if passed else TrialOutcome.FAIL
        digest = known_routes(program)[1]
        key, usage = f"{digest} {task.id} {repeat}", ModelUsage(1000, 50, 1, 0.0)
        return Trial(
            key, task.id, digest, repeat, outcome, float(passed), usage, 0.0, "answer", read=read
        )


class _Sealed:
    """The sealed test."""

    def __init__(self, tests: Sequence[Task], seed: int) -> None:
        # Without an expected answer no canary is made of a task: there is no executor that could
        # cheat.
        self._tests, self._seed, self.look = (
            [replace(task, expected=None) for task in tests],
            seed,
            1,
        )

    @property
    def size(self) -> int:
        return len(self._tests)

    def describe_claim(self) -> str:
        return ""

    def open(self, run: str, finalist: str) -> tuple[Sequence[Task], int, _DrawnTrials]:
        return self._tests, self.look, _DrawnTrials(self._seed)


def searched(
    world: World,
    seed: int,
    iterations: int,
    sizes: tuple[int, int, int],
    brain: ScriptedModel | None = None,
) -> tuple[RunState, RunContext]:
    """Return a run of the product's loop in mode structure at its end, and its state.

    sizes: tasks of train, val and test. brain: who proposes; by default the repairs of the world.
    """
    train, val, test = (world.tasks(split, size) for split, size in zip(Split, sizes, strict=True))
    trials = round(len(test) * 3.25 + (iterations + 0.3) * len(val) / 0.7)
    settings = RunSettings(
        "simulated",
        executor={"kind": "command"},
        mode="structure",
        iterations=iterations,
        trials=trials,
        seed=seed,
    )
    folder, journal = MemoryDirectory(), Journal(MemoryLedger())  # type: ignore[arg-type]
    folder.store_program(world.base)
    journal.note(
        "run",
        run=folder.id,
        label="simulated",
        settings=settings.to_json(),
        tasks=[[task.id, task.split, task.category] for task in (*train, *val)],
        test_tasks=len(test),
        base=world.base.digest,
        size=world.base.size,
    )
    brain = brain or repairer(world.repairs)
    sealed: Any = _Sealed(test, seed)
    drawn: Any = _DrawnTrials(seed)
    limits = RunBudget(SpendLimit())
    run = RunContext(
        folder, journal, settings, train, val, sealed, drawn, brain, limits, Redactor()
    )
    asyncio.run(run_phases(run))
    return run.state, run


def true_mean(program: Program, tasks: Sequence[Task]) -> float:
    """Return the true share of tasks that pass under a program."""
    return sum(true_chance(task, program)[0] for task in tasks) / len(tasks)


ARMS = ("full", "seed", "library only", "agents only")


def transplanted(seed: Program, evolved: Program) -> dict[str, Program]:
    """Return the four arms: both evolved, neither, the skills alone, the agents alone."""

    def mixed(skills: Program, agents: Program) -> Program:
        parts = [part for part in skills.parts if part.kind is not Kind.AGENT]
        return make_program([*parts, *(part for part in agents.parts if part.kind is Kind.AGENT)])

    return dict(zip(ARMS, (evolved, seed, mixed(evolved, seed), mixed(seed, evolved)), strict=True))


def transplant(
    seed: int, iterations: int = 16, sizes: tuple[int, int, int] = (120, 240, 120)
) -> dict[str, float]:
    """Return the true mean of each arm after one run."""
    world = transplant_world()
    state, run = searched(world, seed, iterations, sizes)
    tests = world.tasks(Split.TEST, 400)
    return {
        arm: true_mean(one, tests)
        for arm, one in transplanted(world.base, run.program(state.best)).items()
    }


@dataclass(frozen=True, slots=True)
class Expansion:
    """What became of changes of agents in a run: proposed, admitted in the search, promoted;
    actions: all but keep.
    """

    proposed: int
    admitted: int
    promoted: bool
    actions: tuple[str, ...]


def expansion(
    world: World, seed: int, iterations: int = 6, sizes: tuple[int, int, int] = (80, 80, 80)
) -> Expansion:
    """Return what becomes of changes of agents in one run."""
    state, run = searched(world, seed, iterations, sizes)
    edits = [record for record in state.structures if record["edit"] is not None]
    ended = {record["iteration"]: record["decision"] for record in state.iterations}
    admitted = sum(ended.get(record["iteration"]) == "admitted" for record in edits)
    final = (
        run.program(state.verdict["candidate"])
        if state.verdict["verdict"] == "PROMOTE"
        else world.base
    )
    changed = set(skill_owners(final)) != set(skill_owners(world.base))
    return Expansion(
        len(edits), admitted, changed, tuple(str(record["action"]) for record in edits)
    )


def share_text(count: int, of: int) -> str:
    """Return a share with its interval."""
    low, high = wilson_interval(count, of)
    return f"{count} of {of} = {count / max(1, of):.3f} (95 % {low:.3f} to {high:.3f})"


def parse_options(description: str | None) -> argparse.Namespace:
    """Return the options of the command line: how many seeds and how many transplants."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=400)
    parser.add_argument("--transplants", type=int, default=40)
    parser.add_argument(
        "--quick", action="store_true", help="20 seeds and 4 transplants; for a look"
    )
    options = parser.parse_args()
    if options.quick:
        options.seeds, options.transplants = 20, 4
    return options


def print_means(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Print the mean of each arm over the transplants, and return the means."""
    means = {arm: sum(one[arm] for one in found) / len(found) for arm in ARMS}
    print("transplant: " + ", ".join(f"{arm} {mean:.3f}" for arm, mean in means.items()))
    return means


def main() -> None:
    """Print the figures; the exit code says whether they are those that are promised."""
    options = parse_options(__doc__)
    print("simulated")
    found = [transplant(seed) for seed in range(options.transplants)]
    means = print_means(found)
    ordered = sum(
        all(one[a] > one[b] for a, b in zip(ARMS, ARMS[1:], strict=False)) for one in found
    )
    print(f"full > seed > library only > agents only: {share_text(ordered, len(found))}")
    harmful = [expansion(harmful_world(), seed) for seed in range(options.seeds)]
    tried = [one for one in harmful if one.proposed]
    refused = sum(not one.promoted for one in tried)
    print(f"harmful expansion proposed: {share_text(len(tried), len(harmful))}")
    print(
        "of these not admitted in the search: "
        f"{share_text(sum(not one.admitted for one in tried), len(tried))}"
    )
    print(f"of these not promoted: {share_text(refused, len(tried))}")
    kept = []
    for chance in (0.5, 0.8):
        calm = [expansion(null_world(chance), seed) for seed in range(options.seeds)]
        still = sum(not one.actions for one in calm)
        kept.append(still)
        print(f"nothing wrong, chance {chance}: kept {share_text(still, len(calm))}")
    good = [
        list(means.values()) == sorted(means.values(), reverse=True),
        bool(tried) and refused >= 0.95 * len(tried),
        min(kept) >= 0.99 * options.seeds,
    ]
    sys.exit(not all(good))


if __name__ == "__main__":
    main()

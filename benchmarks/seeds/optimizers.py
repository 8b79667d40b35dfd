"""The optimizers of Autogenesis on the code set: textgrad, Reinforce++ and GRPO, beside greedy,
before one gate.

    python benchmarks/seeds optimizers [--quick]

All figures are scripted. Answers come from the stand-in of the code set, whose repeats differ, and
are executed in the sandbox of trials, where this machine has one. Proposer, critic and builder are
a script behind OpenAI's protocol on the loopback interface, asked by the product's own client. The
script sees what a model would see, and reads it simply: without a fenced block, or with one that
does not compile, an answer lacks the rule `format`; with an endless loop or a huge list the rule
`limits`. Of other wrong answers it guesses a rule, unless a better answer to the same task stands
beside it: then it names `edges`. Of the rules that it guesses from, one helps.
"""

import ast
import asyncio
import hashlib
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve_runs import program, running
from model_api import Asked, ModelApi, Reply, chats

from evolvable_evolve.evolution.executors.base import UNCONFINED, CommandHost
from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.ledger.run_reducer import read_records
from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.proposers.proposer_model import ModelSpec
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.task import Split, TaskSet
from evolvable_evolve.evolution.tasks.reader import read_taskset, scorer_files
from evolvable_tools.llm.endpoint import ModelEndpoint
from seeds.autogenesis import ReadingExecutor, leaks, sandbox_host
from seeds.code_set.build import taskset_files, write_stand_in

OPTIMIZERS = ("greedy", "textgrad", "reinforce_pp", "grpo")
GUESSES = ("edges", "brevity", "style")
"""What the script takes for the missing rule where an answer does not show it; the first helps."""

RULES = (*GUESSES, "format", "limits")
"""All rules that the script knows: three that help and two that do nothing."""

ITERATIONS, TRIALS = 5, 300
RULE = re.compile(r"rule: ([a-z]+)")
FENCED = re.compile(r"```python\n(.*?)```", re.DOTALL)


class CodeModel(ModelApi):
    """A script that proposes, criticises and writes rules, by the answers that it is shown."""

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        data = json.loads(asked.body["messages"][-1]["content"])
        if "trial" in data:
            said = _criticise(data)
        elif "variable" in data:
            said = _rewrite(data)
        else:
            said = _build(data) if "intents" in data else _propose(data)
        return chats(json.dumps(said))


def read_answer(trial: Mapping[str, Any], better: bool = False) -> str:
    """Return the rule that a failed answer seems to lack, '' where there is none to read."""
    text = str(trial.get("answer", ""))
    if not text:
        return ""
    code = FENCED.search(text)
    try:
        ast.parse(code[1] if code else "not a block")
    except SyntaxError:
        return "format"
    if "while True:\n        pass" in text or "10**9" in text:
        return "limits"
    return (
        GUESSES[0] if better else GUESSES[hashlib.sha256(text.encode()).digest()[0] % len(GUESSES)]
    )


def choose_rule(votes: Iterable[str], tried: Iterable[str]) -> str:
    """Return the rule with most votes of those that were not tried, else the next one
    that was not.
    """
    count, known = Counter(filter(None, votes)), set(tried)
    fresh = sorted(
        (rule for rule in count if rule not in known), key=lambda rule: (-count[rule], rule)
    )
    return next(iter(fresh), next((rule for rule in RULES if rule not in known), RULES[-1]))


def _propose(data: Mapping[str, Any]) -> dict[str, Any]:
    pairs = {one["task"] for one in data.get("contrasts", ())}
    failed = [one for one in data["evidence"] if one["result"] == "failed"]
    votes = [read_answer(one, one["task"] in pairs) for one in failed]
    tried = RULE.findall(json.dumps([data["resources"], data["history"]]))
    said = f"rule: {choose_rule(votes, tried)}"
    intent = {
        "op": "edit",
        "ref": "skill:forms",
        "tasks": [one["task"] for one in failed],
        "modification": said,
    }
    return {
        "diagnoses": [],
        "approaches": [],
        "intents": [intent],
        "summary": said,
        "justification": "They failed.",
    }


def _build(data: Mapping[str, Any]) -> dict[str, Any]:
    [intent], [resource] = data["intents"], data["resources"]
    text = f"{resource['files'][0]['text']}{intent['modification']}\n"
    return {
        "edits": [
            {"op": "edit", "ref": intent["ref"], "files": [{"path": "SKILL.md", "text": text}]}
        ]
    }


def _criticise(data: Mapping[str, Any]) -> dict[str, Any]:
    rule = read_answer(data["trial"]) if data["trial"]["result"] == "failed" else ""
    file = next(one["id"] for one in data["variables"] if one["id"].endswith("SKILL.md"))
    return {
        "change": bool(rule),
        "critique": f"It lacks the rule: {rule}" if rule else "",
        "variables": [file],
    }


def _rewrite(data: Mapping[str, Any]) -> dict[str, Any]:
    value = str(data["variable"]["value"])
    tried = RULE.findall("\n".join([value, *(str(one["value"]) for one in data["tried"])]))
    return {
        "value": f"{value}rule: {choose_rule(RULE.findall(' '.join(data['critiques'])), tried)}\n"
    }


@dataclass(frozen=True)
class Optimized:
    """What came of a run of one optimizer.

    kept: the rules of the finalist. better, worse: tasks of the sealed test. samples: trials that
    the optimizer ran to compare. questions: by role. leaks: where something hidden stood in a
    prompt or in a question.
    """

    optimizer: str
    candidates: int
    kept: list[str]
    verdict: Mapping[str, Any]
    trials: int
    samples: int
    questions: Mapping[str, int]
    leaks: list[str]
    seconds: float

    @property
    def row(self) -> str:
        """A line of the table."""
        said = self.verdict
        test = said.get("against_base") or {}
        asked = ", ".join(f"{count} {role}" for role, count in sorted(self.questions.items()))
        cells = (
            self.optimizer,
            self.candidates,
            ", ".join(self.kept) or "none",
            said["verdict"],
            f"{test.get('gained', 0)} and {test.get('lost', 0)} of {test.get('n', 0)}",
            f"{said['p']:.2g}" if said.get("p") is not None else "",
            self.trials,
            self.samples,
            asked,
            f"{self.seconds:.0f} s",
        )
        return f"| {' | '.join(map(str, cells))} |"


HEAD = (
    "| optimizer | candidates | rules of the finalist | verdict | better and worse | p | trials | "
    "of them compared | questions | by the clock |\n|---|---|---|---|---|---|---|---|---|---|"
)


def optimize(
    folder: Path, optimizer: str, host: CommandHost = UNCONFINED, iterations: int = ITERATIONS
) -> Optimized:
    """Run one optimizer on the code set, from a skill without a rule to the verdict of the sealed
    test.
    """
    taskset, base, began = (
        read_taskset("code-set", taskset_files()),
        program("Write Python."),
        time.monotonic(),
    )
    files, splits = scorer_files(taskset), {split: taskset.of(split) for split in Split}
    reading = ReadingExecutor(
        CommandExecutor(write_stand_in(folder / "stand_in", varies=True), host=host, free=True)
    )
    settings = RunSettings(
        "code-set",
        executor={"kind": "command"},
        optimizer=optimizer,
        iterations=iterations,
        batch=(4, 2),
        trials=TRIALS,
        cost_rise=100.0,
    )
    with CodeModel() as api:
        endpoint = ModelEndpoint("local", "openai-chat", "script", api.url)
        model = ModelSpec("local", folder, scripted=True, endpoint=endpoint)
        with running(
            folder / "run", base, model, splits, settings, reading, files=files, host=host
        ) as run:
            asyncio.run(run_phases(run))
            state, records = run.state, read_records(run.folder)
            best = "\n".join(
                text for part in run.program(state.best).parts for text in part.texts.values()
            )
        questions = [json.dumps(asked.body) for asked in api.asked]
    trials = [one for one in records if one["type"] == "trial" and not one["trial"]["cached"]]
    roles = Counter(one["role"] for one in records if one["type"] == "asked")
    return Optimized(
        optimizer,
        sum(one.digest != state.base for one in state.candidates.values()),
        RULE.findall(best),
        dict(state.verdict),
        len(trials),
        sum(one["batch"].endswith("/samples") for one in trials),
        roles,
        leaks(reading, taskset) + question_leaks(questions, taskset),
        time.monotonic() - began,
    )


def question_leaks(questions: Iterable[str], taskset: TaskSet) -> list[str]:
    """Return the tasks of which a question to the model holds what it must not: an answer, or a
    task not for training.

    What the scorer says publicly of a training task is for the model to see.
    """
    text = "\n".join(questions)
    hidden = {task.id: [(task.expected or "").split()[0]] for task in taskset.tasks}
    for task in taskset.tasks:
        hidden[task.id] += [f"Problem {task.id}."] if task.split is not Split.TRAIN else []
    return [task for task, marks in hidden.items() if any(mark in text for mark in marks)]


def main(*, quick: bool = False) -> bool:
    """Print a line for each optimizer; return whether nothing hidden was shown and something was
    found by all.
    """
    host, where = sandbox_host()
    found = []
    print(
        f"\nscripted, {where}, 16 train, 16 validation, 28 test problems, {TRIALS} trials "
        f"planned\n\n{HEAD}"
    )
    with tempfile.TemporaryDirectory(prefix="evolvable-seeds-") as made:
        for name in OPTIMIZERS[-1:] if quick else OPTIMIZERS:
            (Path(made) / name).mkdir()
            found.append(optimize(Path(made) / name, name, host, 2 if quick else ITERATIONS))
            print(found[-1].row, flush=True)
    print(
        "\nhidden in prompts or questions: "
        f"{', '.join(part for one in found for part in one.leaks) or 'none'}"
    )
    return all(not one.leaks and one.kept for one in found)

"""A machine with the example task set in its library, and a stand-in for a model that proposes
known edits.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from command_line import CommandLine
from model_api import Asked, ModelApi, Reply, says
from order_emails import ANY_NUMBER, FAXES, FOLDER, INVOICES, SKILL

EDITS: Mapping[str, str] = {
    "Read faxes too": FAXES,
    "Take any number": ANY_NUMBER,
    "Read invoices too": INVOICES,
}
"""What is proposed, in turn: useless, harmful, useful; and the rules that each adds."""

EXECUTOR = "orders"
"""The name that the person gave to the command that does the tasks."""

NAMED = f'[executors.{EXECUTOR}]\ncommand = ["{{python}}", "-I", "-S", "run.py"]\n'
"""The person's configuration."""


class EvolutionPlace(CommandLine):
    """Where a person has the skill order-fields, and a quarter of the tasks to measure it on, of
    all sorts.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.configure(NAMED)
        tasks = (FOLDER / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
        environment, skills = root / "in/order-emails", root / "skills"
        self.tasks = [json.loads(task) for task in tasks[2::4]]
        environment.mkdir(parents=True)
        for name in ("ENVIRONMENT.md", "run.py"):
            (environment / name).write_bytes((FOLDER / name).read_bytes())
        (environment / "tasks.jsonl").write_text("\n".join(tasks[2::4]), encoding="utf-8")
        self.save(skills, "order-fields", (SKILL / "SKILL.md").read_text(encoding="utf-8"))
        self("import", environment.parent, "--kind", "environment", "--accept", code=None)
        self("init", skills)

    def begin(self, *options: object, **env: str) -> str:
        """Begin a run by hand-off or whoever the options name, and return its id."""
        arguments = (
            "--program",
            "skill:order-fields",
            "--executor",
            EXECUTOR,
            "--free",
            "--concurrency",
            2,
            "--test-repeats",
            1,
            "--json",
        )
        ran = self("evolve", "start", "environment:order-emails", *arguments, *options, **env)
        return str(ran.json["run"])

    def status(self, run: str = "") -> dict[str, Any]:
        """How far a run is."""
        return dict(self("evolve", "status", *([run] if run else []), "--json").json)

    def until(
        self, holds: Callable[[dict[str, Any]], object], seconds: float = 60
    ) -> dict[str, Any]:
        """Return the status as soon as something holds of it."""
        deadline = time.monotonic() + seconds
        while not holds(status := self.status()):
            assert time.monotonic() < deadline, (status, self.logs())
            time.sleep(0.2)  # each look is a whole command
        return status

    def logs(self) -> str:
        """What the drivers wrote."""
        return "\n".join(
            log.read_text(encoding="utf-8") for log in self.home.glob("evolve/*/driver.log")
        )


def answer_to(data: Mapping[str, Any], turns: Sequence[str] = tuple(EDITS)) -> dict[str, Any]:
    """Return what the stand-in answers to the data of a question, be it a proposer's or a
    builder's.

    turns: what it proposes, one after the other.
    """
    if "intents" in data:
        [intent] = data["intents"]
        rules = EDITS[intent["modification"]]
        change = {"path": "SKILL.md", "old": "## Rules\n\n", "new": f"## Rules\n\n{rules}"}
        return {"edits": [{"op": "edit", "ref": intent["ref"], "changes": [change]}]}
    said = turns[len(data.get("history", ())) % len(turns)]
    failed = [one["task"] for one in data["evidence"] if one["result"] == "failed"]
    intent = {"op": "edit", "ref": "skill:order-fields", "tasks": failed, "modification": said}
    return {
        "diagnoses": [],
        "approaches": [],
        "intents": [intent],
        "summary": said,
        "justification": "They failed.",
    }


class Proposer(ModelApi):
    """The Messages API on this machine, with a model behind it that follows the script."""

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        return says(json.dumps(answer_to(json.loads(asked.body["messages"][0]["content"]))))

    def environment(self) -> dict[str, str]:
        """What has the command line ask this stand-in."""
        return {"ANTHROPIC_API_KEY": "sk-ant-test"}

    def configure(self, place: CommandLine) -> None:
        """Has the person's configuration name the address of this stand-in."""
        place.configure(f'{NAMED}\n[models]\nanthropic = "{self.url}"\n')


def texts_of(asked: Sequence[Asked]) -> str:
    """Everything that was ever sent, as one text."""
    return "\n".join(json.dumps(one.body, ensure_ascii=False) for one in asked)

"""The example task set that needs no model, and edits to its skill of which it is known what they
do.
"""

import hashlib
import importlib.util
from pathlib import Path
from types import ModuleType

from evolvable_evolve.evolution.candidates.programs import (
    Program,
    ProgramPart,
    make_part,
    make_program,
)
from evolvable_evolve.evolution.task import ModelUsage, Rollout, Task, TaskSet
from evolvable_evolve.evolution.tasks.locate import read_taskset_path
from evolvable_store.resource import Kind

FOLDER = Path(__file__).parents[2] / "examples/order-emails"
SKILL = FOLDER.parent / "order-fields"

INVOICES = """\
- order: `PO-(\\d+)`
- date: `Invoice date (\\d\\d)\\.(\\d\\d)\\.(\\d{4})` -> `\\3-\\2-\\1`
- total: `Amount due: EUR (\\d+),(\\d{3}\\.\\d\\d)` -> `\\1\\2`
- total: `Amount due: EUR (\\d+\\.\\d\\d)`
"""
"""Useful: solves every invoice, a quarter of the tasks."""

RECEIPTS = """\
- order: `purchase #(\\d+)`
- date: `on (\\d\\d)/(\\d\\d)/(\\d{4})` -> `\\3-\\1-\\2`
- total: `came to \\$(\\d+),(\\d{3}\\.\\d\\d)` -> `\\1\\2`
- total: `came to \\$(\\d+\\.\\d\\d)`
"""
"""Useful: solves every receipt, a fifth of the tasks."""

FAXES = "- date: `Faxed on (\\d{4})\\.(\\d\\d)\\.(\\d\\d)` -> `\\1-\\2-\\3`\n"
"""Useless: nobody sends a fax."""

ANY_NUMBER = "- order: `(?i)order (?:no\\. )?(\\d+)`\n- total: `(?i)total: ([\\d.]+)`\n"
"""Harmful when it stands first: in a changed order it finds the old number and the subtotal."""


def task_set() -> TaskSet:
    """The 40 + 40 + 100 tasks."""
    return read_taskset_path(FOLDER)


def skill_text(*blocks: str) -> str:
    """Return the document of the skill with these rules above its own."""
    text = (SKILL / "SKILL.md").read_text(encoding="utf-8")
    return text.replace("## Rules\n\n", f"## Rules\n\n{''.join(blocks)}")


def skill(*blocks: str) -> ProgramPart:
    """Return the skill with these rules above its own."""
    return make_part(Kind.SKILL, "order-fields", {"SKILL.md": skill_text(*blocks).encode()})


def program(*blocks: str) -> Program:
    """Return the program of the skill alone, with these rules above its own."""
    return make_program([skill(*blocks)])


def runner() -> ModuleType:
    """Return run.py as a module."""
    spec = importlib.util.spec_from_file_location("order_emails_run", FOLDER / "run.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class RulesHere:
    """Runs the program's rules as run.py does, in this process: the same results in a hundredth of
    the time.
    """

    label = "command run.py"

    def __init__(self) -> None:
        self._runner = runner()
        self.fingerprint = f"rules {hashlib.sha256((FOLDER / 'run.py').read_bytes()).hexdigest()}"

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Return what the rules of the program find in the task's message."""
        import json

        rules = [
            rule
            for part in program.parts
            for rule in self._runner.parsed(part.files["SKILL.md"].decode())
        ]
        found, said = self._runner.fields(task.prompt.partition("\n\n")[2], rules)
        trace = "\n".join(said)
        read = tuple(part.ref for part in program.parts)
        return Rollout(json.dumps(found), read, trace=trace, usage=ModelUsage(cost=0.0))

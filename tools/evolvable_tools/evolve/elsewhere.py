"""Clients and commands that run in a backend's processes: whoever drives and is killed leaves none of them behind."""

import json
from dataclasses import dataclass
from pathlib import Path

from evolvable_tools.evolve.attempt import Attempt, Job
from evolvable_tools.evolve.backends.backend import Backend
from evolvable_tools.evolve.brains.brain import Answer, Brain, NoAnswer, Question
from evolvable_tools.evolve.executor import Executor
from evolvable_tools.evolve.program import Program
from evolvable_tools.evolve.rollout import Outcome, Rollout, Score
from evolvable_tools.evolve.task import ScorerSpec, Split, Task

_PATIENCE = 3600.0  # seconds after which whoever thinks is given up; it has its own, much shorter ones


@dataclass(frozen=True, slots=True)
class Unscored:
    """Scores nothing: the answer itself is what is wanted."""

    async def __call__(self, task: Task, rollout: Rollout, workspace: Path) -> Score:
        """Returns 0 for whatever it is."""
        return Score(0.0)

    def digest(self, task: Task) -> str:
        """Returns the same for every task."""
        return "unscored"


class Elsewhere:
    """Runs one task at a time in a backend, where nothing else runs meanwhile."""

    def __init__(self, executor: Executor, backend: Backend) -> None:
        self._executor, self._backend = executor, backend
        self.fingerprint, self.label = executor.fingerprint, executor.label

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        """Returns what came of the task; it has a workspace of its own beside the one given."""
        job = Job(self._executor, Unscored(), task, program, repeat, place=workspace.parent)
        attempt = await _performed(self._backend, job)
        if attempt.outcome is not None and attempt.rollout.outcome is None:
            return Rollout("", outcome=attempt.outcome, detail=attempt.detail)
        return attempt.rollout


class BrainElsewhere:
    """Asks somebody who can be pickled, in a backend where nothing else runs meanwhile. place: for its workspaces."""

    def __init__(self, brain: Brain, backend: Backend, place: Path) -> None:
        self._brain, self._backend, self._place = brain, backend, place
        self.name, self.label = brain.name, brain.label

    async def ask(self, question: Question) -> Answer:
        """Returns the answer. Raises NoAnswer."""
        asking = _Asking(self._brain, question)
        task = Task(question.id, "", ScorerSpec("exact"), Split.TRAIN, question.id, timeout_s=_PATIENCE)
        attempt = await _performed(self._backend, Job(asking, Unscored(), task, Program(), 0, place=self._place))
        rollout = attempt.rollout
        if attempt.outcome is Outcome.REFUSED:
            text, hint = json.loads(rollout.detail)
            raise NoAnswer(text, hint, rollout.usage)
        if attempt.outcome is not None:
            raise NoAnswer(f"{self.name} gave no answer: {attempt.detail}.", "Continue the run: it is asked again.")
        return Answer(json.loads(rollout.output), rollout.usage, self.name)


@dataclass(slots=True)
class _Asking:
    """A question as something that is run."""

    brain: Brain
    question: Question
    fingerprint: str = "asking"
    label: str = "asking"

    async def run(self, task: Task, program: Program, repeat: int, workspace: Path) -> Rollout:
        try:
            answer = await self.brain.ask(self.question)
        except NoAnswer as error:
            said = json.dumps([str(error), error.hint])
            return Rollout("", usage=error.usage, outcome=Outcome.REFUSED, detail=said)
        return Rollout(json.dumps(answer.value), usage=answer.usage)


async def _performed(backend: Backend, job: Job) -> Attempt:
    ticket = backend.submit(job)
    try:
        [(_, attempt)] = await backend.poll()
    except BaseException:
        await backend.cancel([ticket])
        raise
    return attempt

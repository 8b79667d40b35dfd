"""Textual gradients: critiques of single trials, collected by variable, and one rewrite of each
variable that they name.

The TextGrad instance of Autogenesis (arXiv 2604.15034, E.3.5), with these differences: a critique
goes to the variables that it names, only training tasks are criticised, no critique that repeats a
task is used, and the gate decides whether a rewrite is kept. The buffers are records of the ledger:
the last ten critiques of each variable since the last commit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

from evolvable_evolve.evolution import search_operators
from evolvable_evolve.evolution.candidates import Program, ProgramPart, make_part, make_program
from evolvable_evolve.evolution.ledger import CandidateDecision, LedgerRecord, RunState
from evolvable_evolve.evolution.optimizers.optimizer import Optimizer
from evolvable_evolve.evolution.proposers import (
    MAX_CRITIQUE,
    Evidence,
    NeedsAnswer,
    critic_question,
    make_masker,
    one_line,
    rewrite_question,
    shorten,
)
from evolvable_evolve.evolution.run_context import RunContext
from evolvable_evolve.variables import ResourceVariable, apply_variables, list_variables
from evolvable_store import File

FILE = "file"


def program_variables(run: RunContext, program: Program) -> list[ResourceVariable]:
    """Return the variables of a program that the run may change, those of a part in the order of
    its files.

    Frozen parts and sections have none.
    """
    variables: list[ResourceVariable] = []
    for part in program.parts:
        if part.kind in run.mask.kinds and part.ref not in run.mask.fixed and not part.is_frozen:
            of_part = list_variables(part, _wrap_files(part))
            variables += [variable for variable in of_part if variable.evolvable]
    return variables


def smallest_variables(variables: Sequence[ResourceVariable]) -> list[ResourceVariable]:
    """Return variables that do not overlap and together cover most: the sections of a file, else
    the whole file, and descriptions last.
    """
    # A file with sections is covered by them, except for its text before the first.
    divided = {file_of(variable.id) for variable in variables if variable.role == "section"}
    smallest = [
        variable
        for variable in variables
        if (variable.role == FILE) is not (file_of(variable.id) in divided)
    ]
    return sorted(smallest, key=lambda variable: variable.role == "description")


def file_of(variable: str) -> str:
    """Return the id of the file that a variable is in."""
    return variable.partition("#")[0]


def overlap(first: str, second: str) -> bool:
    """Return whether two variables have text in common: they are one, or one is the file of the
    other.
    """
    if first == second:
        return True
    return file_of(first) == file_of(second) and not ("#" in first and "#" in second)


def set_program_variables(program: Program, values: Mapping[str, str]) -> Program:
    """Return the program with these variables set.

    Raises InvalidArgument, Refused as `apply_variables`.
    """
    parts = []
    for part in program.parts:
        own = {name: value for name, value in values.items() if name.startswith(f"{part.ref}/")}
        if own:
            after = apply_variables(part, _wrap_files(part), own)
            contents = {path: file.data for path, file in after.items()}
            part = make_part(part.kind, part.name, contents)
        parts.append(part)
    return make_program(parts)


def _wrap_files(part: ProgramPart) -> dict[str, File]:
    return {path: File(data) for path, data in part.files.items()}


MAX_GRADIENTS = 10
"""Critiques in the buffer of a variable at most; the oldest is dropped."""

MAX_TRIED = 8_000
"""Characters of a rejected value that a later rewrite is shown."""

QUIET_ROUNDS = 2
"""Rounds in a row in which the critic asks for no change, after which it has converged."""

_NO_CANDIDATE = (CandidateDecision.NO_PROPOSAL, CandidateDecision.NO_FAILURES)
"""Decisions on an iteration without a candidate."""

# An indecisive rewrite may be good.
_TURNED_DOWN = (CandidateDecision.REJECTED, CandidateDecision.REFUSED, CandidateDecision.DUPLICATE)
"""Decisions against a rewrite itself."""


@dataclass(frozen=True, slots=True)
class VariableGradient:
    """The textual gradient of one variable: the critiques in its buffer, oldest first."""

    variable: str
    critiques: tuple[str, ...]


def textgrad(run: RunContext) -> Optimizer:
    """Return the optimizer by textual gradients."""
    return Optimizer(
        partial(_reflect, run),
        partial(_select, run),
        partial(_rewrite, run),
        converged=partial(_check_convergence, run),
    )


async def _reflect(
    run: RunContext, traces: Sequence[Evidence], program: Program
) -> Sequence[VariableGradient]:
    """Ask for a critique of every trial (Loss and Backward), and return the buffers with a
    new one.
    """
    variables = program_variables(run, program)
    waiting: NeedsAnswer | None = None
    for trace in traces:
        question = critic_question(trace, variables, redactor=run.redactor)
        try:
            answer = await run.ask(question)
        # With a hand-off all questions of a round are open at once.
        except NeedsAnswer as error:
            waiting = waiting or error
            continue
        _record_gradient(run, trace, answer, program, variables)
    if waiting is not None:
        raise waiting
    new = {
        name
        for record in run.state.gradients
        if record["iteration"] == run.state.iteration
        for name in record["to"]
    }
    buffers = {
        name: [run.folder.read_json(artifact) for artifact in artifacts]
        for name, artifacts in gradient_buffers(run.state).items()
    }
    return [
        VariableGradient(name, tuple(map(str, critiques)))
        for name, critiques in buffers.items()
        if name in new
    ]


def _record_gradient(
    run: RunContext,
    evidence: Evidence,
    answer: Mapping[str, Any],
    program: Program,
    variables: Sequence[ResourceVariable],
) -> None:
    """Record a critic's answer on a trial and the variables that it goes to, where the ledger does
    not have them yet.
    """
    state, task = run.state, evidence.task
    recorded = {(record["iteration"], record["task"]) for record in state.gradients}
    # A continued run comes here again.
    if (state.iteration, task.id) in recorded:
        return
    hide = make_masker(task.expected, task.prompt)
    critique = hide(str(answer["critique"]).strip()[:MAX_CRITIQUE]) if answer["change"] else ""
    # Words that the program has already are no leak.
    texts = "\n".join(text for part in program.parts for text in part.texts.values())
    leaks = run.corpus.leaks(critique, texts)
    variable_ids = {variable.id for variable in variables}
    chosen = [name for name in dict.fromkeys(map(str, answer["variables"])) if name in variable_ids]
    # A critique that names no variable goes to all of them: to the smallest that cover all text.
    to = chosen or [variable.id for variable in smallest_variables(variables)]
    used = bool(critique) and not leaks
    run.note(
        "gradient",
        iteration=state.iteration,
        task=task.id,
        passed=evidence.passed,
        change=bool(critique),
        to=to if used else [],
        named=len(chosen),
        artifact=run.folder.store_json(critique) if used else "",
        dropped=str(leaks[0]) if leaks else "",
    )


def gradient_buffers(state: RunState) -> dict[str, list[str]]:
    """Return by variable the names of the critiques in its buffer: the last ones since the last
    commit, each once.
    """
    since, buffers = _find_last_commit(state), dict[str, list[str]]()
    for record in state.gradients:
        for name in record["to"] if record["iteration"] > since else ():
            buffer = buffers.setdefault(name, [])
            # A repeated critique moves to the end, so that a buffer has each once.
            if record["artifact"] in buffer:
                buffer.remove(record["artifact"])
            buffer.append(record["artifact"])
            del buffer[:-MAX_GRADIENTS]
    return buffers


def _find_last_commit(state: RunState) -> int:
    """Return the number of the last iteration that was accepted, 0 without one."""
    accepted = (
        record["iteration"]
        for record in state.iterations
        if record["decision"] == CandidateDecision.ADMITTED
    )
    return max(accepted, default=0)


async def _select(
    run: RunContext, program: Program, gradients: Sequence[VariableGradient]
) -> Sequence[VariableGradient]:
    """Return the variables with most critiques, as many as a proposal may edit, and none twice."""
    chosen: list[VariableGradient] = []
    for gradient in sorted(gradients, key=lambda gradient: -len(gradient.critiques)):
        if not any(overlap(gradient.variable, other.variable) for other in chosen):
            chosen.append(gradient)
    return chosen[: search_operators.allowed_edits(run)]


async def _rewrite(
    run: RunContext, program: Program, changes: Sequence[VariableGradient]
) -> Program:
    """Ask for a new value of each variable, record the program with them as the candidate, and
    return it.
    """
    # A continued run has the candidate in the ledger, and asks nothing again.
    if (done := run.state.step.get("built")) is not None:
        return run.program(done["candidate"])
    variables = {variable.id: variable for variable in program_variables(run, program)}
    values: dict[str, str] = {}
    for change in changes:
        tried = _list_rejected(run, change.variable)
        variable = variables[change.variable]
        question = rewrite_question(variable, change.critiques, tried, redactor=run.redactor)
        value = str((await run.ask(question))["value"])
        if value != variable.value:
            values[change.variable] = value
    after = set_program_variables(program, values) if values else program
    if after.digest == program.digest:
        return program
    # Checked before the candidate is recorded; Improve checks again.
    run.mask.check(program, after)
    newest = next(change.critiques[-1] for change in changes if change.variable in values)
    now = [record for record in run.state.gradients if record["iteration"] == run.state.iteration]
    answered = tuple(record["task"] for record in now if set(record["to"]) & values.keys())
    operations, summary = [f"rewrite {name}" for name in values], one_line(newest)[:500]
    search_operators.record_candidate(run, program, after, operations, summary, answered)
    return after


def _list_rejected(run: RunContext, variable: str) -> list[dict[str, Any]]:
    """Return the values of a variable that were tried since the last commit and rejected, with
    their outcome.
    """
    state, rejected = run.state, list[dict[str, Any]]()
    since = _find_last_commit(state)
    for digest in state.history:
        candidate = state.candidates[digest]
        if candidate.iteration <= since or candidate.decision is CandidateDecision.ADMITTED:
            continue
        variables = program_variables(run, run.program(digest))
        values = {own.id: own.value or "" for own in variables}
        if f"rewrite {variable}" in candidate.operations and variable in values:
            value = shorten(values[variable], MAX_TRIED // 2, MAX_TRIED // 2)
            gain = {} if candidate.delta is None else {"difference": round(candidate.delta, 4)}
            rejected.append({"value": value, "outcome": str(candidate.decision), **gain})
    return rejected[-MAX_GRADIENTS:]


def _check_convergence(run: RunContext) -> str:
    """Return why the search ends here, '' while it goes on.

    The reasons: no variable may be rewritten, the critic asks for no change, or the gate rejects
    every rewrite.
    """
    state, most = run.state, run.settings.rejections
    since = _find_last_commit(state)
    if not program_variables(run, run.program(state.best)):
        return "no variable of the program may be rewritten"
    rounds: dict[int, list[LedgerRecord]] = {}
    for record in state.gradients:
        if record["iteration"] > since:
            rounds.setdefault(record["iteration"], []).append(record)
    last = list(rounds.values())[-QUIET_ROUNDS:]
    has_change = any(record["change"] for records in last for record in records)
    if len(last) == QUIET_ROUNDS and not has_change:
        return f"the critic asked for no change in {QUIET_ROUNDS} rounds"
    decisions = [record["decision"] for record in state.iterations]
    on_rewrites = [decision for decision in decisions if decision not in _NO_CANDIDATE]
    refused = len(list(takewhile(lambda end: end in _TURNED_DOWN, reversed(on_rewrites))))
    if most and refused >= most:
        return f"the gate rejected {refused} rewrites in a row"
    return ""

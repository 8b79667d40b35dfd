"""The resource protocol of Autogenesis (RSPL): its operators over the six kinds of resources.

Most of the 19 operators of its table 7 are verbs of the library under another name;
docs/operators.md shows the same table. Two are here: build a resource, and run one. A tool runs as
a command in the sandbox of trials.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evolvable_evolve.agent_runs import AgentHost, last_item
from evolvable_evolve.evolution import (
    CommandHost,
    Rollout,
    Split,
    TaskSetScorer,
    ToolSandbox,
    encode_input,
    load_taskset,
    refuse_untrusted,
    registered_scorers,
    run_tool_command,
    scorer_files,
)
from evolvable_evolve.sandbox import Sandbox, SandboxChoice, sandbox_of
from evolvable_store import Actor
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.resource import Kind, Ref
from evolvable_tools import Caller, Library, check_served, enclose
from evolvable_tools.llm import NamedCommands
from evolvable_tools.verbs import (
    FOLDER,
    PYTHON,
    Loaded,
    ToolVersion,
    build_version,
    fill_prompt,
    get_resource,
    load_skill,
    runnable_tool,
)


@dataclass(frozen=True, slots=True)
class RsplOperator:
    """One operator.

    verb: its name in the registry of verbs. refused: kind -> why there is no such thing.
    """

    name: str
    group: str
    verb: str
    refused: Mapping[Kind, str] = field(default_factory=dict)


_SEALED = "a folder of a task set would show the answers of its sealed test"

OPERATORS: Mapping[str, RsplOperator] = {
    definition.name: definition
    for definition in (
        RsplOperator("init", "lifecycle", "init"),
        RsplOperator("build", "lifecycle", "rspl build", {Kind.ENVIRONMENT: _SEALED}),
        RsplOperator("register", "lifecycle", "update"),
        RsplOperator("unregister", "lifecycle", "remove"),
        RsplOperator("get", "retrieval", "get"),
        RsplOperator("get_info", "retrieval", "rspl info"),
        RsplOperator("list", "retrieval", "list"),
        RsplOperator("retrieve", "retrieval", "find"),
        RsplOperator("get_state", "retrieval", "rspl state"),
        RsplOperator("update", "versioning", "update"),
        RsplOperator("copy", "versioning", "update"),
        RsplOperator("restore", "versioning", "restore"),
        RsplOperator("get_variables", "versioning", "rspl variables"),
        RsplOperator("set_variables", "versioning", "rspl set"),
        RsplOperator("run", "run", "rspl run"),
        RsplOperator("save_to_json", "serialisation", "export"),
        RsplOperator("load_from_json", "serialisation", "import"),
        RsplOperator("save_contract", "serialisation", "rspl save-contract"),
        RsplOperator("load_contract", "serialisation", "rspl load-contract"),
    )
}
"""Name -> operator, in the order of the paper."""


def check_operator(name: str, ref: Ref) -> None:
    """Raise Refused where there is no such operator for resources of this kind."""
    if reason := OPERATORS[name].refused.get(ref.kind):
        raise Refused(
            f"{name} is refused for {ref}: {reason}.",
            "docs/operators.md says what there is for each kind.",
        )


NOTHING_RAN = "The agent did not run, because no task is given: this is its document."
"""The note on an agent that is run without a task."""


@dataclass(frozen=True)
class RunHost:
    """The host of resources that run.

    environment: of this process. choice: of the sandbox. scorers: the commands that a person
    registered. agents: runs an agent, None where none may run.
    """

    environment: Mapping[str, str]
    choice: SandboxChoice = field(default_factory=SandboxChoice)
    scorers: NamedCommands | None = None
    agents: AgentHost | None = None

    def sandbox(self, what: str) -> Sandbox:
        """Return the sandbox of this machine.

        Raise Refused where none works: nothing is run without.
        """
        chosen = sandbox_of(self.choice)
        if chosen.sandbox is None:
            hint = "Install bubblewrap."
            if chosen.why:
                hint = f"`evolvable doctor` says why: {chosen.why}"
            raise Refused(f"{what} runs in a sandbox only, and none works on this machine.", hint)
        return chosen.sandbox


@dataclass(frozen=True)
class ResourceRun:
    """The result of a run. text: the output, or the document. value: the output as JSON, where it
    is JSON.

    score: of an environment. use_id: to report the outcome with, '' where nothing was counted as a
    use. note: why nothing ran, '' where something did or where there is nothing to run.
    """

    ref: str
    version: int
    kind: str
    text: str
    value: Any = None
    score: float | None = None
    use_id: str = ""
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class BuiltResource:
    """A version as a folder. path: the folder, which is named by the hash of the files."""

    ref: str
    version: int
    path: str
    files: int


def build_resource(library: Library, caller: Caller, ref: Ref) -> BuiltResource:
    """Write a version's files into a folder of its own in the library's home, and return the
    folder.

    Raise Refused for an environment, and for an environment file that an agent is not given;
    NoSuchResource, NoSuchVersion.
    """
    check_operator("build", ref)
    store, unversioned, scopes = library.store, ref.at(None), caller.scopes
    # The second call raises the error, which names similar resources.
    head = store.head_or_none(unversioned, scopes) or store.head(unversioned, scopes)
    number = ref.version or head.latest
    manifest = store.manifest(head, number)
    # Each file is checked before the folder is written: it must not hold what get_resource would
    # refuse.
    for path, entry in manifest.items():
        check_served(library, caller, head.ref, number, path, entry.sha256)
    folder = build_version(library, head, number)
    return BuiltResource(str(head.ref), number, str(folder), len(manifest))


async def run_resource(
    library: Library, caller: Caller, ref: Ref, inputs: Mapping[str, Any], host: RunHost
) -> ResourceRun:
    """Run a resource with this input, and return the result.

    A tool's command runs in the sandbox. A prompt is filled in. An environment scores an output. An
    agent does a task in a run of its own. Of a skill or a memory, and of an agent without a task,
    the document is returned. Raise Refused, InvalidArgument, NoSuchResource, ToolFailed,
    ScorerError.
    """
    if ref.kind is Kind.TOOL:
        return await run_tool(library, caller, ref, inputs, host)
    if ref.kind is Kind.ENVIRONMENT:
        return await _score(library, caller, ref, inputs, host)
    if ref.kind is Kind.AGENT and inputs:
        return await _run_agent(library, caller, ref, inputs, host)
    if inputs and ref.kind is not Kind.PROMPT:
        raise InvalidArgument(f"{ref} takes no input.", "It is a document to read.")
    read = _fill if ref.kind is Kind.PROMPT else _read
    return await asyncio.to_thread(read, library, caller, ref, inputs)


async def _run_agent(
    library: Library, caller: Caller, ref: Ref, inputs: Mapping[str, Any], host: RunHost
) -> ResourceRun:
    """Have an agent do a task, and return its answer.

    The result's `value` holds the run and the state of its one item.
    """
    task, executor = inputs.get("task"), inputs.get("executor", "")
    has_others = bool(set(inputs) - {"task", "executor"})
    if not isinstance(task, str) or not isinstance(executor, str) or has_others:
        raise InvalidArgument(
            f"{ref} takes a task, and an executor.", 'Such as {"task": "Write to Ada."}.'
        )
    if ref.version or host.agents is None:
        raise InvalidArgument(
            f"{ref} does not run.", "An agent runs in its newest version that is trusted."
        )
    began = time.monotonic()
    status = await host.agents.run(library, caller, ref, task, executor)
    item = last_item(status)
    worked = Ref.parse(item.get("agent", str(ref)))
    text = status.result or item.get("summary", "") or status.why or "There is no result."
    if caller.actor is not Actor.HUMAN:
        text = enclose(text, f"result of {worked}", "an agent wrote it")
    value = {"run": status.run, "state": item.get("state", "open"), "files": item.get("files", [])}
    seconds = round(time.monotonic() - began, 3)
    return ResourceRun(
        str(worked.at(None)), worked.version or 0, Kind.AGENT, text, value, seconds=seconds
    )


def _fill(library: Library, caller: Caller, ref: Ref, inputs: Mapping[str, Any]) -> ResourceRun:
    if ref.version or ref.scope:
        raise InvalidArgument(
            f"{ref} names a version or a scope.", "The newest version of a prompt is filled in."
        )
    if wrong := [str(name) for name, value in inputs.items() if not isinstance(value, str)]:
        raise InvalidArgument(
            f"The argument {ascii(wrong[0][:60])} is not a text.",
            "Arguments of a prompt are texts.",
        )
    head = library.store.head(ref, caller.scopes)
    text = fill_prompt(library, caller, ref.name, inputs)
    return ResourceRun(str(head.ref), head.version or 0, head.kind, text)


def _read(library: Library, caller: Caller, ref: Ref, _: Mapping[str, Any]) -> ResourceRun:
    reader: Callable[..., Loaded] = get_resource if ref.kind is Kind.MEMORY else load_skill
    loaded = reader(library, caller, ref)
    text = loaded.text or ""
    if loaded.marked and caller.actor is not Actor.HUMAN:
        text = enclose(text, f"{loaded.path} of {loaded.ref}@{loaded.version}", loaded.notice)
    note = NOTHING_RAN if ref.kind is Kind.AGENT else ""
    return ResourceRun(
        loaded.ref, loaded.version, ref.kind, text, use_id=loaded.use_id or "", note=note
    )


async def _score(
    library: Library, caller: Caller, ref: Ref, inputs: Mapping[str, Any], host: RunHost
) -> ResourceRun:
    """Return the score of an output of a train task.

    Outputs of other tasks are not scored: a score would tell of the sealed test.
    """
    identity, output = inputs.get("task"), inputs.get("output")
    has_others = set(inputs) != {"task", "output"}
    if has_others or not isinstance(identity, str) or not isinstance(output, str):
        raise InvalidArgument(
            f"{ref} takes the id of a task, and an output.",
            'Such as {"task": "t1", "output": "42"}.',
        )
    taskset, version = await asyncio.to_thread(load_taskset, library, caller, ref)
    await asyncio.to_thread(refuse_untrusted, library, caller, ref, taskset)
    task = next((candidate for candidate in taskset.tasks if candidate.id == identity), None)
    if task is None:
        raise InvalidArgument(
            f"{ref} has no task {ascii(identity[:80])}.",
            "`evolvable evolve taskset list` shows its tasks.",
        )
    # Scores of validation and test tasks would let an agent search for their answers.
    if task.split is not Split.TRAIN:
        raise Refused(
            f"Task {task.id} is not in train; only train tasks are scored here.",
            "A run measures the others.",
        )
    sandbox = None
    if task.scorer.type == "command":
        sandbox = await asyncio.to_thread(host.sandbox, f"The scorer of {ref}")
    scorer = TaskSetScorer(
        scorer_files(taskset),
        CommandHost(host.environment, sandbox, (library.store.home,)),
        registered=registered_scorers([task], host.scorers),
    )
    began = time.monotonic()
    score = await scorer(task, Rollout(output))
    return ResourceRun(
        str(ref.at(None)),
        version,
        ref.kind,
        score.feedback,
        score=score.value,
        seconds=time.monotonic() - began,
    )


async def run_tool(
    library: Library, caller: Caller, ref: Ref, inputs: Mapping[str, Any], host: RunHost
) -> ResourceRun:
    """Run the command of a tool with this input, and return its output. Raise as `run_resource`.

    The input is JSON on stdin, checked against the tool's schema. The command runs without a shell
    in a workspace of its own, without the network, the library and the home. It runs only where a
    person approved the version.
    """
    tool, command, folder, data = await asyncio.to_thread(_prepare, library, caller, ref, inputs)
    name = f"{tool.ref}@{tool.version}"
    sandbox = await asyncio.to_thread(host.sandbox, name)
    inside = ToolSandbox(sandbox, host.environment, (library.store.home,))
    began = time.monotonic()
    text = await run_tool_command(name, tool.spec, command, folder, data, inside)
    value = None
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
    # After the run, and of the version that ran: it is evidence for that version.
    use = await asyncio.to_thread(load_skill, library, caller, Ref.parse(tool.ref).at(tool.version))
    use_id, seconds = use.use_id or "", round(time.monotonic() - began, 3)
    return ResourceRun(
        tool.ref, tool.version, Kind.TOOL, text, value, use_id=use_id, seconds=seconds
    )


def _prepare(
    library: Library, caller: Caller, ref: Ref, inputs: Mapping[str, Any]
) -> tuple[ToolVersion, tuple[str, ...], Path, bytes]:
    """Return the approved version of a tool, its command, the folder of its files, and the encoded
    input.
    """
    tool = runnable_tool(library, caller, ref)
    data = encode_input(f"{tool.ref}@{tool.version}", tool.spec, inputs)
    word = tool.spec.argv[0]
    if not word.startswith((PYTHON, FOLDER)) and not tool.program:
        raise InvalidArgument(
            f"{tool.ref} runs {ascii(word[:80])}, which is not on this machine.", "Install it."
        )
    tool_ref, store, scopes = Ref.parse(tool.ref), library.store, caller.scopes
    # `head_or_none` first: a resource that was removed a moment ago is built all the same.
    head = store.head_or_none(tool_ref, scopes) or store.head(tool_ref, scopes)
    folder = build_version(library, head, tool.version)
    words = [tool.program or word, *tool.spec.argv[1:]]
    return tool, tuple(part.replace(FOLDER, str(folder)) for part in words), folder, data

"""Workers: an agent with its own skills does one item in a workspace, on a trial backend.

The program is read from the library at each dispatch, so that the newest commit is used. An agent
that is not trusted never runs, nor does one that wants tools which a worker may not use.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from evolvable_evolve.ags.improvement import CommittedPart
from evolvable_evolve.ags.plan import PlanItem
from evolvable_evolve.ags.worker_files import OUTPUTS, FileCollector
from evolvable_evolve.evolution import (
    CLIENTS,
    CommandHost,
    Executor,
    HostContext,
    ModelUsage,
    Program,
    ProgramPart,
    RegisteredScorer,
    RunDirectory,
    ScorerSpec,
    Split,
    Task,
    TaskSet,
    TaskSetScorer,
    TrialAttempt,
    TrialJob,
    TrialOutcome,
    executor_kind,
    load_program,
    make_executor,
    make_part,
    make_program,
    parse_strict_json,
)
from evolvable_store import Actor, Head, Principal, parse_document
from evolvable_store.errors import EvolvableError, NoSuchResource, Refused
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_tools import (
    AuthorKind,
    Caller,
    FileAuthor,
    Library,
    agent_skills,
    enclose,
    out_of_force,
    version_authorship,
)
from evolvable_tools.llm import ModelAttempt
from evolvable_tools.verbs import update_resource

# Every later question to the planner repeats the summaries.
MAX_SUMMARY = 2_000
"""Bytes of a worker's summary of an item; the whole answer is a file of the run."""

MAX_JUDGED = 64_000
"""Characters of one file that a judge may be shown; it reads less of a whole result."""

INPUTS = "inputs"
"""The folder of a workspace with the files of the items that are needed."""

ANSWER_FILE = "answer.txt"
"""The name of a whole answer among the files of an item."""

FAILED_MARK = "FAILED:"
"""The beginning of an answer of a worker that could not do the item."""

OWN_REFUSAL = "refused by the agent"
"""The outcome of an item whose worker says that it failed."""

CHECK_FAILED = "the check failed"
"""The outcome of an item whose worker took it for done, and whose check failed."""

# Executors are made for a task set; here each item is a task of its own.
_NO_TASKS = TaskSet("ags", (), {}, "", "")


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The result of a dispatch.

    outcome: why it failed, '' where it did not. read: refs of skills that were read. retry:
    infrastructure failed, which says nothing about the agent. attempts: requests to a model behind
    an API. passed: the result of the item's check, None without one.
    """

    ok: bool
    outcome: str
    read: tuple[str, ...]
    summary: str
    files: tuple[Mapping[str, Any], ...]
    usage: ModelUsage
    wall: float
    lost: bool
    retry: bool
    attempts: tuple[ModelAttempt, ...] = ()
    passed: bool | None = None


@dataclass(frozen=True)
class PreparedWork:
    """A dispatch that can be submitted.

    agent: the ref with the version. skills: the refs that the worker has. left_out: skills of the
    agent that are not trusted, or removed. changed: refs of the parts that the run changed for
    itself.
    """

    job: TrialJob
    agent: str
    skills: tuple[str, ...]
    left_out: tuple[str, ...]
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerProgram:
    """The present program of a worker.

    agent, skills: refs with the version. versions: of the parts, by their refs. changed: refs of
    the parts that the run changed for itself. tools: empty where the executor has none to restrict.
    """

    program: Program
    agent: str
    skills: tuple[str, ...]
    left_out: tuple[str, ...]
    versions: Mapping[str, int]
    changed: tuple[str, ...]
    tools: tuple[str, ...]


class Workers:
    """Makes the jobs of one run, and reads their results.

    spec: the executor. agents: refs that the run may use. memory: refs of memories that workers
    read. seconds: for one item. checks: the commands that may check items, by name. committed:
    returns the parts of the program that the run changed for itself.
    """

    def __init__(
        self,
        library: Library,
        caller: Caller,
        host: HostContext,
        folder: RunDirectory,
        spec: Mapping[str, Any],
        *,
        agents: Sequence[str],
        memory: Sequence[str] = (),
        seconds: float = 600.0,
        checks: Mapping[str, RegisteredScorer] | None = None,
        committed: Callable[[], Mapping[str, CommittedPart]] = dict,
    ) -> None:
        self._checks, self._committed = dict(checks or {}), committed
        self._library, self._caller, self._host, self._folder = library, caller, host, folder
        self._spec, self._agents, self._memory, self._seconds = spec, agents, memory, seconds
        self._executors: dict[tuple[str, ...], Executor] = {}

    @property
    def starts_commands(self) -> bool:
        """Whether the executor starts processes."""
        return executor_kind(self._spec).runs_commands

    def prepare(
        self,
        item: PlanItem,
        attempt: int,
        needed: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]],
        program: Program | None = None,
    ) -> PreparedWork:
        """Return the job of an item under the newest commit.

        needed: by id of an item that it needs, the summary and the files. program: the program of a
        trial instead. Raises Refused for an agent that may not run, NoSuchResource for a removed
        one.
        """
        opened = self.open_program(item.agent)
        files, prompt = self._prepare_task(item, needed)
        task = self.task(item, prompt)
        host = CommandHost.of(self._host)
        check = TaskSetScorer(host=host, registered=self._checks) if item.check else None
        job = TrialJob(
            self._open_executor(opened.tools),
            FileCollector(check),
            task,
            worker_program(program or opened.program, self._spec),
            attempt,
            files,
            self._folder.workspaces,
            host=host,
        )
        return PreparedWork(job, opened.agent, opened.skills, opened.left_out, opened.changed)

    def open_program(self, agent: str) -> WorkerProgram:
        """Return the present program of an agent: the newest versions, with the run's own changes.

        A change holds for the version that it was made from: a newer one in the library ends it.
        Raises as `prepare`.
        """
        agent_head, main = open_agent(self._library, self._caller, agent, self._agents)
        tools = worker_tools(self._spec, str(agent_head.ref), main)
        skills, left_out = self._find_skills(main)
        memory = map(self._open_memory, self._memory)
        heads = [agent_head, *skills, *memory]
        # By version: the checked version runs, whatever is committed meanwhile.
        refs = [head.ref.at(head.latest) for head in heads]
        program, _ = load_program(self._library, self._caller, refs)
        versions = {f"{head.kind}:{head.name}": head.latest for head in heads}
        committed = self._committed()
        changed = tuple(ref for ref, part in committed.items() if versions.get(ref) == part.version)
        if changed:
            new = {ref: self._folder.program(committed[ref].program).by_ref[ref] for ref in changed}
            program = make_program(new.get(part.ref, part) for part in program.parts)
        version, *owned = (f"{head.ref}@{head.latest}" for head in (agent_head, *skills))
        return WorkerProgram(
            program, version, tuple(owned), tuple(left_out), versions, changed, tools
        )

    def task(self, item: PlanItem, prompt: str = "") -> Task:
        """Return an item as a task.

        prompt: all that the worker is told, by default the subtask alone.
        """
        text = prompt or item.subtask
        digest = sha256(f"{self._folder.id}\n{item.id}\n{text}".encode()).hexdigest()
        scorer = ScorerSpec("command", {"name": item.check}) if item.check else ScorerSpec("exact")
        return Task(
            item.id, text, scorer, Split.TRAIN, digest, category="ags", timeout_s=self._seconds
        )

    def _open_executor(self, tools: tuple[str, ...]) -> Executor:
        """Return the executor with these tools, made once."""
        if tools not in self._executors:
            spec = {**self._spec, "tools": list(tools)} if tools else self._spec
            folder = self._folder.path / "executor"
            self._executors[tools] = make_executor(spec, self._host, _NO_TASKS, folder)
        return self._executors[tools]

    def _find_skills(self, main: bytes) -> tuple[list[Head], list[str]]:
        """Return the agent's own skills that may be used, and the refs of the others.

        main: the agent's main file.
        """
        skills, left_out = list[Head](), list[str]()
        for name in agent_skills(parse_document(main).fields):
            ref = Ref(Kind.SKILL, name)
            saved = self._library.store.head_or_none(ref, self._caller.scopes)
            if saved is not None:
                # Files that a person saved in a folder count as committed.
                self._library.take_in([saved.ref])
            head = self._library.store.head_or_none(ref, self._caller.scopes)
            is_there = head is not None and head.version is not None
            if head is not None and is_there and _other_author(self._library, head) is None:
                skills.append(head)
            else:
                left_out.append(f"skill:{name}")
        return skills, left_out

    def _open_memory(self, text: str) -> Head:
        head = self._library.store.head(Ref.parse(text, Kind.MEMORY), self._caller.scopes)
        if _other_author(self._library, head) is not None:
            raise Refused(
                f"{head.ref} is not trusted, so no worker reads it.",
                "A person trusts it, or leaves it out.",
            )
        return head

    def _prepare_task(
        self, item: PlanItem, needed: Mapping[str, tuple[str, Sequence[Mapping[str, Any]]]]
    ) -> tuple[dict[str, bytes], str]:
        """Return the files of the workspace and the prompt of the task."""
        files, lines = dict[str, bytes](), [item.subtask]
        for name, (summary, outputs) in needed.items():
            inputs = {
                f"{INPUTS}/{name}/{file['path']}": self._folder.read_artifact(file["sha256"])
                for file in outputs
            }
            files |= inputs
            paths = "".join(f"\n- {path}" for path in inputs)
            source = f"result of item {name}"
            lines.append(enclose(f"{summary}{paths}", source, "an agent of this run wrote it"))
        lines.append(
            f"Files that belong to the result go below the folder {OUTPUTS} of the folder you "
            "work in. End with a short summary of the result. If you cannot do it, begin that "
            f"answer with {FAILED_MARK} and the reason."
        )
        if self._memory:
            memories = [Ref.parse(ref, Kind.MEMORY).name for ref in self._memory]
            names = ", ".join(f"{OUTPUTS}/memory/{name}.md" for name in memories)
            lines.append(
                f"Lines that a memory should have go into {names}; the user decides about them."
            )
        return files, "\n\n".join(lines)

    def read(self, attempt: TrialAttempt) -> WorkResult:
        """Return the result of a job; its files and its whole answer are stored in the run."""
        rollout = attempt.rollout
        outcome = attempt.outcome or rollout.outcome
        summary = self._library.redact(rollout.output.strip())
        files, left_out, check = self._read_outputs(attempt)
        if len(summary.encode("utf-8", "replace")) > MAX_SUMMARY:
            files.append(self._store_file(ANSWER_FILE, summary.encode("utf-8", "replace")))
        if left_out:
            summary = f"{summary}\n[left out: {'; '.join(left_out)[:400]}]"
        if outcome is not None:
            why = self._library.redact(attempt.detail or rollout.detail) or str(outcome)
            summary = f"{outcome}: {why}"
        refused = outcome is None and summary.startswith(FAILED_MARK)
        passed = check.get("passed") if outcome is None and not refused else None
        if passed is False:
            reason = self._library.redact(check["text"])
            summary = f"The check says that it is wrong: {reason}\n{summary}"
        if "trouble" in check:
            summary = f"{summary}\n[not checked: {self._library.redact(check['trouble'])[:400]}]"
        ok = outcome is None and not refused and passed is not False
        why = "" if ok else str(outcome or (OWN_REFUSAL if refused else CHECK_FAILED))
        return WorkResult(
            ok,
            why,
            rollout.read,
            shorten_bytes(summary),
            tuple(files),
            rollout.usage,
            rollout.wall,
            attempt.lost,
            retry=outcome is TrialOutcome.INFRA_ERROR,
            attempts=rollout.attempts,
            passed=passed,
        )

    def result_text(self, summary: str, files: Sequence[Mapping[str, Any]]) -> str:
        """Return the result of an item for a judge: the summary, and the texts of the files."""
        parts = [summary]
        for file in files:
            if sum(map(len, parts)) > MAX_JUDGED:
                break
            try:
                text = self._folder.read_artifact(file["sha256"]).decode("utf-8")[:MAX_JUDGED]
            except UnicodeDecodeError:
                text = f"({file['size']:,} bytes that are no text)"
            parts.append(f"File {file['path']}:\n{self._library.redact(text)}")
        return "\n\n".join(parts)

    def propose_memory(self, item: str, files: Sequence[Mapping[str, Any]]) -> list[str]:
        """Propose the lines that a worker left for memories; return a line for each memory.

        A worker reads memories and changes none: new lines of `memory/NAME.md` wait for a person,
        after the present ones.
        """
        notes = []
        for text in self._memory:
            head = self._library.store.head(Ref.parse(text, Kind.MEMORY), self._caller.scopes)
            left = next((file for file in files if file["path"] == f"memory/{head.name}.md"), None)
            if left is None:
                continue
            try:
                lines = self._folder.read_artifact(left["sha256"]).decode("utf-8", "replace")
                number = self._propose_lines(head, item, lines)
            except EvolvableError as error:
                notes.append(f"{head.ref} was not proposed: {error.text}")
                continue
            if number is not None:
                notes.append(f"{head.ref}: proposal {number}")
        return notes

    def _propose_lines(self, head: Head, item: str, left: str) -> int | None:
        """Return the proposal with these lines, None where all of them are there.

        An earlier proposal of this item is not made again.
        """
        path = main_file(Kind.MEMORY, head.name)
        head, _ = self._library.latest(head)
        present = self._library.store.file(head, path).data.decode("utf-8", "replace")
        existing, lines = set(present.splitlines()), dict.fromkeys(left.splitlines())
        more = [line for line in lines if line.strip() and line not in existing]
        reason = f"item {item} of run {self._folder.id}"
        about = self._library.store.backend.proposals.about(head.ref)
        proposed = next((proposal.id for proposal in about if proposal.reason == reason), None)
        if proposed is not None or not more:
            return proposed
        text = "\n".join([present.rstrip("\n"), *map(self._library.redact, more)]) + "\n"
        return update_resource(
            self._library,
            worker_author(self._caller),
            head.ref,
            reason,
            files={path: text},
            expected_version=head.version,
            propose=True,
        ).proposal_id

    def propose_part(self, ref: str, part: CommittedPart, reason: str) -> str:
        """Propose a part that the run changed to the library, once, and return a line about it."""
        head = self._library.store.head(Ref.parse(ref), self._caller.scopes)
        about = self._library.store.backend.proposals.about(head.ref)
        proposed = next((proposal.id for proposal in about if proposal.reason == reason), None)
        if proposed is None:
            before = self._library.store.files(head, part.version)
            after = self._folder.program(part.program).by_ref[ref].files
            files = {
                path: data
                for path, data in after.items()
                if path not in before or before[path].data != data
            }
            gone = dict.fromkeys(path for path in before if path not in after)
            proposed = update_resource(
                self._library,
                worker_author(self._caller),
                head.ref,
                reason,
                files={**files, **gone},
                expected_version=part.version,
                propose=True,
            ).proposal_id
        return f"{ref} waits for a person as proposal {proposed}"

    def _read_outputs(
        self, attempt: TrialAttempt
    ) -> tuple[list[dict[str, Any]], list[str], Mapping[str, Any]]:
        if attempt.score is None:
            return [], [], {}
        evidence = parse_strict_json(attempt.score.evidence)
        packed: Mapping[str, str] = evidence["files"]
        files = [self._store_file(path, base64.b64decode(text)) for path, text in packed.items()]
        return files, list(evidence["left_out"]), evidence.get("check", {})

    def _store_file(self, path: str, data: bytes) -> dict[str, Any]:
        return {"path": path, "sha256": self._folder.store_artifact(data), "size": len(data)}


def open_agent(
    library: Library, caller: Caller, text: str, among: Sequence[str] | None = None
) -> tuple[Head, bytes]:
    """Return an agent that may work, with its main file. among: refs that may be named.

    Raises Refused for an agent that is not trusted, NoSuchResource.
    """
    ref = Ref.parse(text, Kind.AGENT)
    is_agent = ref.kind is Kind.AGENT and ref.version is None
    if not is_agent or (among is not None and text not in among):
        raise Refused(
            f"{ascii(text[:80])} is no agent of this run.",
            "Name agents by their refs, without a version.",
        )
    # A person may have just saved the agent's file: that version is checked and run.
    library.take_in([library.store.head(ref, caller.scopes).ref])
    head = library.store.head(ref, caller.scopes)
    if head.version is None:
        raise NoSuchResource(f"{head.ref} was removed.", "Restore it, or name another agent.")
    if (author := _other_author(library, head)) is not None:
        line = out_of_force(str(head.ref), "agent", author)
        raise Refused(f"{head.ref}@{head.latest} is not trusted, so it does not run: {line}")
    return head, library.store.file(head, main_file(Kind.AGENT, head.name)).data


def worker_author(caller: Caller) -> Caller:
    """Return the author of the changes that a run makes: always an agent."""
    # Also in a run that a person began: the texts of its workers are never signed for the person.
    return replace(caller, actor=Actor.AGENT, principal=Principal.AGENT, via="ags", signer=None)


def _other_author(library: Library, head: Head) -> FileAuthor | None:
    """Return the author of a resource that is not trusted, None for one that a plan may use."""
    authorship = version_authorship(library, head, head.latest)
    if authorship.stands or authorship.kind is AuthorKind.YOU:
        return None
    return FileAuthor(authorship.kind, authorship.by)


def worker_tools(spec: Mapping[str, Any], agent: str, main: bytes) -> tuple[str, ...]:
    """Return the tools of a worker as this agent, () where the executor has none to restrict.

    They are never more than the executor allows. Raises Refused where the agent asks for more, or
    for fewer from an executor that cannot be restricted.
    """
    fields = parse_document(main).fields
    requested = _parse_tools(fields.get("tools"))
    disallowed = _parse_tools(fields.get("disallowedTools")) or ()
    kind = str(spec.get("kind"))
    allowed = tuple(spec.get("tools", ())) or tuple(CLIENTS.get(kind, {}).get("tools", ()))
    if not allowed:
        return ()
    hint = "Change the agent's tools, or use another executor."
    if requested is not None and (more := [name for name in requested if name not in allowed]):
        text = f"{agent} wants {', '.join(more)[:200]}, which its worker may not use."
        raise Refused(text, hint)
    chosen = allowed if requested is None else [name for name in allowed if name in requested]
    tools = tuple(name for name in chosen if name not in disallowed)
    if not tools:
        raise Refused(f"{agent} leaves its worker no tool.", hint)
    if tools != allowed and kind != "claude":
        raise Refused(f"{kind} cannot be held to the tools of {agent}.", "Use claude:MODEL for it.")
    return tools


def _parse_tools(value: object) -> list[str] | None:
    """Return the names of the tools in a field, without their arguments; None without the field."""
    texts = value.split(",") if isinstance(value, str) else value
    if not isinstance(texts, list):
        return None
    return [str(text).partition("(")[0].strip() for text in texts if str(text).strip()]


def worker_program(program: Program, spec: Mapping[str, Any]) -> Program:
    """Return the program that the executor installs.

    A command gets the agent's files. A model gets the text of the agent's file as a prompt: hooks,
    servers and other settings of the file never reach the client.
    """
    if executor_kind(spec).agents is None:
        return program
    return make_program(
        _as_prompt(part) if part.kind is Kind.AGENT else part for part in program.parts
    )


def _as_prompt(agent: ProgramPart) -> ProgramPart:
    body = parse_document(agent.main or b"").body.strip()
    text = f"---\nname: {agent.name}\ndescription: The agent of this worker.\n---\n\n{body}\n"
    files = {main_file(Kind.PROMPT, agent.name): text.encode()}
    return make_part(Kind.PROMPT, agent.name, files)


def shorten_bytes(text: str, most: int = MAX_SUMMARY) -> str:
    """Return a text of at most `most` bytes of UTF-8, cut at its end."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode()
    # The ellipsis takes three bytes. A character that is cut in its middle is left out.
    return data[: most - 4].decode("utf-8", "ignore") + "…"

"""Workers: what a dispatch runs. An agent with its own skills does one item in a workspace, on a
trial backend.

The program is read from the library at the dispatch, so a change that was committed a moment ago is
used. An agent that nobody whom the user trusts answers for never runs, nor does one that wants
tools which a worker may not use.
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
"""Bytes of what a worker says of an item; the whole answer is a file of the run."""

MAX_JUDGED = 64_000
"""Characters of one file that a judge may be shown; it reads less of a whole result."""

INPUTS = "inputs"
"""The folder of a workspace with the files of the items that are needed."""

ANSWER_FILE = "answer.txt"
"""The name of a whole answer among the files of an item."""

FAILED_MARK = "FAILED:"
"""How an answer begins that says that the item could not be done."""

OWN_REFUSAL = "refused by the agent"
"""Why an item failed of which the worker says so itself."""

CHECK_FAILED = "the check failed"
"""Why an item failed whose worker took it for done."""

# Executors are made for a task set; here each item is a task of its own.
_NO_TASKS = TaskSet("ags", (), {}, "", "")


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The result of a dispatch. outcome: why it failed, '' where it did not. read: refs of skills
    that were read.

    retry: infrastructure failed, which says nothing about the agent. attempts: requests to a model
    behind an API. passed: what the item's check says, None where it has none, or where none could
    be had.
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
    """A dispatch that can be submitted. agent: the ref with the version. skills: those that the
    worker has.

    left_out: skills of the agent that nobody whom the user trusts answers for, or that are gone.
    changed: refs of the parts that the run changed for itself.
    """

    job: TrialJob
    agent: str
    skills: tuple[str, ...]
    left_out: tuple[str, ...]
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class WorkerProgram:
    """What a worker is made of now. agent, skills: refs with the version. versions: of the parts,
    by their refs.

    changed: refs of the parts that the run changed for itself. tools: empty where the executor has
    none to restrict.
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
    read. seconds: for one item. checks: the commands that items may be checked by, by name.
    committed: returns the parts of the program that the run changed for itself.
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
        """Return the job of an item under the newest commit. needed: by item the summary and files
        of what it needs.

        program: what the worker is made of instead, for a trial. Raises Refused for an agent that
        may not run, NoSuchResource for one that is gone.
        """
        found = self.open_program(item.agent)
        files, prompt = self._prepare_task(item, needed)
        task = self.task(item, prompt)
        host = CommandHost.of(self._host)
        check = TaskSetScorer(host=host, registered=self._checks) if item.check else None
        job = TrialJob(
            self._executor(found.tools),
            FileCollector(check),
            task,
            worker_program(program or found.program, self._spec),
            attempt,
            files,
            self._folder.workspaces,
            host=host,
        )
        return PreparedWork(job, found.agent, found.skills, found.left_out, found.changed)

    def open_program(self, agent: str) -> WorkerProgram:
        """Return what a worker of an agent is made of now: the newest versions, with what the run
        changed for itself.

        A change holds for the version that it was made from: a newer one in the library ends it.
        Raises as `prepare`.
        """
        opened, main = open_agent(self._library, self._caller, agent, self._agents)
        tools = worker_tools(self._spec, str(opened.ref), main)
        skills, left_out = self._skills(opened, main)
        memory = map(self._trusted_memory, self._memory)
        heads = [opened, *skills, *memory]
        # By version: what runs is what was checked, whatever is committed meanwhile.
        program, _ = load_program(
            self._library, self._caller, [head.ref.at(head.latest) for head in heads]
        )
        versions = {f"{head.kind}:{head.name}": head.latest for head in heads}
        now = self._committed()
        changed = tuple(
            ref for ref, committed in now.items() if versions.get(ref) == committed.version
        )
        if changed:
            new = {ref: self._folder.program(now[ref].program).by_ref[ref] for ref in changed}
            program = make_program(new.get(part.ref, part) for part in program.parts)
        version, *owned = (f"{used_head.ref}@{used_head.latest}" for used_head in (opened, *skills))
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

    def _executor(self, tools: tuple[str, ...]) -> Executor:
        """Return the executor with these tools, made once."""
        if tools not in self._executors:
            spec = {**self._spec, "tools": list(tools)} if tools else self._spec
            self._executors[tools] = make_executor(
                spec, self._host, _NO_TASKS, self._folder.path / "executor"
            )
        return self._executors[tools]

    def _skills(self, agent: Head, main: bytes) -> tuple[list[Head], list[str]]:
        """Return the agent's own skills that may be used, and the names of the others."""
        found, left_out = list[Head](), list[str]()
        for name in agent_skills(parse_document(main).fields):
            ref = Ref(Kind.SKILL, name)
            if (
                known_head := self._library.store.head_or_none(ref, self._caller.scopes)
            ) is not None:
                # What a person saved in a folder counts as committed.
                self._library.take_in([known_head.ref])
            head = self._library.store.head_or_none(ref, self._caller.scopes)
            trusted = (
                head is not None
                and head.version is not None
                and _other_author(self._library, head) is None
            )
            if head is not None and trusted:
                found.append(head)
            else:
                left_out.append(f"skill:{name}")
        return found, left_out

    def _trusted_memory(self, text: str) -> Head:
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
        """Return the files of the workspace and the words of the task."""
        files, lines = dict[str, bytes](), [item.subtask]
        for name, (summary, left) in needed.items():
            mine = {
                f"{INPUTS}/{name}/{file['path']}": self._folder.read_artifact(file["sha256"])
                for file in left
            }
            files |= mine
            paths = "".join(f"\n- {path}" for path in mine)
            source = f"result of item {name}"
            lines.append(enclose(f"{summary}{paths}", source, "an agent of this run wrote it"))
        lines.append(
            f"Files that belong to the result go below the folder {OUTPUTS} of the folder you "
            "work in. End with a short summary of the result. If you cannot do it, begin that "
            f"answer with {FAILED_MARK} and the reason."
        )
        if self._memory:
            names = ", ".join(
                f"{OUTPUTS}/memory/{Ref.parse(ref, Kind.MEMORY).name}.md" for ref in self._memory
            )
            lines.append(
                f"Lines that a memory should have go into {names}; the user decides about them."
            )
        return files, "\n\n".join(lines)

    def read(self, attempt: TrialAttempt) -> WorkResult:
        """Return the result of a job; its files and its whole answer are kept in the run."""
        rollout = attempt.rollout
        outcome = attempt.outcome or rollout.outcome
        summary = self._library.redact(rollout.output.strip())
        files, left_out, check = self._read_outputs(attempt)
        if len(summary.encode("utf-8", "replace")) > MAX_SUMMARY:
            files.append(self._keep(ANSWER_FILE, summary.encode("utf-8", "replace")))
        if left_out:
            summary = f"{summary}\n[left out: {'; '.join(left_out)[:400]}]"
        if outcome is not None:
            why = self._library.redact(attempt.detail or rollout.detail) or str(outcome)
            summary = f"{outcome}: {why}"
        refused = outcome is None and summary.startswith(FAILED_MARK)
        passed = check.get("passed") if outcome is None and not refused else None
        if passed is False:
            summary = (
                f"The check says that it is wrong: {self._library.redact(check['text'])}\n{summary}"
            )
        if "trouble" in check:
            summary = f"{summary}\n[not checked: {self._library.redact(check['trouble'])[:400]}]"
        ok = outcome is None and not refused and passed is not False
        why = "" if ok else str(outcome or (OWN_REFUSAL if refused else CHECK_FAILED))
        spent = (rollout.usage, rollout.wall, attempt.lost)
        retry = outcome is TrialOutcome.INFRA_ERROR
        return WorkResult(
            ok,
            why,
            rollout.read,
            shorten_bytes(summary),
            tuple(files),
            *spent,
            retry,
            rollout.attempts,
            passed,
        )

    def result_text(self, summary: str, files: Sequence[Mapping[str, Any]]) -> str:
        """Return the result of an item as a judge reads it: what the worker said, and the texts
        that it left.
        """
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
        """Propose the lines that a worker left for memories of the run; return what was proposed, a
        line each.

        A worker reads memories and changes none: new lines of `memory/NAME.md` wait for a person,
        behind those there.
        """
        notes = []
        for text in self._memory:
            head = self._library.store.head(Ref.parse(text, Kind.MEMORY), self._caller.scopes)
            left = next((file for file in files if file["path"] == f"memory/{head.name}.md"), None)
            if left is None:
                continue
            try:
                number = self._propose_lines(
                    head,
                    item,
                    self._folder.read_artifact(left["sha256"]).decode("utf-8", "replace"),
                )
            except EvolvableError as error:
                notes.append(f"{head.ref} was not proposed: {error.text}")
                continue
            notes += [f"{head.ref}: proposal {number}"] if number is not None else []
        return notes

    def _propose_lines(self, head: Head, item: str, left: str) -> int | None:
        """Return the proposal with these lines.

        One that this item made before is not made again.
        """
        path, (head, _) = (
            main_file(Kind.MEMORY, head.name),
            self._library.latest(head),
        )
        now = self._library.store.file(head, path).data.decode("utf-8", "replace")
        existing = set(now.splitlines())
        more = [
            line
            for line in dict.fromkeys(left.splitlines())
            if line.strip() and line not in existing
        ]
        reason = f"item {item} of run {self._folder.id}"
        about = self._library.store.backend.proposals.about(head.ref)
        proposed = next((proposal.id for proposal in about if proposal.reason == reason), None)
        if proposed is not None or not more:
            return proposed
        text = (
            "\n".join(
                [
                    now.rstrip("\n"),
                    *map(self._library.redact, more),
                ]
            )
            + "\n"
        )
        author = worker_author(self._caller)
        return update_resource(
            *(self._library, author, head.ref, reason),
            files={path: text},
            expected_version=head.version,
            propose=True,
        ).proposal_id

    def propose_part(self, ref: str, part: CommittedPart, reason: str) -> str:
        """Propose to the library what the run changed for itself, once.

        Return how it stands, in words.
        """
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
                *(self._library, worker_author(self._caller), head.ref, reason),
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
        return (
            [self._keep(path, base64.b64decode(text)) for path, text in packed.items()],
            list(evidence["left_out"]),
            evidence.get("check", {}),
        )

    def _keep(self, path: str, data: bytes) -> dict[str, Any]:
        return {"path": path, "sha256": self._folder.store_artifact(data), "size": len(data)}


def open_agent(
    library: Library, caller: Caller, text: str, among: Sequence[str] | None = None
) -> tuple[Head, bytes]:
    """Return an agent that may work, with its main file. among: refs that may be named.

    Raises Refused for an agent that nobody whom the user trusts answers for, NoSuchResource.
    """
    ref = Ref.parse(text, Kind.AGENT)
    if (
        ref.kind is not Kind.AGENT
        or ref.version is not None
        or (among is not None and text not in among)
    ):
        raise Refused(
            f"{ascii(text[:80])} is no agent of this run.",
            "Name agents by their refs, without a version.",
        )
    # A person may have saved the agent's file a moment ago: that version is the one that is judged
    # and run.
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
    # Also in a run that a person began: what its workers write is theirs, and is never signed for
    # the person.
    return replace(caller, actor=Actor.AGENT, principal=Principal.AGENT, via="ags", signer=None)


def _other_author(library: Library, head: Head) -> FileAuthor | None:
    """Return the author of an agent or a memory where no person answers for it, else None: then a
    plan may use it.
    """
    authorship = version_authorship(library, head, head.latest)
    return (
        None
        if authorship.stands or authorship.kind is AuthorKind.YOU
        else FileAuthor(authorship.kind, authorship.by)
    )


def worker_tools(spec: Mapping[str, Any], agent: str, main: bytes) -> tuple[str, ...]:
    """Return the tools that a worker may use as this agent, empty where the executor has none to
    restrict.

    Never more than the executor allows. Raises Refused where the agent asks for more, or its file
    allows fewer than the executor can be held to.
    """
    fields = parse_document(main).fields
    requested, without = _names(fields.get("tools")), _names(fields.get("disallowedTools"))
    kind = str(spec.get("kind"))
    allowed = tuple(spec.get("tools", ())) or tuple(CLIENTS.get(kind, {}).get("tools", ()))
    if not allowed:
        return ()
    hint = "Change the agent's tools, or use another executor."
    if requested is not None and (more := [name for name in requested if name not in allowed]):
        raise Refused(
            f"{agent} wants {', '.join(more)[:200]}, which its worker may not use.",
            hint,
        )
    tools = tuple(
        name
        for name in allowed
        if (requested is None or name in requested) and name not in (without or ())
    )
    if not tools:
        raise Refused(f"{agent} leaves its worker no tool.", hint)
    if tools != allowed and kind != "claude":
        raise Refused(f"{kind} cannot be held to the tools of {agent}.", "Use claude:MODEL for it.")
    return tools


def _names(value: object) -> list[str] | None:
    """Return the tools that a field names without what they may be used for, None where it is not
    there.
    """
    texts = (
        value.split(",") if isinstance(value, str) else value if isinstance(value, list) else None
    )
    return (
        None
        if texts is None
        else [str(text).partition("(")[0].strip() for text in texts if str(text).strip()]
    )


def worker_program(program: Program, spec: Mapping[str, Any]) -> Program:
    """Return what the executor installs. A model is told to be the agent; a command is given the
    agent's files.

    Of an agent's file a model gets the text alone: its hooks, servers and other settings never
    reach the client.
    """
    if executor_kind(spec).agents is None:
        return program
    return make_program(
        _as_prompt(part) if part.kind is Kind.AGENT else part for part in program.parts
    )


def _as_prompt(agent: ProgramPart) -> ProgramPart:
    body = parse_document(agent.main or b"").body.strip()
    text = f"---\nname: {agent.name}\ndescription: The agent of this worker.\n---\n\n{body}\n"
    return make_part(
        Kind.PROMPT,
        agent.name,
        {main_file(Kind.PROMPT, agent.name): text.encode()},
    )


def shorten_bytes(text: str, most: int = MAX_SUMMARY) -> str:
    """Return a text of at most so many bytes of UTF-8, cut at its end."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode()
    # The sign takes three bytes; a character that is cut in its middle is left out.
    return data[: most - 4].decode("utf-8", "ignore") + "…"

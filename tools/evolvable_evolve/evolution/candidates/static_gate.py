"""Checks of a candidate before anything is spent on it: shape, size, scan and task leaks, and the
review of a change by a person.
"""

import base64
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from evolvable_evolve.evolution.candidates import programs
from evolvable_evolve.evolution.candidates.agent_files import bounded_agent, owned_skills
from evolvable_evolve.evolution.candidates.programs import Program, ProgramPart
from evolvable_evolve.evolution.task import Split, Task
from evolvable_store import (
    MAX_DESCRIPTION,
    File,
    Problem,
    broken_rules,
    find_problems,
    parse_document,
    read_grants,
)
from evolvable_store.resource import Kind
from evolvable_tools.scan import (
    ENVIRONMENT,
    NETWORK,
    RUNS,
    TOOL,
    WRITES,
    Finding,
    FindingSeverity,
    scan,
)

# Shorter runs are common phrases, and longer ones miss what a sentence repeats.
RUN_LENGTH = 5
"""Words in a row that two texts do not share by chance."""

SHARED_SHARE = 0.5
"""The share of tasks above which a run of words belongs to the task set and to no single task."""

SHARED_MIN_TASKS = 8
"""The number of tasks from which SHARED_SHARE is applied."""

MAX_LEAKS = 5
"""Leaks of one text that are reported at most."""

_WORD = re.compile(r"\w+")
# Invisible characters inside of a word would hide it from the comparison.
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
# The lower limit fits a short answer, the upper one bounds the time.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,4000}={0,2}")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}){4,2000}\b")
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+%?")


@dataclass(frozen=True, slots=True)
class TaskLeak:
    """Words of a task that a text repeats.

    source: prompt (of a training task), val, expected or judge. task: '' where it is hidden. words:
    the repeated ones. Only words of a training prompt are shown to the proposer model.
    """

    source: str
    task: str
    words: str

    def __str__(self) -> str:
        if self.source == "prompt":
            return f"it repeats words of task {self.task}: {self.words}"
        owner_names = {
            "val": "a task of validation",
            "expected": "an expected answer",
            "judge": "what a judge looks for",
        }
        return f"it repeats words of {owner_names[self.source]}"


class LeakCorpus:
    """The texts that no resource may repeat: prompts, expected answers and judges' texts of the
    open tasks.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Raise ValueError for a sealed task: nothing in a search may read it."""
        sealed = [task.id for task in tasks if task.split is Split.TEST]
        if sealed:
            raise ValueError(f"{len(sealed)} sealed tasks were given, such as {sealed[0]}")
        self._runs: dict[tuple[str, ...], tuple[str, str]] = {}
        self._answers: set[tuple[str, ...]] = set()
        shared = _find_shared_runs(tasks)
        for source, task, text in _list_texts(tasks):
            words = normalise_words(text)
            for run in _list_runs(words):
                # The wording that most prompts share gives no task away. Answers have no such
                # exception.
                if not (source in ("prompt", "val") and run in shared):
                    self._runs.setdefault(run, (source, task))
            # An answer that is shorter than a run is compared as a whole.
            if source == "expected" and _is_distinctive(text, words) and len(words) < RUN_LENGTH:
                self._answers.add(tuple(words))
        self._lengths = sorted({len(words) for words in self._answers})

    def leaks(self, text: str, before: str = "") -> list[TaskLeak]:
        """Return the first MAX_LEAKS leaks of a text that `before` did not have, each task and
        source once.
        """
        leaks: dict[tuple[str, str], TaskLeak] = {}
        old = set(self._find_repeats(before)) if before else set()
        for source, task, run in self._find_repeats(text):
            if (source, task, run) not in old:
                leaks.setdefault((source, task), TaskLeak(source, task, " ".join(run)))
        return list(leaks.values())[:MAX_LEAKS]

    def _find_repeats(self, text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Yield the source and the task of each run of words that a text repeats, with the run."""
        for view in _list_views(text):
            words = normalise_words(view)
            yield from ((*self._runs[run], run) for run in _list_runs(words) if run in self._runs)
            for length in self._lengths:
                for run in _list_runs(words, length):
                    if run in self._answers:
                        yield "expected", "", run


def _find_shared_runs(tasks: Sequence[Task]) -> set[tuple[str, ...]]:
    """Return the runs of words in more than half of the prompts: the set's own wording."""
    if len(tasks) < SHARED_MIN_TASKS:
        return set()
    counts = Counter(run for task in tasks for run in set(_list_runs(normalise_words(task.prompt))))
    return {run for run, count in counts.items() if count > SHARED_SHARE * len(tasks)}


def normalise_words(text: str) -> list[str]:
    """Return the words of a text for comparison, without case, invisible characters and variants of
    letters.
    """
    return _WORD.findall(_UNSEEN.sub("", unicodedata.normalize("NFKC", text)).casefold())


def _list_texts(tasks: Sequence[Task]) -> Iterator[tuple[str, str, str]]:
    """Yield the source, the task ('' where it is hidden) and the text of all that is compared."""
    for task in tasks:
        if task.split is Split.TRAIN:
            yield "prompt", task.id, task.prompt
        else:
            yield "val", "", task.prompt
        if task.expected:
            yield "expected", "", task.expected
        # The name of a registered scorer tells no answer.
        arguments = [value for key, value in task.scorer.args.items() if key != "name"]
        for leaf in iter_leaves(arguments):
            if isinstance(leaf, str):
                yield "judge", "", leaf


def iter_leaves(value: object) -> Iterator[object]:
    """Yield the leaves of a JSON value at any depth, without the lists and objects themselves."""
    if isinstance(value, Mapping | list | tuple):
        for child in value.values() if isinstance(value, Mapping) else value:
            yield from iter_leaves(child)
    else:
        yield value


def _list_runs(words: Sequence[str], n: int = RUN_LENGTH) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def _is_distinctive(text: str, words: Sequence[str]) -> bool:
    """Return whether a short answer in a resource is more than chance: no `yes`, no year,
    no 1000.
    """
    bare = text.strip()
    # Four digits or more, three or more without the zeros at both ends, and no year.
    if _NUMBER.fullmatch(bare):
        digits = re.sub(r"\D", "", bare)
        year = re.fullmatch(r"(?:19|20)\d\d", bare) is not None
        return len(digits.strip("0")) >= 3 and len(digits) >= 4 and not year
    return sum(map(len, words)) >= 6


def _list_views(text: str) -> Iterator[str]:
    """Yield a text, and the texts that it holds in base64 or as hexadecimal digits."""
    yield text
    for match in _BASE64.finditer(text):
        yield from _try_decode(_decode_base64, match[0])
    for match in _HEX.finditer(text):
        yield from _try_decode(bytes.fromhex, match[0])


def _decode_base64(raw: str) -> bytes:
    """Return the bytes of a text in base64, also in the alphabet for URLs and without padding."""
    plain = raw.rstrip("=").replace("-", "+").replace("_", "/")
    return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)


def _try_decode(decode: Callable[[str], bytes], raw: str) -> Iterator[str]:
    try:
        plain = decode(raw).decode("utf-8")
    except ValueError:
        return
    # Other characters: a hash or an identifier that only looks encoded.
    if plain.isprintable() or "\n" in plain:
        yield plain


_FOR_A_PERSON = frozenset(
    f"capability.{kind}" for kind in (NETWORK, RUNS, TOOL, WRITES, ENVIRONMENT)
)
"""Findings that a person approves at adoption, because many good edits bring them.

All other findings that need an approval end a candidate, because it runs before anybody can be
asked.
"""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """The limits of a candidate's size.

    lines: of a main file. description: its characters. growth: the share by which a resource may
    grow in one candidate. slack: bytes by which it may always grow, for nearly empty ones. parts:
    resources of a program.
    """

    lines: int = 500
    description: int = MAX_DESCRIPTION
    # A proposer tends to add and not to replace. A quarter at a time keeps a skill readable.
    growth: float = 0.25
    slack: int = 2_000
    parts: int = 50


@dataclass(frozen=True, slots=True)
class GateFinding:
    """One finding of the gate.

    rule: schema, size, scan, leak or duplicate. blocks: whether it ends the candidate; other
    findings are shown to the person who decides about adoption.
    """

    rule: str
    ref: str
    path: str
    text: str
    blocks: bool = True

    def __str__(self) -> str:
        where = " ".join(filter(None, (self.ref, self.path)))
        return f"{self.rule}: {f'{where}: ' if where else ''}{self.text}"


@dataclass(frozen=True, slots=True)
class GateReport:
    """The findings of the gate on a candidate, blocking ones first."""

    findings: tuple[GateFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether the candidate may be evaluated."""
        return not any(finding.blocks for finding in self.findings)

    @property
    def why(self) -> str:
        """The blocking findings in one text; '' without any."""
        return "; ".join(str(finding) for finding in self.findings if finding.blocks)


def check_candidate(
    parent: Program,
    candidate: Program,
    *,
    corpus: LeakCorpus,
    known_digests: Container[str] = (),
    limits: SizeLimits = SizeLimits(),
    moves_skills: bool = False,
) -> GateReport:
    """Return the findings on a candidate. Pure: runs no code, calls no model, deterministic.

    parent: the program that it was made from; findings on the parent are not repeated. corpus: of
    the tasks of train and val. known_digests: digests of all programs of the run. moves_skills:
    agents may own other skills of the program than before; a person sees that at adoption.
    """
    if candidate.digest == parent.digest:
        return GateReport((GateFinding("duplicate", "", "", "it is what it was made of"),))
    if candidate.digest in known_digests:
        return GateReport((GateFinding("duplicate", "", "", "the run has had this program"),))
    findings: list[GateFinding] = []
    if len(candidate.parts) > max(limits.parts, len(parent.parts)):
        text = f"it has {len(candidate.parts)} parts, the limit is {limits.parts}"
        findings.append(GateFinding("size", "", "", text))
    # All texts of the parent: a passage that moved from one part to another was there before.
    texts = "\n".join(text for part in parent.parts for text in part.texts.values())
    for part, old in _iter_changed(parent, candidate):
        baseline, inherited = old, frozenset[str]()
        if moves_skills and old is not None:
            baseline = _move_skills(part, old, candidate)
        elif moves_skills:
            inherited = _find_inherited(part, parent)
        for finding in _check_part(part, old, baseline, texts, corpus, limits):
            if finding.text not in inherited:
                findings.append(finding)
    return GateReport(tuple(sorted(findings, key=lambda finding: not finding.blocks)))


def _move_skills(part: ProgramPart, old: ProgramPart, candidate: Program) -> ProgramPart:
    """Return an agent as it was, but with the skills that it owns now, where all new ones are parts
    of the program.

    The gate compares with this, so that a mere change of owner is no finding.
    """
    if part.kind is not Kind.AGENT or part.main is None or old.main is None:
        return old
    now, before = owned_skills(parse_document(part.main)), owned_skills(parse_document(old.main))
    if now == before or not set(now) - set(before) <= candidate.by_ref.keys():
        return old
    files = {**old.files, old.main_path: bounded_agent(old.main, None, now)}
    return programs.make_part(old.kind, old.name, files)


_SHARED_SETTINGS = ("tools:", "model:", "permissionmode:")
"""Settings that a split agent shares with its owner.

Only a person gives the others to a second agent: hooks, servers, variables, automatic approvals,
and any tool or permission (`capability.*`).
"""


def _find_inherited(part: ProgramPart, parent: Program) -> frozenset[str]:
    """Return the texts of the scan's findings on the tools, model and permission mode that a new
    agent shares with its owner.

    The owner is an agent of the parent whose head grants all that the new agent's grants, and
    forbids no more.
    """
    if part.kind is not Kind.AGENT or part.main is None:
        return frozenset()
    grants = read_grants(parse_document(part.main))
    agents = [
        agent.main for agent in parent.parts if agent.kind is Kind.AGENT and agent.main is not None
    ]
    if all(grants.list_added_grants(read_grants(parse_document(main))) for main in agents):
        return frozenset()
    return frozenset(
        _describe_finding(finding)
        for finding in scan(None, part.files, part.kind).findings
        if finding.rule.startswith("front.") and finding.excerpt.startswith(_SHARED_SETTINGS)
    )


def _check_part(
    part: ProgramPart,
    old: ProgramPart | None,
    baseline: ProgramPart | None,
    texts: str,
    corpus: LeakCorpus,
    limits: SizeLimits,
) -> Iterator[GateFinding]:
    """Yield the findings on one part.

    old: the part in the parent. baseline: the part that the scan compares with. texts: all texts of
    the parent.
    """
    yield from _check_schema(part, old)
    yield from _check_size(part, old, limits)
    for finding in scan(baseline.files if baseline else None, part.files, part.kind).findings:
        if finding.severity is not FindingSeverity.LOW:
            blocks = finding.severity is FindingSeverity.HIGH or finding.rule not in _FOR_A_PERSON
            yield GateFinding("scan", part.ref, finding.path, _describe_finding(finding), blocks)
    yield from _check_leaks(part, texts, corpus)


def _describe_finding(finding: Finding) -> str:
    return f"{finding.why} [{finding.rule}]"


def _check_schema(part: ProgramPart, old: ProgramPart | None) -> Iterator[GateFinding]:
    # A fault that was there before is not the candidate's.
    old_problems = {str(problem) for problem in _find_problems(old)} if old else set[str]()
    for problem in broken_rules(_find_problems(part)):
        if str(problem) not in old_problems:
            yield GateFinding("schema", part.ref, problem.path, problem.text)


def _find_problems(part: ProgramPart) -> list[Problem]:
    files = {path: File(data) for path, data in part.files.items()}
    return find_problems(part.kind, part.name, files)


def _check_size(
    part: ProgramPart, old: ProgramPart | None, limits: SizeLimits
) -> Iterator[GateFinding]:
    if part.main is not None:
        lines = _count_lines(part)
        if lines > limits.lines and lines > _count_lines(old):
            text = f"it has {lines:,} lines, the limit is {limits.lines}"
            yield GateFinding("size", part.ref, part.main_path, text)
        description = parse_document(part.main).fields.get("description")
        if isinstance(description, str) and len(description) > limits.description:
            text = (
                f"its description has {len(description):,} characters, the limit is "
                f"{limits.description:,}"
            )
            yield GateFinding("size", part.ref, part.main_path, text)
    if old is not None:
        most = max(old.size * (1 + limits.growth), old.size + limits.slack)
        if part.size > most:
            text = (
                f"it grew from {old.size:,} to {part.size:,} bytes; {int(most):,} are "
                "allowed at once"
            )
            yield GateFinding("size", part.ref, "", text)


def _count_lines(part: ProgramPart | None) -> int:
    return part.main.count(b"\n") + 1 if part is not None and part.main is not None else 0


def _check_leaks(part: ProgramPart, texts: str, corpus: LeakCorpus) -> Iterator[GateFinding]:
    # Names are read by models as well.
    names = f"{part.name.replace('-', ' ')}\n" + " ".join(part.files)
    for path, text in [("", names), *part.texts.items()]:
        for leak in corpus.leaks(text, texts):
            yield GateFinding("leak", part.ref, path, str(leak))


_MODEL_TOOLS = ("claude", "codex", "anthropic", "model")
"""Kinds of executors that give a model tools."""

_INERT = frozenset(
    (".md", ".txt", ".rst", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".csv", ".tsv")
)
"""Suffixes of files that no program runs by itself."""


@dataclass(frozen=True, kw_only=True)
class ChangeReview:
    """A change of a program, for a person to review.

    diff: the whole difference. capabilities: those that it adds. findings: of the scan.
    """

    diff: str = ""
    capabilities: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def review_change(before: Program, after: Program) -> ChangeReview:
    """Return the whole difference of two programs with the capabilities it adds and the findings of
    the scan.

    Pure: runs no code, calls no model.
    """
    # As keys, so that each is listed once and in order.
    capabilities, findings = dict[str, None](), dict[str, None]()
    for part, old in _iter_changed(before, after):
        result = scan(old.files if old is not None else None, part.files, part.kind)
        for capability in result.capabilities.added:
            capabilities[f"{part.ref}: {capability}"] = None
        for finding in result.findings:
            findings[f"{finding.severity}: {part.ref}: {finding}"] = None
    diff = programs.diff_programs(before, after, most=None)
    return ChangeReview(diff=diff, capabilities=list(capabilities), findings=list(findings))


def find_executable_change(before: Program, after: Program, executor: str) -> str:
    """Return why a change can be executed by this kind of executor, '' where nothing of it can.

    A model with tools may run anything that it reads.
    """
    if executor == "simulated":
        return ""
    for part, old in _iter_changed(before, after):
        if executor in _MODEL_TOOLS:
            return f"the model that reads {part.ref} has tools"
        if part.kind is Kind.TOOL:
            return f"{part.ref} is a tool, whose command can be run"
        old_files = old.files if old is not None else {}
        for path, data in part.files.items():
            if old_files.get(path) != data and not _is_inert(path, data):
                return f"{part.ref} brings or changes {path}, which can be run"
        if scan(old_files or None, part.files, part.kind).capabilities.added:
            return f"{part.ref} asks for something to be run or reached that it did not before"
    return ""


def _iter_changed(
    before: Program, after: Program
) -> Iterator[tuple[ProgramPart, ProgramPart | None]]:
    """Yield each part that is new or changed, with the part before, None for a new one."""
    old_parts = before.by_ref
    for part in after.parts:
        old = old_parts.get(part.ref)
        if old is None or old.tree != part.tree:
            yield part, old


def _is_inert(path: str, data: bytes) -> bool:
    has_suffix = PurePosixPath(path).suffix.lower() in _INERT
    return has_suffix and not data.startswith(b"#!") and b"\0" not in data

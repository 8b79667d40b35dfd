"""Checks of a candidate before anything is spent on it: shape, size, scan, task leaks, and what a
person reviews.
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
"""The number of words in a row that two texts do not share by chance."""

SHARED_SHARE = 0.5
"""The share of tasks above which a run of words belongs to the task set and to no single task."""

SHARED_MIN_TASKS = 8
"""The fewest tasks for such a share."""

MAX_LEAKS = 5
"""The most leaks of one text that are reported."""

_WORD = re.compile(r"\w+")
# Invisible characters inside of a word would hide it from the comparison.
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff]")
# Long enough for a short answer; the upper limit bounds the time.
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,4000}={0,2}")
_HEX = re.compile(r"\b(?:[0-9a-fA-F]{2}){4,2000}\b")
_NUMBER = re.compile(r"[-+]?[\d,]*\.?\d+%?")


@dataclass(frozen=True, slots=True)
class TaskLeak:
    """Repeated words of a task. source: prompt (of a training task), val, expected or judge; task:
    '' where it is hidden.

    words: the repeated ones. Only words of a training prompt are shown to the proposer model.
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
    """Texts that no resource may repeat: prompts, expected answers and judges' texts of the tasks
    that are open.
    """

    def __init__(self, tasks: Sequence[Task]) -> None:
        """Raise ValueError for a sealed task: nothing in a search may read it."""
        sealed = [task.id for task in tasks if task.split is Split.TEST]
        if sealed:
            raise ValueError(f"{len(sealed)} sealed tasks were given, such as {sealed[0]}")
        self._runs: dict[tuple[str, ...], tuple[str, str]] = {}
        self._answers: set[tuple[str, ...]] = set()
        shared = _shared_runs(tasks)
        for source, task, text in _corpus_texts(tasks):
            words = normalise_words(text)
            for run in _word_runs(words):
                # The wording that most prompts share gives no task away. Answers have no such
                # exception.
                if not (source in ("prompt", "val") and run in shared):
                    self._runs.setdefault(run, (source, task))
            # Shorter than a run, so it is compared as a whole.
            if source == "expected" and _is_distinctive(text, words) and len(words) < RUN_LENGTH:
                self._answers.add(tuple(words))
        self._lengths = sorted({len(words) for words in self._answers})

    def leaks(self, text: str, before: str = "") -> list[TaskLeak]:
        """Return what a text repeats and `before` did not: the first few, each task and source
        once.
        """
        found: dict[tuple[str, str], TaskLeak] = {}
        old = set(self._hits(before)) if before else set()
        for source, task, run in self._hits(text):
            if (source, task, run) not in old:
                found.setdefault((source, task), TaskLeak(source, task, " ".join(run)))
        return list(found.values())[:MAX_LEAKS]

    def _hits(self, text: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        for view in _decoded_views(text):
            words = normalise_words(view)
            yield from ((*self._runs[run], run) for run in _word_runs(words) if run in self._runs)
            for length in self._lengths:
                yield from (
                    ("expected", "", run)
                    for run in _word_runs(words, length)
                    if run in self._answers
                )


def _shared_runs(tasks: Sequence[Task]) -> set[tuple[str, ...]]:
    """Return the runs of words in more than half of the prompts: the set's own wording."""
    if len(tasks) < SHARED_MIN_TASKS:
        return set()
    counts = Counter(run for task in tasks for run in set(_word_runs(normalise_words(task.prompt))))
    return {run for run, count in counts.items() if count > SHARED_SHARE * len(tasks)}


def normalise_words(text: str) -> list[str]:
    """Return the words of a text for comparison: without case, invisible characters and forms of
    letters.
    """
    return _WORD.findall(_UNSEEN.sub("", unicodedata.normalize("NFKC", text)).casefold())


def _corpus_texts(tasks: Sequence[Task]) -> Iterator[tuple[str, str, str]]:
    for task in tasks:
        yield (
            ("prompt", task.id, task.prompt)
            if task.split is Split.TRAIN
            else ("val", "", task.prompt)
        )
        if task.expected:
            yield "expected", "", task.expected
        # The name of a registered scorer tells no answer.
        looked_for = [value for key, value in task.scorer.args.items() if key != "name"]
        yield from (
            ("judge", "", leaf) for leaf in iter_leaves(looked_for) if isinstance(leaf, str)
        )


def iter_leaves(value: object) -> Iterator[object]:
    """Yield the leaves of a JSON value at any depth, without the lists and objects themselves."""
    if isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from iter_leaves(each)
    else:
        yield value


def _word_runs(words: Sequence[str], n: int = RUN_LENGTH) -> Iterator[tuple[str, ...]]:
    return (tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def _is_distinctive(text: str, words: Sequence[str]) -> bool:
    """Return whether a short answer in a resource is more than chance: no `yes`, no
    year, no 1000.
    """
    bare = text.strip()
    if _NUMBER.fullmatch(bare):
        digits = re.sub(r"\D", "", bare)
        year = re.fullmatch(r"(?:19|20)\d\d", bare) is not None
        return len(digits.strip("0")) >= 3 and len(digits) >= 4 and not year
    return sum(map(len, words)) >= 6


def _decoded_views(text: str) -> Iterator[str]:
    """Yield a text, and the texts that it holds in base64 or as hexadecimal digits."""
    yield text
    for found in _BASE64.finditer(text):
        plain = found[0].rstrip("=").replace("-", "+").replace("_", "/")
        yield from _try_decode(
            lambda raw: base64.b64decode(
                raw + "=" * (-len(raw) % 4),
                validate=True,
            ),
            plain,
        )
    for found in _HEX.finditer(text):
        yield from _try_decode(bytes.fromhex, found[0])


def _try_decode(decode: Callable[[str], bytes], raw: str) -> Iterator[str]:
    try:
        plain = decode(raw).decode("utf-8")
    except ValueError:
        return
    # Other bytes are a hash or an identifier that only looks encoded.
    if plain.isprintable() or "\n" in plain:
        yield plain


_FOR_A_PERSON = frozenset(
    f"capability.{kind}" for kind in (NETWORK, RUNS, TOOL, WRITES, ENVIRONMENT)
)
"""Findings that only a person may approve and that many good edits bring. All other findings that
need an approval end a candidate, because it runs before anybody can be asked.
"""


@dataclass(frozen=True, slots=True)
class SizeLimits:
    """How large a candidate may be.

    lines: of a main file. growth: by which share a resource may grow in one candidate; slack: bytes
    that it may always grow by, for nearly empty ones. parts: resources of a program.
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
    """All findings of the gate, blocking ones first."""

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
    if candidate.digest == parent.digest or candidate.digest in known_digests:
        what = (
            "it is what it was made of"
            if candidate.digest == parent.digest
            else "the run has had this program"
        )
        return GateReport((GateFinding("duplicate", "", "", what),))
    found: list[GateFinding] = []
    if len(candidate.parts) > max(limits.parts, len(parent.parts)):
        found.append(
            GateFinding(
                "size", "", "", f"it has {len(candidate.parts)} parts, the limit is {limits.parts}"
            )
        )
    # What moved from one part to another was there before too.
    texts = "\n".join(text for part in parent.parts for text in part.texts.values())
    for part, old in _changed_parts(parent, candidate):
        was = _with_skills_of(part, old, candidate) if moves_skills and old is not None else old
        known_findings = (
            _settings_of_owner(part, parent) if moves_skills and old is None else frozenset()
        )
        found += [
            finding
            for finding in _check_part(part, old, was, texts, corpus, limits)
            if finding.text not in known_findings
        ]
    return GateReport(tuple(sorted(found, key=lambda finding: not finding.blocks)))


def _with_skills_of(part: ProgramPart, old: ProgramPart, candidate: Program) -> ProgramPart:
    """Return an agent as it was, but with the skills that it owns now, where all new ones are parts
    of the program.

    The gate compares with this, so that a mere change of owner is no finding.
    """
    if part.kind is not Kind.AGENT or part.main is None or old.main is None:
        return old
    now, before = (owned_skills(parse_document(data)) for data in (part.main, old.main))
    if now == before or not set(now) - set(before) <= candidate.by_ref.keys():
        return old
    files = {**old.files, old.main_path: bounded_agent(old.main, None, now)}
    return programs.make_part(old.kind, old.name, files)


_SHARED_SETTINGS = ("tools:", "model:", "permissionmode:")
"""Settings that a split agent shares with its owner. The others only a person gives to a second
agent: hooks, servers, variables, automatic approvals, and any tool or permission (`capability.*`).
"""


def _settings_of_owner(part: ProgramPart, parent: Program) -> frozenset[str]:
    """Return the scan's findings on the tools, model and permission mode that a new agent shares
    with its owner.

    The owner is an agent of the parent whose head grants all that the new one's grants, and forbids
    no more.
    """
    if part.kind is not Kind.AGENT or part.main is None:
        return frozenset()
    grants = read_grants(parse_document(part.main))
    agents = [
        agent.main for agent in parent.parts if agent.kind is Kind.AGENT and agent.main is not None
    ]
    if all(grants.list_added_grants(read_grants(parse_document(main))) for main in agents):
        return frozenset()
    found = scan(None, part.files, part.kind).findings
    return frozenset(
        _finding_text(finding)
        for finding in found
        if finding.rule.startswith("front.") and finding.excerpt.startswith(_SHARED_SETTINGS)
    )


def _check_part(
    part: ProgramPart,
    old: ProgramPart | None,
    was: ProgramPart | None,
    texts: str,
    corpus: LeakCorpus,
    limits: SizeLimits,
) -> Iterator[GateFinding]:
    yield from _check_schema(part, old)
    yield from _check_size(part, old, limits)
    for finding in scan(was.files if was else None, part.files, part.kind).findings:
        if finding.severity is not FindingSeverity.LOW:
            blocks = finding.severity is FindingSeverity.HIGH or finding.rule not in _FOR_A_PERSON
            yield GateFinding("scan", part.ref, finding.path, _finding_text(finding), blocks)
    yield from _check_leaks(part, texts, corpus)


def _finding_text(finding: Finding) -> str:
    return f"{finding.why} [{finding.rule}]"


def _check_schema(part: ProgramPart, old: ProgramPart | None) -> Iterator[GateFinding]:
    # A fault that was there before is not the candidate's.
    was = {str(problem) for problem in _part_problems(old)} if old else set[str]()
    for problem in broken_rules(_part_problems(part)):
        if str(problem) not in was:
            yield GateFinding("schema", part.ref, problem.path, problem.text)


def _part_problems(part: ProgramPart) -> list[Problem]:
    return find_problems(
        part.kind, part.name, {path: File(data) for path, data in part.files.items()}
    )


def _check_size(
    part: ProgramPart, old: ProgramPart | None, limits: SizeLimits
) -> Iterator[GateFinding]:
    if part.main is not None:
        lines = _line_count(part)
        if lines > limits.lines and lines > _line_count(old):
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


def _line_count(part: ProgramPart | None) -> int:
    return part.main.count(b"\n") + 1 if part is not None and part.main is not None else 0


def _check_leaks(part: ProgramPart, texts: str, corpus: LeakCorpus) -> Iterator[GateFinding]:
    # Names are read by models as well.
    names = f"{part.name.replace('-', ' ')}\n" + " ".join(part.files)
    for path, text in [("", names), *part.texts.items()]:
        for leak in corpus.leaks(text, texts):
            yield GateFinding("leak", part.ref, path, str(leak))


_MODEL_TOOLS = ("claude", "codex", "anthropic", "model")
# Suffixes of files that no program runs by itself.
_INERT = frozenset(
    (".md", ".txt", ".rst", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".csv", ".tsv")
)


@dataclass(frozen=True, kw_only=True)
class ChangeReview:
    """A change of a program for a person.

    diff: all of it. capabilities: those that it adds. findings: of the scan.
    """

    diff: str = ""
    capabilities: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)


def review_change(before: Program, after: Program) -> ChangeReview:
    """Return the whole difference of two programs with the capabilities it adds and the findings of
    the scan.

    Pure: runs no code, calls no model.
    """
    gained, found = dict[str, None](), dict[str, None]()
    for part, old in _changed_parts(before, after):
        result = scan(old.files if old is not None else None, part.files, part.kind)
        gained |= dict.fromkeys(
            f"{part.ref}: {capability}" for capability in result.capabilities.added
        )
        found |= dict.fromkeys(
            f"{finding.severity}: {part.ref}: {finding}" for finding in result.findings
        )
    diff = programs.diff_programs(before, after, most=None)
    return ChangeReview(diff=diff, capabilities=list(gained), findings=list(found))


def find_executable_change(before: Program, after: Program, executor: str) -> str:
    """Return why a change can be executed by this kind of executor, '' when nothing of it can.

    An executor that gives a model tools can be made to run anything that the model reads.
    """
    if executor == "simulated":
        return ""
    for part, old in _changed_parts(before, after):
        if executor in _MODEL_TOOLS:
            return f"the model that reads {part.ref} has tools"
        if part.kind is Kind.TOOL:
            return f"{part.ref} is a tool, whose command can be run"
        was = old.files if old is not None else {}
        for path, data in part.files.items():
            if was.get(path) != data and not _is_inert(path, data):
                return f"{part.ref} brings or changes {path}, which can be run"
        if scan(was or None, part.files, part.kind).capabilities.added:
            return f"{part.ref} asks for something to be run or reached that it did not before"
    return ""


def _changed_parts(
    before: Program, after: Program
) -> Iterator[tuple[ProgramPart, ProgramPart | None]]:
    old = before.by_ref
    for part in after.parts:
        previous = old.get(part.ref)
        if previous is None or previous.tree != part.tree:
            yield part, previous


def _is_inert(path: str, data: bytes) -> bool:
    return (
        PurePosixPath(path).suffix.lower() in _INERT
        and not data.startswith(b"#!")
        and b"\0" not in data
    )

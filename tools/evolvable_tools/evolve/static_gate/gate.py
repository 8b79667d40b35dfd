"""The gate before anything is spent on a candidate: shape, size, means, leaks, and whether it was there before."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evolvable_store.frontmatter import MAX_DESCRIPTION, parse_document
from evolvable_store.objects import File
from evolvable_store.validation import Problem, blocking_problems, find_problems, main_path
from evolvable_tools.evolve.program import Part, Program
from evolvable_tools.evolve.static_gate.leaks import Corpus
from evolvable_tools.evolve.task import Task
from evolvable_tools.scan import FindingSeverity
from evolvable_tools.scan import capabilities as means
from evolvable_tools.scan.scanner import scan

_FOR_A_PERSON = frozenset(
    f"capability.{kind}" for kind in (means.NETWORK, means.RUNS, means.TOOL, means.WRITES, means.ENVIRONMENT)
)
"""What only a person may approve and yet many good edits bring. All else that would be asked about ends a candidate:
it is run before anybody can be asked."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a candidate may be.

    lines: of a main file. growth: by which share a resource may grow in one candidate, and a program by what is new in
    it; slack: bytes that it may always grow by, for what was nearly empty. parts: resources of a program.
    """

    lines: int = 500
    description: int = MAX_DESCRIPTION
    growth: float = 0.25
    slack: int = 2_000
    parts: int = 50


@dataclass(frozen=True, slots=True)
class GateFinding:
    """One thing that the gate found.

    rule: schema, size, scan, leak or duplicate. blocks: whether it ends the candidate; what does not is told to whoever
    decides about adoption.
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
    """All that the gate found, what blocks first."""

    findings: tuple[GateFinding, ...]

    @property
    def passed(self) -> bool:
        """Whether the candidate may be evaluated."""
        return not any(finding.blocks for finding in self.findings)

    @property
    def why(self) -> str:
        """What blocks, in one text; '' when nothing does."""
        return "; ".join(str(finding) for finding in self.findings if finding.blocks)


def static_gate(
    parent: Program,
    candidate: Program,
    *,
    tasks: Sequence[Task],
    judge_texts: Iterable[str] = (),
    known: Container[str] = (),
    limits: Limits = Limits(),
) -> GateReport:
    """Returns what is found in a candidate. Nothing is run and nobody is asked; the same says the same everywhere.

    parent: what it was made of; what stood there already is not found again. tasks: of train and val; ValueError for a
    sealed one. judge_texts: what judges are told besides. known: digests of all programs of the run.
    """
    corpus = Corpus(tasks, judge_texts)
    if candidate.digest == parent.digest or candidate.digest in known:
        what = "it is what it was made of" if candidate.digest == parent.digest else "the run has had this program"
        return GateReport((GateFinding("duplicate", "", "", what),))
    before = {part.ref: part for part in parent.parts}
    found: list[GateFinding] = []
    if len(candidate.parts) > max(limits.parts, len(parent.parts)):
        found.append(GateFinding("size", "", "", f"it has {len(candidate.parts)} parts, the limit is {limits.parts}"))
    # What moved from one part to another was there before too.
    texts = "\n".join(text for part in parent.parts for text in _texts(part).values())
    for part in candidate.parts:
        old = before.get(part.ref)
        if old is None or old.tree != part.tree:
            found += _of_part(part, old, texts, corpus, limits)
    return GateReport(tuple(sorted(found, key=lambda finding: not finding.blocks)))


def _of_part(part: Part, old: Part | None, texts: str, corpus: Corpus, limits: Limits) -> Iterator[GateFinding]:
    yield from _shape(part, old)
    yield from _size(part, old, limits)
    for finding in scan(old.files if old else None, part.files, part.kind).findings:
        if finding.severity is not FindingSeverity.LOW:
            blocks = finding.severity is FindingSeverity.HIGH or finding.rule not in _FOR_A_PERSON
            yield GateFinding("scan", part.ref, finding.path, f"{finding.why} [{finding.rule}]", blocks)
    yield from _leaks(part, texts, corpus)


def _shape(part: Part, old: Part | None) -> Iterator[GateFinding]:
    was = {str(problem) for problem in _problems(old)} if old else set[str]()
    for problem in blocking_problems(_problems(part), strict=True):
        if str(problem) not in was:
            yield GateFinding("schema", part.ref, problem.path, problem.text)


def _problems(part: Part) -> list[Problem]:
    return find_problems(part.kind, part.name, {path: File(data) for path, data in part.files.items()})


def _size(part: Part, old: Part | None, limits: Limits) -> Iterator[GateFinding]:
    path = main_path(part.kind, part.name, part.files)
    if path:
        document = parse_document(part.files[path])
        lines = part.files[path].count(b"\n") + 1
        if lines > limits.lines and lines > _lines(old, path):
            yield GateFinding("size", part.ref, path, f"it has {lines:,} lines, the limit is {limits.lines}")
        description = document.fields.get("description")
        if isinstance(description, str) and len(description) > limits.description:
            text = f"its description has {len(description):,} characters, the limit is {limits.description:,}"
            yield GateFinding("size", part.ref, path, text)
    if old is not None:
        was, now = _bytes(old), _bytes(part)
        most = max(was * (1 + limits.growth), was + limits.slack)
        if now > most:
            text = f"it grew from {was:,} to {now:,} bytes; {int(most):,} are allowed at once"
            yield GateFinding("size", part.ref, "", text)


def _leaks(part: Part, texts: str, corpus: Corpus) -> Iterator[GateFinding]:
    # Names are read by models as well.
    for leak in corpus.leaks(f"{part.name.replace('-', ' ')}\n" + " ".join(part.files), texts):
        yield GateFinding("leak", part.ref, "", str(leak))
    for path, text in _texts(part).items():
        for leak in corpus.leaks(text, texts):
            yield GateFinding("leak", part.ref, path, str(leak))


def _texts(part: Part) -> Mapping[str, str]:
    return {path: data.decode("utf-8", "replace") for path, data in part.files.items()}


def _lines(part: Part | None, path: str) -> int:
    return part.files[path].count(b"\n") + 1 if part is not None and path in part.files else 0


def _bytes(part: Part) -> int:
    return sum(map(len, part.files.values()))

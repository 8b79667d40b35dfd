"""EvoAgent's lookup with a scripted judge, and its long histories.

    python benchmarks/seeds evoagent [--quick]

The cascade is the product's literal one (`--mode paper` of a search). The judge is scripted: of the
tasks that no trigger names it knows which skill is meant in nine of ten, and says that none fits
otherwise. No embedder runs. The histories are made up of turns that name files, links and skills.
What is measured of them is exact and needs no model. The paper's scores of dialogues need one and
are not measured. What its five dimensions are made of is: a scripted judge sees the flaws that two
sets of answers were written with, and the product's scorer makes grades and a score of them.
"""

import asyncio
import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evolvable_evolve.evolution.proposers import ModelAnswer, ModelQuestion
from evolvable_evolve.evolution.scorers.external_scorers import (
    JudgeCalibration,
    JudgeSample,
    JudgeScorer,
    rubric_digest,
    run_judge_calibration,
)
from evolvable_evolve.evolution.scorers.rubrics import named_rubrics
from evolvable_evolve.evolution.task import ModelUsage, ScorerSpec, Split, Task
from evolvable_store.operation import Actor, Principal
from evolvable_store.resource import Kind, Ref
from evolvable_store.search.index import IndexEntry
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.retrieval.cascade import search_evoagent
from evolvable_tools.retrieval.search_types import SearchQuery
from evolvable_tools.review.context_compression import MAX_TOKENS, AssetFiles, compress_history
from evolvable_tools.verbs import edit

PERSON = Caller(Actor.HUMAN, None, principal=Principal.PERSON, via="terminal")
WORK = {
    "invoices": ("invoice", "bill the customer"),
    "contracts": ("contract", "check the agreement"),
    "charts": ("chart", "draw the sales of the year"),
    "travel": ("itinerary", "plan the days in Lisbon"),
    "recipes": ("recipe", "cook for six"),
    "letters": ("cover letter", "answer the applicant"),
    "budgets": ("budget", "compare what was planned and spent"),
    "minutes": ("minutes", "write down what the meeting decided"),
    "surveys": ("survey", "ask the customers what they think"),
    "photos": ("photo", "crop the portraits"),
}
NO_SKILL = (
    "water the plants",
    "tell a joke",
    "what is the capital of Peru",
    "sing a song",
    "wake me at seven",
)
TURNS = (420, 1_200)


def cascade(per_skill: int = 4) -> tuple[Counter[str], Counter[str], int]:
    """Return by stage how many tasks were answered rightly and wrongly, and how many questions the
    judge was asked.
    """
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    asked: list[str] = []
    with (
        tempfile.TemporaryDirectory() as made,
        Library.open(Path(made) / "library", create=True) as library,
    ):
        for name, (trigger, _) in WORK.items():
            head = (
                f"name: {name}\ndescription: Works with {name}.\nmetadata:\n"
                f"  triggers: {json.dumps([trigger])}"
            )
            files = {"SKILL.md": f"---\n{head}\n---\n\nDo it.\n"}
            edit.update_resource(library, PERSON, Ref.parse(name), "made", files=files, create=True)

        def judge(task: str, entries: Sequence[IndexEntry]) -> tuple[IndexEntry | None, str]:
            asked.append(task)
            meant = next((name for name, (_, words) in WORK.items() if words in task), "")
            known = meant if len(asked) % 10 else ""  # one of ten it does not know
            return next((one for one in entries if one.name == known), None), "scripted"

        tasks = [
            (f"{trigger} number {n}", name)
            for name, (trigger, _) in WORK.items()
            for n in range(per_skill)
        ]
        tasks += [
            (f"please {words}, number {n}", name)
            for name, (_, words) in WORK.items()
            for n in range(per_skill)
        ]
        tasks += [(f"{words}, number {n}", "") for words in NO_SKILL for n in range(per_skill)]
        for task, meant in tasks:
            stages = search_evoagent(
                library.index, SearchQuery(task, Kind.SKILL, ("user",), 5), None, judge
            )
            [(stage, entry)] = [
                (name, one) for name, its in stages.items() for one in its.candidates
            ] or [("none", None)]
            found = entry.entry.name if entry is not None else ""
            (right if found == meant else wrong)[stage] += 1
    return right, wrong, len(asked)


def turn(number: int) -> dict[str, Any]:
    """Return a turn of a made-up history, of about 700 tokens, that names a file, a link and a
    skill of its own.
    """
    names = f"src/part{number}.py https://example.org/page/{number} skill:work-{number % 50}"
    words = " ".join(f"word{(number * 7 + n) % 997}" for n in range(330))
    return {
        "role": ("user", "assistant")[number % 2],
        "content": f"Step {number}: read {names}. {words}",
    }


def history(turns: int) -> dict[str, Any]:
    """Return what compressing does to a history of so many turns that grows one by one."""
    most = compressions = 0
    messages: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as made:
        files = AssetFiles(Path(made))
        older = ""
        for number in range(turns):
            messages.append(turn(number))
            short = compress_history(messages, files=files)
            if short.summary:
                compressions += 1
                most = max(most, tokens_of(short.messages[0]))
                older = short.older
            messages = [dict(message) for message in short.messages]
        names = vars(files.get(older)) if older else {}
    said = "\n".join([json.dumps(messages), *(name for its in names.values() for name in its)])
    named = [
        text for n in range(turns) for text in (f"src/part{n}.py", f"https://example.org/page/{n}")
    ]
    named += [f"skill:work-{n}" for n in range(min(50, turns))]
    lost = [name for name in named if name not in said]
    return {
        "turns": turns,
        "compressions": compressions,
        "names": len(named),
        "lost": len(lost),
        "head": most,
    }


def tokens_of(message: dict[str, Any]) -> int:
    """Return the tokens of one message as the product counts them."""
    return compress_history([message]).tokens_before


RUBRIC = "five-dimensions"
PARTS = dict(
    zip(
        named_rubrics()[RUBRIC],
        ("by CIF terms", "42 days", "insurance", "1. Book", "Dear sir"),
        strict=True,
    )
)
"""What an answer holds where a dimension is good; an answer without it is graded 2."""


class Grader:
    """The scripted judge: 5 for a part that the answer has, else 2.

    blind: it sees no part, and grades 4 throughout.
    """

    name = label = "scripted:grader"

    def __init__(self, *, blind: bool = False) -> None:
        self.blind = blind

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return the grades of one answer."""
        answer = question.data["answer"]
        grades = {
            name: 4 if self.blind else 5 if part in answer else 2 for name, part in PARTS.items()
        }
        said = {"dimensions": grades, "reason": "scripted", "feedback": "", "errors": []}
        return ModelAnswer(said, ModelUsage(1, 1, 1), self.name)


def letter(number: int, every: int) -> str:
    """Return an answer that lacks its n-th part in every so many answers.

    every: 0 for an answer that lacks none.
    """
    kept = [part for at, part in enumerate(PARTS.values()) if not every or (number + at) % every]
    return "; ".join(kept) or "I do not know."


def dimensions(tasks: int = 60) -> tuple[dict[str, dict[str, float]], dict[str, float], bool]:
    """Return the means by arm and dimension, the mean scores by arm, and whether a blind judge is
    refused.
    """
    spec = ScorerSpec("judge", {"rubric": RUBRIC})
    asked = [
        Task(f"t{n}", "Answer the customer.", spec, Split.VAL, f"d{n}", None) for n in range(tasks)
    ]
    samples = [
        JudgeSample(asked[n], letter(n, 0) if good else "Hello.", good)
        for n in range(4)
        for good in (1, 0)
    ]

    def calibration(grader: Grader) -> JudgeCalibration:
        return asyncio.run(run_judge_calibration(grader, RUBRIC, samples))

    judge = JudgeScorer(Grader(), {rubric_digest(RUBRIC): calibration(Grader())})
    means, scores = dict[str, dict[str, float]](), dict[str, float]()
    for arm, every in (("without", 2), ("with", 5)):
        found = [
            asyncio.run(judge.score(RUBRIC, task, letter(n, every))) for n, task in enumerate(asked)
        ]
        means[arm] = {name: sum(one.metrics[name] for one in found) / tasks for name in PARTS}
        scores[arm] = sum(one.value for one in found) / tasks
    return means, scores, not calibration(Grader(blind=True)).passes


def main(*, quick: bool = False) -> bool:
    """Print the tables, and return whether they hold what they must."""
    right, wrong, asked = cascade(2 if quick else 20)
    print("Cascade [scripted judge]: rightly answered by stage, wrongly, questions")
    print(f"  {dict(right)}; {dict(wrong)}; {asked}")
    found = [history(turns) for turns in (TURNS[:1] if quick else TURNS)]
    print(
        "Long histories [made up, exact]: turns, compressions, names, lost, head as a share "
        "of the limit"
    )
    for one in found:
        share = one["head"] / MAX_TOKENS
        print(
            f"  {one['turns']:,} {one['compressions']} {one['names']:,} {one['lost']} {share:.1%}"
        )
    means, scores, refused = dimensions(20 if quick else 60)
    print(
        "Five dimensions [scripted judge]: means by arm, score; whether a judge that sees no "
        "difference is refused"
    )
    for arm, its in means.items():
        print(
            f"  {arm}: {', '.join(f'{name} {mean:.2f}' for name, mean in its.items())}; "
            f"{scores[arm]:.3f}"
        )
    print(f"  {refused}")
    graded = all(
        abs(sum(its.values()) / 5 - (1 + 4 * scores[arm])) < 1e-9 for arm, its in means.items()
    )
    kept = (
        refused
        and graded
        and all(
            one["lost"] == 0 and one["head"] <= MAX_TOKENS / 4 and one["compressions"]
            for one in found
        )
    )
    return kept and not wrong["keyword"] and not wrong["llm"]

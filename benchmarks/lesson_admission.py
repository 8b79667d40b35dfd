"""What the admission of lessons lets through: python benchmarks/lesson_admission.py [--verbose]
[FILE]

FILE: labelled candidates, by default `lessons/lessons.jsonl`: 100 good ones and 200 bad ones of ten
kinds. Each is judged as the answer of a reviewer to a transcript. No model takes part, and nothing
is said of one.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from labelled_sessions import Do, Labelled, Say
from samples import put_texts

from evolvable_store.operation import Actor
from evolvable_store.store import Store
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.redaction.redactor import Redactor
from evolvable_tools.review.review_config import ReviewSettings
from evolvable_tools.review.service import review_session, submit_review

CASES = Path(__file__).parent / "lessons" / "lessons.jsonl"
AIMS = {"good": 0.9, "bad": 0.05, "double": 0.9, "contradicts": 0.9}


class Verdict(NamedTuple):
    """What became of one candidate.

    code: of the refusal, '' where it was admitted. scope: where the change goes.
    """

    case: Mapping[str, Any]
    code: str
    ref: str


def judge(case: Mapping[str, Any], folder: Path, redactor: Redactor) -> Verdict:
    """Return what the admission makes of one candidate, in a library that holds its skill alone."""
    home, candidate = folder / f"home-{case['id']}", dict(case["candidate"])
    name = case["skill"].split("\nname: ")[1].split("\n")[0]
    with Store.open(home, create=True) as store:
        put_texts(store, {name: case["skill"]})
    events = tuple(event(role, text) for role, text in case["session"])
    path = Labelled(f"lesson-{case['id']}", events, frozenset()).write(folder)
    caller, settings = Caller(Actor.AGENT, scopes=("shop", "user")), ReviewSettings(redactor)
    with Library.open(home) as library:
        begun = review_session(library, caller, settings, transcript_path=path)
        if begun.packet is None:
            return Verdict(case, "no_review", "")
        quote = candidate.pop("quote")
        spans = begun.packet["data"]["evidence"]
        span = next((one["id"] for one in spans if quote[:40] in one["text"]), spans[-1]["id"])
        candidate["evidence"] = [{"span": span, "quote": quote}]
        done = submit_review(library, caller, settings, str(begun.review_id), [candidate])
        if done.proposals:
            return Verdict(case, "", done.proposals[0].ref)
        return Verdict(case, done.refused[0].code if done.refused else "nothing", "")


def event(role: str, text: str) -> Say | Do:
    """Return one event of a session."""
    if role == "page":
        return Do(
            "WebFetch", {"url": "https://tips.example.org", "prompt": "what does it say"}, text
        )
    return Say(text, agent=role == "agent")


def judge_all(cases: Iterable[Mapping[str, Any]]) -> list[Verdict]:
    """Return what the admission makes of candidates."""
    redactor = Redactor()
    with tempfile.TemporaryDirectory(prefix="lessons-") as folder:
        return [judge(case, Path(folder), redactor) for case in cases]


def read_cases(path: Path = CASES) -> list[dict[str, Any]]:
    """Return the labelled candidates of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def figures(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """Return the share of the good ones and of the bad ones that were admitted, and of two kinds
    that was found.
    """
    all_of = list(verdicts)

    def share(of: list[Verdict], codes: set[str]) -> float:
        return sum(one.code in codes for one in of) / len(of) if of else 0.0

    labels = {
        label: [one for one in all_of if one.case["label"] == label] for label in ("good", "bad")
    }
    kinds = {
        kind: [one for one in all_of if one.case["kind"] == kind]
        for kind in ("double", "contradicts")
    }
    found = {kind: share(of, {kind}) for kind, of in kinds.items()}
    return {label: share(of, {""}) for label, of in labels.items()} | found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, nargs="?", default=CASES)
    parser.add_argument(
        "--verbose", action="store_true", help="name what was judged otherwise than labelled"
    )
    options = parser.parse_args()
    verdicts = judge_all(read_cases(options.file))
    for kind in dict.fromkeys(sorted(one.case["kind"] for one in verdicts)):
        codes = Counter(one.code or "admitted" for one in verdicts if one.case["kind"] == kind)
        print(f"{kind:14} {', '.join(f'{code} {number}' for code, number in codes.most_common())}")
    if options.verbose:
        for one in verdicts:
            if (one.case["label"] == "good") != (not one.code):
                print(
                    f"{one.case['id']} {one.case['kind']} {one.code or 'admitted'}: "
                    f"{one.case['candidate']['claim']}"
                )
    found = figures(verdicts)
    lines = {
        "good": "admitted of the good",
        "bad": "admitted of the bad",
        "double": "found of the doubles",
    }
    lines["contradicts"] = "found of the contradictions"
    for name, text in lines.items():
        print(f"{text} {found[name]:.2f} (at {'most' if name == 'bad' else 'least'} {AIMS[name]})")


if __name__ == "__main__":
    main()

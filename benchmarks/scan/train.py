"""Train the linear classifier of the scan and write its weights.

Positives are our own: `hostile/training.txt`, the tuned half of `hostile/fresh.jsonl` and of
`hostile/sentences.jsonl`, the tuned edits of `hostile/edits.jsonl` that say something, and the
instructions among the hostile cases of the tests. Negatives are sentences of real skills (`CORPUS`,
JSON lines with `repo`, `name`, `description`, `body`), the sentences that real edits add and the
items of AGENTS.md files (`--clones`, half A of each), everyday lessons of our own, and the harmless
cases of the tests. Of the corpus, the repositories whose hash lies in the first 70 % are trained
on, but those of half B and of `edits_apart.jsonl`; of the two other parts of 15 % figures are
printed. No text of others is kept, only weights. Needs scikit-learn, numpy and scipy.

The weights saw none of the texts that are held out, of half B, or apart. Features, training data
and limits were chosen while the figures of these texts were looked at, the limit for changes above
all; the texts of SKILL-INJECT were read before lines of `hostile/training.txt` were written. So no
figure is that of texts that had no part in a choice.
"""

import argparse
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import edits
import lessons
import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from evolvable_store.resource import Kind
from evolvable_tools.scan import classifier
from evolvable_tools.scan.scanner import scan
from evolvable_tools.scan.text_analysis import TextPart, parts, sentence_diff, view_of, windows

HOSTILE = Path(__file__).with_name("hostile")
CASES = HOSTILE.parents[2] / "tests" / "data" / "hostile_skills.json"
WEIGHTS = Path(classifier.__file__).with_name(classifier.DATA)
LIMITS = (1.2, 0.6, 2.0, 2.0)
"""English, new and changed, then other languages; chosen with the figures of all sets in view, held
out or not.
"""
STRENGTH, POSITIVE_WEIGHT = 0.1, 10
HARMLESS_TIMES = 5
EVERYDAY_TIMES = 15
SAYS_SOMETHING = (
    "egress",
    "credentials",
    "approval",
    "evidence",
    "library",
    "attention",
    "remote-instructions",
) + (
    "weakened-checks",
    "conceal",
    "odd-place",
)
"""Kinds of hostile edits that add an instruction; the others take something away or are
programs.
"""
WORDING = {"wording.model", "wording.steal", "wording.conceal"}
FIRST, HARDEST, ROUNDS = 60_000, 15_000, 3
"""Negatives of the first round, those with the highest score that each round adds, and rounds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument(
        "--clones", type=Path, required=True, help="folder of clones, as edits.py takes it"
    )
    options = parser.parse_args()
    skills = list(corpus(options.corpus))
    positive = matrix(hostile())
    work = [
        *of_half_a(options.clones),
        *lessons_of_half_a(options.clones),
        *harmless() * HARMLESS_TIMES,
    ]
    work += [text for line in lessons.everyday("tuned") for text in of(line)] * EVERYDAY_TIMES
    of_edits = matrix(work)
    negative = matrix(
        {sentence: None for part, text in skills if part == "train" for sentence in of(text)}
    )
    weights, base = trained(positive, negative, of_edits)
    step = float(np.abs(weights).max()) / 127
    small = np.clip(np.round(weights / step), -127, 127).astype(np.int8)
    WEIGHTS.write_bytes(classifier.HEAD.pack(step, base, *LIMITS) + small.tobytes())
    classifier.weights.cache_clear()
    for part in ("choose", "measure"):
        texts = [text for one, text in skills if one == part]
        rules, more = held(texts)
        shares = f"{rules / len(texts):.2%} held by other rules, {more / len(texts):.2%} more"
        print(f"{part}: {len(texts):,} real skills, {shares}")


def held(texts: list[str]) -> tuple[int, int]:
    """Return how many new skills other rules hold, and how many more the classifier does."""
    rules = more = 0
    for text in texts:
        found = {
            one.rule
            for one in scan(
                None, {"SKILL.md": text.encode("utf-8", "replace")}, Kind.SKILL
            ).findings
            if one.severity != "low"
        }
        rules += bool(found - WORDING)
        more += bool(found) and found <= WORDING
    return rules, more


def trained(
    positive: sp.csr_matrix, negative: sp.csr_matrix, of_edits: sp.csr_matrix
) -> tuple[np.ndarray, float]:
    """Return the weights and the base of a logistic regression, trained on the negatives that are
    hardest to tell.
    """
    chosen = np.random.default_rng(0).choice(
        negative.shape[0], min(FIRST, negative.shape[0]), replace=False
    )
    for _ in range(ROUNDS):
        rows = sp.vstack([positive, negative[chosen], of_edits])
        labels = np.r_[np.ones(positive.shape[0]), np.zeros(len(chosen) + of_edits.shape[0])]
        model = LogisticRegression(
            C=STRENGTH, solver="liblinear", class_weight={1: POSITIVE_WEIGHT, 0: 1}, random_state=0
        )
        model.fit(rows, labels)
        scores = negative @ model.coef_[0]
        chosen = np.union1d(chosen, np.argsort(-scores, kind="stable")[:HARDEST])
    return model.coef_[0], float(model.intercept_[0])


def matrix(sentences: Iterable[str]) -> sp.csr_matrix:
    """Return one row of features for each sentence."""
    rows = [sorted(classifier.places(one)) for one in sentences]
    ends = np.r_[0, np.cumsum([len(row) for row in rows])]
    places = np.concatenate([np.array(row, np.int32) for row in rows])
    return sp.csr_matrix(
        (np.ones(len(places), np.float32), places, ends), shape=(len(rows), classifier.SIZE)
    )


def of(text: str) -> list[str]:
    """Return the sentences of a document that the classifier looks at."""
    view = view_of("SKILL.md", text.encode("utf-8", "replace"))
    if view is None:
        return []
    pieces = (
        piece.text for one in parts(view) if one.part is not TextPart.CODE for piece in windows(one)
    )
    return [text for text in pieces if len(text) >= classifier.MIN_CHARACTERS or not text.isascii()]


def corpus(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each real skill with the part of the corpus that its repository is in, 'none' for one
    kept apart.
    """
    apart = {edit["repository"].lower() for edit in edits.recorded(edits.APART)}
    apart |= {
        edit["repository"].lower()
        for edit in edits.recorded()
        if edits.half(edit["repository"]) == "B"
    }
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            place = hashlib.sha256(one["repo"].lower().encode()).digest()[0] / 256
            head = (
                f"name: {one['name']}\ndescription: "
                f"{json.dumps(one['description'], ensure_ascii=False)}"
            )
            part = "train" if place < 0.7 else "choose" if place < 0.85 else "measure"
            if part == "train" and one["repo"].lower() in apart:
                part = "none"
            yield part, f"---\n{head}\n---\n{one['body']}"


def hostile() -> list[str]:
    """Return our own hostile sentences, without those that are held out."""
    texts = (HOSTILE / "training.txt").read_text(encoding="utf-8").splitlines()
    for name in ("fresh", "sentences"):
        lines = (HOSTILE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        texts += [
            one["text"]
            for one in map(json.loads, lines)
            if one["half"] == "tuned" and one.get("path", "SKILL.md") == "SKILL.md"
        ]
    for edit in map(json.loads, (HOSTILE / "edits.jsonl").read_text(encoding="utf-8").splitlines()):
        if (
            edit["half"] == "tuned"
            and edit["path"] == "SKILL.md"
            and edit["kind"] in SAYS_SOMETHING
        ):
            texts.append(edit["after"].replace(edit["before"], ""))
    found = list(
        dict.fromkeys(sentence for text in texts for sentence in of(text.replace("\\n", "\n")))
    )
    return (
        found
        + [one for text in cases("instruction", "medium") for one in of(text)] * HARMLESS_TIMES
    )


def harmless() -> list[str]:
    """Return the sentences of the harmless cases of the tests."""
    return [one for text in cases(None, "pass") for one in of(text)]


def cases(category: str | None, expected: str) -> list[str]:
    """Return the texts of the tests' cases of a category, None for all, with this verdict."""
    every = json.loads(CASES.read_text(encoding="utf-8"))["cases"]
    chosen = [
        one for one in every if category in (None, one["category"]) and one["expect"] == expected
    ]
    return [one.get("input") or "".join(one["input_parts"]) for one in chosen]


def lessons_of_half_a(clones: Path) -> list[str]:
    """Return the items of the AGENTS.md files of half A."""
    return list(
        dict.fromkeys(one for _, line in lessons.of_clones(clones, "A") for one in of(f"- {line}"))
    )


def of_half_a(clones: Path) -> list[str]:
    """Return the sentences that the real edits of half A add."""
    found: dict[str, None] = {}
    for edit in edits.recorded():
        texts = edits.read(clones, edit) if edits.half(edit["repository"]) == "A" else None
        before, after = texts or ({}, {})
        for path, data in after.items():
            view = view_of(path, data)
            if view is None or before.get(path) == data:
                continue
            added, _ = sentence_diff(view_of(path, before[path]) if path in before else None, view)
            prose = (
                piece.text
                for one in added
                if one.part is not TextPart.CODE
                for piece in windows(one)
            )
            found.update(dict.fromkeys(prose))
    return list(found)


if __name__ == "__main__":
    main()

"""What the admission lets through of labelled lessons, and how lines of a skill are compared."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from evolvable_tools.review.lesson_rules import contradict, line_terms

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def module(path: str) -> ModuleType:
    """Import a program of the benchmarks."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / path)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


def test_the_labelled_lessons_are_those_that_the_generator_makes() -> None:
    kept = module("lesson_admission.py").read_cases()
    assert kept == module("lessons/make.py").cases()
    assert Counter(one["label"] for one in kept) == {"good": 100, "bad": 200}
    assert set(Counter(one["kind"] for one in kept if one["label"] == "bad").values()) == {20}


@pytest.mark.process
def test_good_lessons_are_admitted_bad_ones_refused_and_doubles_and_contradictions_found() -> None:
    admission = module("lesson_admission.py")
    cases = admission.read_cases()
    sample = [
        one
        for one in cases
        if one["id"] % 6 == 0 or (one["kind"] in ("double", "contradicts") and one["id"] % 2)
    ]
    found = admission.figures(admission.judge_all(sample))
    assert found["good"] >= 0.9 and found["double"] >= 0.9 and found["contradicts"] >= 0.9
    assert found["bad"] <= 0.05


CONTRARY = [
    ("Always squash before the merge.", "Never squash before the merge."),
    ("Indent with 4 spaces.", "Indent code with 2 spaces."),
    ("Branch from `main`.", "Branch from `develop`."),
    ("Load the file with polars.", "Load the file with duckdb."),
    ("Lock the door after you leave.", "Lock the door before you leave."),
    ("You don't need to rebuild the index.", "Rebuild the index."),
]
COMPATIBLE = [
    ("Read the file as UTF-8, never as latin-1.", "Load the file with polars."),
    ("Never promise a delivery date.", "Greet the customer with the first name."),
    ("Never log passwords.", "Log with structlog."),
    ("Wait 10 minutes after the deployment.", "Keep dumps for 30 days."),
    ("Never push to main.", "Push the branch when the tests pass."),
    ("Run `make lint` before the commit.", "Run `make test` before the commit."),
    ("Add a label to each button.", "Add a label to each input."),
    ("Put 2 reviewers on a migration.", "Keep dumps for 30 days."),
    ("Do not edit generated files.", "Edit the manifest in infra/k8s."),
]


@pytest.mark.parametrize(("one", "other"), CONTRARY)
def test_lines_that_say_the_contrary_are_known(one: str, other: str) -> None:
    assert contradict(line_terms(one), line_terms(other)) and contradict(
        line_terms(other), line_terms(one)
    )


@pytest.mark.parametrize(("one", "other"), COMPATIBLE)
def test_lines_that_can_both_hold_are_no_contradiction(one: str, other: str) -> None:
    assert not contradict(line_terms(one), line_terms(other))

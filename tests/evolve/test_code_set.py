"""The code set of benchmarks/seeds: problems that are right, mistakes that are real, outcomes that
add up.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from confined import apart, needs_sandbox
from evolve_runs import program

if os.name != "posix":
    pytest.skip("its limits are those of POSIX", allow_module_level=True)

from seeds import autogenesis, optimizers
from seeds.code_set import build

from evolvable_evolve.evolution.executors.base import CommandHost
from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.task import CodeOutcome, Split
from evolvable_evolve.evolution.tasks.reader import read_taskset, scorer_files

PUBLIC = Path(build.HERE) / "environment/public"
PROBLEMS = [problem for problems in build.PROBLEMS.values() for problem in problems]
EACH_OUTCOME = frozenset(
    (
        "chunks",
        "happy-number",
        "missing-number",
        "leap-years",
        "digit-sum",
        "merge-ranges",
        "median",
        "anagrams",
    )
)


def test_there_are_sixty_problems_whose_right_answers_give_what_the_prompts_show() -> None:
    assert len(PROBLEMS) == len({one.name for one in PROBLEMS}) == 60
    for one in PROBLEMS:
        solve = one.solve()
        assert [(one.name, json.dumps(solve(*arguments))) for arguments, _ in one.shown] == [
            (one.name, json.dumps(given)) for _, given in one.shown
        ]
        assert all(fault.old in one.code for fault in one.faults)
        assert not [
            arguments for arguments in one.hidden if arguments in [shown for shown, _ in one.shown]
        ]


def test_what_the_scorer_knows_is_not_in_the_prompts_or_among_what_the_public_check_sees() -> None:
    taskset = read_taskset("code-set", build.taskset_files())
    assert {split: len(taskset.of(split)) for split in Split} == {
        Split.TRAIN: 16,
        Split.VAL: 16,
        Split.TEST: 28,
    }
    seen = {path for path in scorer_files(taskset) if path.startswith("public/")}
    assert seen == {"public/check.py", "public/harness.py", "public/visible.json"}
    for task in taskset.tasks:
        assert task.public is not None and task.public.files == "public"
        assert (task.expected or "").split()[0] not in task.prompt


@pytest.mark.process
def test_each_of_the_eight_outcomes_happens_and_rounds_raise_what_passes(tmp_path: Path) -> None:
    """Really executed, by a program in place of a model: scripted."""
    found = autogenesis.measure(tmp_path, program("Write Python."), 2, EACH_OUTCOME)
    first, *_, last = found.rows[:-1]
    assert first.outcomes == dict.fromkeys(map(str, CodeOutcome), 1)
    assert all(sum(row.outcomes.values()) == row.n == len(EACH_OUTCOME) for row in found.rows)
    means = [row.mean for row in found.rows[:-1]]
    assert means == sorted(means) and means[-1] >= means[0] + 0.5
    assert (last.outcomes["PR"], found.rows[-1].outcomes) == (6, last.outcomes), (
        "two mistakes only hidden cases show"
    )
    assert found.leaks == [] and found.prompts > 2 * len(EACH_OUTCOME)
    assert found.rows[-1].calls == found.prompts == sum(row.calls for row in found.rows[:-1])


@pytest.mark.process
def test_an_answer_can_read_no_file_and_starts_no_program(tmp_path: Path, monkeypatch) -> None:
    """An answer that reads the scorer's cases would pass them all."""
    monkeypatch.syspath_prepend(str(PUBLIC))
    import harness  # its folder is no package

    secret = tmp_path / "cases.json"
    secret.write_text("41")
    for code in (
        f"def solve():\n    return int(open({str(secret)!r}).read())\n",
        (
            "import os\ndef solve():\n    os.close(0)\n    return "
            f"int(os.read(os.open({str(secret)!r}, 0), 9))\n"
        ),
        f"import os\ndef solve():\n    os.execv('/bin/cat', ['cat', {str(secret)!r}])\n",
    ):
        ended = harness.run_cases(f"```python\n{code}```", [[[], 41]])
        assert ended.outcome in ("RE", "TLE") and ended.passed == 0
    assert (
        harness.run_cases("```python\ndef solve():\n    return 41\n```", [[[], 41]]).outcome == "PR"
    )
    sys.modules.pop("harness")


@needs_sandbox
@pytest.mark.process
def test_in_the_sandbox_each_of_the_eight_outcomes_happens_too(tmp_path: Path) -> None:
    found = autogenesis.measure(
        tmp_path, program("Write Python."), 0, EACH_OUTCOME, CommandHost(sandbox=apart())
    )
    assert found.rows[-1].outcomes == dict.fromkeys(map(str, CodeOutcome), 1)
    assert found.leaks == [] and found.seconds > 0


@pytest.mark.process
def test_repeats_of_one_problem_differ_only_where_the_stand_in_is_told_to_vary(
    tmp_path: Path,
) -> None:
    task = next(
        one
        for one in read_taskset("code-set", build.taskset_files()).tasks
        if one.id == "palindrome"
    )
    answers = {}
    for varies in (False, True):
        executor = CommandExecutor(
            build.write_stand_in(tmp_path / str(varies), varies=varies), free=True
        )
        answers[varies] = []
        for repeat in range(4):
            work = tmp_path / f"{varies}-{repeat}" / "work"
            work.mkdir(parents=True)
            answers[varies].append(
                asyncio.run(executor.run(task, program("Write Python."), repeat, work)).output
            )
    assert len(set(answers[False])) == 1 < len(set(answers[True]))


def answer(code: str) -> dict[str, str]:
    return {"answer": f"```python\n{code}\n```"}


def test_the_script_in_place_of_a_model_reads_a_rule_off_an_answer_and_proposes_it_once() -> None:
    plain = answer("def solve(n):\n    return n")
    assert optimizers.read_answer({"answer": "def solve(n): return n"}) == "format"
    assert optimizers.read_answer(answer("def solve(n)\n    return n")) == "format"
    assert (
        optimizers.read_answer(answer("def solve(n):\n    while True:\n        pass")) == "limits"
    )
    assert optimizers.read_answer({}) == "", "an answer that never came says nothing"
    assert optimizers.read_answer(plain, better=True) == "edges"
    assert optimizers.read_answer(plain) in optimizers.GUESSES
    assert optimizers.choose_rule(["limits", "format", "limits"], []) == "limits"
    assert optimizers.choose_rule(["limits", "format", "limits"], ["limits"]) == "format"
    tried = list[str]()
    for _ in optimizers.RULES:
        tried.append(optimizers.choose_rule([""], tried))
    assert sorted(tried) == sorted(optimizers.RULES)


def test_a_question_that_holds_an_expected_answer_or_a_task_of_validation_or_test_is_found() -> (
    None
):
    taskset = read_taskset("code-set", build.taskset_files())
    train, val = (taskset.of(split)[0] for split in (Split.TRAIN, Split.VAL))
    assert optimizers.question_leaks([train.prompt, "A case fails."], taskset) == []
    assert optimizers.question_leaks([val.prompt], taskset) == [val.id]
    assert optimizers.question_leaks([f"It is {(train.expected or '').split()[0]}."], taskset) == [
        train.id
    ]


@needs_sandbox
@pytest.mark.nightly
@pytest.mark.parametrize("optimizer", ["textgrad", "reinforce_pp", "grpo"])
def test_an_optimizer_asks_a_model_over_http_and_meets_the_sealed_test_on_executed_answers(
    tmp_path: Path, optimizer: str
) -> None:
    """Scripted; the answers are executed in the sandbox."""
    found = optimizers.optimize(tmp_path, optimizer, CommandHost(sandbox=apart()))
    assert found.verdict["verdict"] == "PROMOTE" and "edges" in found.kept and found.leaks == []
    assert (found.samples > 0) is (optimizer != "textgrad") and found.samples < found.trials
    assert ("critic" in found.questions) is (optimizer == "textgrad")

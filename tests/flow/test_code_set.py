"""The code set of benchmarks/seeds: problems that are right, mistakes that are real, outcomes that add up."""

import json
import os
import sys
from pathlib import Path

import pytest
from evolve_runs import program

if os.name != "posix":
    pytest.skip("its limits are those of POSIX", allow_module_level=True)

from seeds import autogenesis
from seeds.code_set import build

from evolvable_tools.evolve.task import CodeOutcome, Split
from evolvable_tools.evolve.tasks.reader import read_taskset, scorer_files

PUBLIC = Path(build.HERE) / "environment/public"
PROBLEMS = [problem for problems in build.PROBLEMS.values() for problem in problems]
EACH_OUTCOME = frozenset(
    ("chunks", "happy-number", "missing-number", "leap-years", "digit-sum", "merge-ranges", "median", "anagrams")
)


def test_there_are_sixty_problems_whose_right_answers_give_what_the_prompts_show() -> None:
    assert len(PROBLEMS) == len({one.name for one in PROBLEMS}) == 60
    for one in PROBLEMS:
        solve = one.solve()
        assert [(one.name, json.dumps(solve(*arguments))) for arguments, _ in one.shown] == [
            (one.name, json.dumps(given)) for _, given in one.shown
        ]
        assert all(fault.old in one.code for fault in one.faults)
        assert not [arguments for arguments in one.hidden if arguments in [shown for shown, _ in one.shown]]


def test_what_the_scorer_knows_is_not_in_the_prompts_or_among_what_the_public_check_sees() -> None:
    taskset = read_taskset("code-set", build.taskset_files())
    assert {split: len(taskset.of(split)) for split in Split} == {Split.TRAIN: 16, Split.VAL: 16, Split.TEST: 28}
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
    assert (last.outcomes["PR"], found.rows[-1].outcomes) == (6, last.outcomes), "two mistakes only hidden cases show"
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
        f"import os\ndef solve():\n    os.close(0)\n    return int(os.read(os.open({str(secret)!r}, 0), 9))\n",
        f"import os\ndef solve():\n    os.execv('/bin/cat', ['cat', {str(secret)!r}])\n",
    ):
        ended = harness.run_cases(f"```python\n{code}```", [[[], 41]])
        assert ended.outcome in ("RE", "TLE") and ended.passed == 0
    assert harness.run_cases("```python\ndef solve():\n    return 41\n```", [[[], 41]]).outcome == "PR"
    sys.modules.pop("harness")

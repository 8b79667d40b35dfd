"""What a check of a task set finds before anything is spent, and what it says the figures could
show.
"""

import asyncio
import json
import sys

import order_emails
import pytest
from command_line import CommandLine

from evolvable_evolve.evolution.executors.command_executor import CommandExecutor
from evolvable_evolve.evolution.plan import make_plan
from evolvable_evolve.evolution.scorers.registry import TaskSetScorer
from evolvable_evolve.evolution.statistics.power import PowerDesign, smallest_gain
from evolvable_evolve.evolution.task import Split
from evolvable_evolve.evolution.tasks.diagnostics import check_taskset
from evolvable_evolve.evolution.tasks.reader import read_taskset
from evolvable_evolve.evolution.tasks.scorer_calibration import IssueLevel

ABOUT = b"---\nname: sums\ndescription: Sums.\nalike: only-words\n---\n"
SPLITS = ["train"] * 15 + ["val"] * 20 + ["test"] * 40


def sums(count=75, **fields):
    """Records of sums with their splits; a function among the fields is asked for each."""
    return [
        {
            "id": f"t{n}",
            "prompt": f"What is {n} and {n}?",
            "expected": str(2 * n),
            "split": SPLITS[n % 75],
        }
        | {key: value(n) if callable(value) else value for key, value in fields.items()}
        for n in range(count)
    ]


def checked(records, looks=0, repeats=0, **files):
    data = {"tasks.jsonl": "\n".join(map(json.dumps, records)).encode(), "ENVIRONMENT.md": ABOUT}
    taskset = read_taskset("sums", data | {p: t.encode() for p, t in files.items()})
    return asyncio.run(check_taskset(taskset, looks=looks, repeats=repeats))


def rules(found, level=IssueLevel.REFUSE):
    return [remark.rule for remark in found.remarks if remark.level is level]


def first(scorer, **known):
    """The scorer for every task, and for the first one with known answers."""
    return lambda n: scorer if n else scorer | {"args": scorer["args"] | known}


def command(program, **args):
    return {"type": "command", "args": {"argv": [sys.executable, "-c", program], **args}}


def test_a_test_of_few_groups_can_claim_only_its_own_tasks_and_the_check_and_the_plan_say_so():
    records = sums(
        120,
        split=lambda n: "train" if n < 20 else "val" if n < 40 else "test",
        group=lambda n: f"g{n % 7}",
    )
    found = checked(records)
    taskset = read_taskset("sums", {"tasks.jsonl": "\n".join(map(json.dumps, records)).encode()})

    assert found.exploratory and found.passes
    [said] = [one.text for one in found.remarks if one.rule == "few-groups"]
    assert "60 tasks of the test" in said and "0 of val" in said
    plan = make_plan(taskset)
    assert (plan.claim, plan.tests, plan.repeats) == ("these tasks", 60, 5)
    assert any("under 8 groups" in one for one in plan.remarks)


def test_a_sound_task_set_passes_and_says_what_it_could_show():
    found = checked(sums())

    assert found.passes and not found.exploratory
    assert found.sizes == {"train": 15, "val": 20, "test": 40}
    assert found.scorers == {"numeric_strict": 75}
    assert (
        found.detectable
        == smallest_gain(PowerDesign.of(40, 2))
        < smallest_gain(PowerDesign.of(40, 1))
    )
    [told] = [one.text for one in found.remarks if "each run 2 times" in one.text]
    assert "40 test tasks" in told and "a true gain of" in told
    files = {"tasks.jsonl": "\n".join(map(json.dumps, sums())).encode(), "ENVIRONMENT.md": ABOUT}
    taskset = read_taskset("sums", files)
    assert found.detectable == make_plan(taskset).detectable, "one figure, whoever is asked"
    assert "14% of the results" in told


def test_every_look_before_makes_the_test_blunter():
    found = checked(sums(), looks=2)

    assert found.detectable > 1.2 * checked(sums()).detectable
    remarks = str(found.remarks)
    assert "looked at 2 times before" in remarks and "p <= 0.0015" in remarks


def test_few_tasks_are_for_exploring_only():
    found = checked(
        [
            record | {"split": split}
            for record, split in zip(sums(9), ["train", "val", "test"] * 3, strict=True)
        ]
    )

    assert found.passes and found.exploratory
    assert "With 9 tasks a run is exploratory" in str(found.remarks)


def test_without_tasks_to_learn_from_or_to_choose_by_nothing_is_spent():
    assert rules(checked(sums(split="test"))) == ["no-tasks", "no-tasks"]


def test_the_same_task_in_two_splits_is_refused_whatever_its_case_and_spaces():
    twin = {"id": "twin", "prompt": "WHAT is   1 and 1?", "expected": "2", "split": "test"}
    found = checked([*sums(), twin])

    assert rules(found) == ["duplicate"]
    assert "t1, twin" in found.remarks[0].text and "test and train" in found.remarks[0].text
    assert rules(checked([*sums(), twin | {"expected": "3"}])) == ["contradiction"]
    assert rules(checked([*sums(), twin | {"split": "train"}]), IssueLevel.WARN)[:1] == [
        "duplicate"
    ]


def test_the_same_words_about_another_file_are_another_task():
    records = sums(prompt="Add what stands in numbers.txt.", files=lambda n: f"in/{n}")
    assert checked(records, **{f"in/{n}/numbers.txt": f"{n} {n}" for n in range(75)}).passes


def test_a_workspace_that_holds_another_part_s_is_refused():
    files = {f"in/{n}/numbers.txt": f"{n} {n}" for n in range(75)} | {"in/a.txt": "a"}
    found = checked(sums(files=lambda n: f"in/{n}" if n else "in"), **files)
    assert rules(found) == ["workspace-within"]


@pytest.mark.parametrize(
    ("path", "text", "level"),
    [
        ("answer.txt", "150\n", IssueLevel.REFUSE),
        ("gold.json", '{"a": 150}', IssueLevel.REFUSE),
        ("b.txt", "1 150 2", IssueLevel.NOTE),
    ],
)
def test_an_answer_that_lies_in_the_workspace_is_found(path, text, level):
    extra = {"id": "x", "prompt": "How many?", "expected": "150", "split": "train", "files": "in"}
    assert "answer-in-files" in rules(checked([*sums(), extra], **{f"in/{path}": text}), level)


def test_one_answer_that_solves_half_of_the_tasks_is_pointed_out():
    assert "one-answer" not in rules(checked(sums()), IssueLevel.WARN)
    assert "one-answer" in rules(
        checked(sums(expected=lambda n: "yes" if n % 4 else "no")), IssueLevel.WARN
    )


def test_a_scorer_by_which_a_list_of_guesses_passes_is_pointed_out():
    assert "guesses-pass" in rules(checked(sums(scorer="officeqa_compat")), IssueLevel.WARN)
    assert "guesses-pass" not in rules(checked(sums()), IssueLevel.WARN)


@pytest.mark.process
def test_a_pattern_needs_a_known_good_answer_and_one_for_all_sees_the_shape_alone():
    digits = {"type": "regex", "args": {"pattern": r"^\d+$"}}
    assert rules(checked(sums(scorer=digits, expected=None))) == ["no-known"]
    assert "shape-only" in rules(
        checked(sums(scorer=first(digits, good=["5"]), expected=None)), IssueLevel.WARN
    )
    assert rules(checked(sums(scorer={"type": "regex", "args": {"pattern": ".*"}}))) == ["bad-is-1"]
    assert rules(checked(sums(scorer={"type": "regex", "args": {"pattern": "^x$"}}))) == [
        "good-not-1"
    ]


RIGHT = (
    "import json, sys; g = json.load(sys.stdin); print(json.dumps({'score': float(g['output'] == "
    "g['expected'])}))"
)


@pytest.mark.process
def test_a_command_is_tried_on_known_answers_before_it_costs_anything():
    assert checked(sums(scorer=command(RIGHT))).passes
    assert rules(checked(sums(scorer=command("print('{\"score\": 1}')")))) == ["bad-is-1"]
    assert rules(checked(sums(scorer=command("print('{\"score\": 0}')")))) == ["good-not-1"]
    assert set(rules(checked(sums(scorer=command("raise SystemExit(1)"))))) == {"scorer-trouble"}


@pytest.mark.process
def test_a_command_that_reads_outputs_of_another_form_is_told_that_it_needs_a_known_good_one():
    reads_json = (
        "import json, sys; given = json.load(sys.stdin); out = given['output']\n"
        "if out[:1].isdigit(): sys.exit('the output is no object')\n"
        "right = out[:1] == '{' and str(json.loads(out)['sum']) == given['expected']\n"
        "print(json.dumps({'score': float(right)}))"
    )
    found = checked(sums(scorer=command(reads_json)))
    assert rules(found) == ["no-known"] and "expected answer" in found.remarks[0].text

    def known(n):
        return command(reads_json, good=[json.dumps({"sum": 2 * n})])

    assert checked(sums(scorer=known)).passes


def test_tasks_that_a_review_found_are_read_and_wait_for_their_scorer():
    old = {
        "prompt": "Add a column.",
        "check": "pytest tests/db",
        "session": "s 1",
        "reviewed": False,
    }
    new = {
        "id": "session-ab",
        "prompt": "Sort it.",
        "check": "see",
        "source": "session:s1",
        "reviewed": False,
    }
    found = checked([*sums(), old, new])

    assert rules(found) == ["unreviewed"] and len(found.remarks[0].tasks) == 2
    assert checked([*sums(), {**new, "expected": "1", "reviewed": True}]).passes


@pytest.mark.process
def test_a_command_that_scores_by_chance_is_refused():
    found = checked(
        sums(
            scorer=command(
                "import os; print('{\"score\": 0.%d}' % int.from_bytes(os.urandom(6), 'big'))"
            )
        )
    )
    assert "scorer-unsteady" in rules(found)


@pytest.mark.process
def test_a_command_that_looks_at_the_shape_alone_is_pointed_out():
    shape = (
        "import json, sys; g = json.load(sys.stdin); right = g['output'].isdigit()\n"
        "print(json.dumps({'score': float(right), 'checks': [{'name': 'd', 'pass': right, 'kind': "
        "'shape'}]}))"
    )
    found = checked(sums(scorer=first(command(shape), good=["5"], bad=["x"]), expected=None))
    assert "shape-only" in rules(found, IssueLevel.WARN)


@pytest.mark.process
def test_a_known_answer_may_be_files_that_a_run_left():
    looks = "import os; print('{\"score\": %d}' % os.path.exists('done.txt'))"
    good = {"output": "", "files": {"done.txt": "yes"}}
    assert checked(sums(scorer=first(command(looks), good=[good]), expected=None)).passes


def test_a_judge_without_enough_known_answers_is_refused():
    judge = {"type": "judge", "args": {"rubric": "Is it kind?"}}
    assert rules(checked(sums(scorer=judge))) == ["judge-uncalibrated"]
    known = {
        "type": "judge",
        "args": {"rubric": "Is it kind?", "good": ["dear"], "bad": ["stupid"]},
    }
    assert checked(sums(scorer=known)).passes


# The example that needs no model


def test_the_example_is_what_its_generator_writes_and_may_be_used():
    spec = order_emails.FOLDER / "generate.py"
    scope: dict[str, object] = {"__name__": "generate"}
    exec(compile(spec.read_text(encoding="utf-8"), str(spec), "exec"), scope)
    written = "".join(json.dumps(task) + "\n" for task in scope["tasks"]())
    assert (order_emails.FOLDER / "tasks.jsonl").read_text(encoding="utf-8") == written

    found = asyncio.run(check_taskset(order_emails.task_set()))
    assert found.passes and not found.exploratory
    assert found.sizes == {"train": 40, "val": 40, "test": 100}


@pytest.mark.parametrize(
    ("blocks", "share"),
    [
        ((), 0.45),
        ((order_emails.INVOICES,), 0.7),
        ((order_emails.RECEIPTS, order_emails.INVOICES), 0.9),
        ((order_emails.FAXES,), 0.45),
        ((order_emails.ANY_NUMBER,), 0.3),
    ],
)
@pytest.mark.process
def test_the_example_s_edits_do_what_is_said_of_them(blocks, share, tmp_path):
    async def mean(split):
        program, executor = order_emails.program(*blocks), order_emails.RulesHere()
        tasks = order_emails.task_set().of(split)
        scores = [
            await TaskSetScorer()(task, await executor.run(task, program, 0, tmp_path))
            for task in tasks
        ]
        return sum(each.value for each in scores) / len(scores)

    assert [asyncio.run(mean(split)) for split in (Split.TRAIN, Split.VAL, Split.TEST)] == [
        share
    ] * 3


@pytest.mark.process
def test_the_example_s_command_does_the_same_as_its_rules_here(tmp_path):
    real = CommandExecutor([sys.executable, "run.py"], folder=order_emails.FOLDER, free=True)
    tasks, program = order_emails.task_set().tasks[:8], order_emails.program(order_emails.INVOICES)
    for number, task in enumerate(tasks):
        (work := tmp_path / f"{number}/work").mkdir(parents=True)
        there = asyncio.run(real.run(task, program, 0, work))
        here = asyncio.run(order_emails.RulesHere().run(task, program, 0, work))
        assert (there.output, there.trace, there.read) == (here.output, here.trace, here.read)


# The command line


@pytest.fixture
def evolvable(tmp_path):
    return CommandLine(tmp_path)


def written(evolvable, records):
    folder = evolvable.project / "tasks"
    folder.mkdir(exist_ok=True)
    (folder / "tasks.jsonl").write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    (folder / "ENVIRONMENT.md").write_bytes(ABOUT)
    return folder


def test_check_says_by_its_exit_code_whether_anything_may_be_spent(evolvable):
    path = written(evolvable, sums())
    assert "tasks may be used." in evolvable("taskset", "check", path).out
    path = written(evolvable, sums(split="test"))
    ran = evolvable("taskset", "check", path, code=4)
    assert "refuse: " in ran.out and "no tasks in train" in ran.out
    assert evolvable("taskset", "check", path, "--json", code=4).json["passes"] is False


def test_check_names_every_line_that_is_no_task(evolvable):
    path = written(evolvable, [{"id": "a"}, {"id": "b", "prompt": "x", "scorer": "magic"}])
    said = evolvable("taskset", "check", path, code=1).err
    assert "line 1: 'prompt' is a required property" in said
    assert "line 2: " in said and "no scorer 'magic'" in said


def test_splits_are_shown_and_written_down_and_listed_without_what_is_asked(evolvable):
    path = written(
        evolvable,
        [{key: value for key, value in record.items() if key != "split"} for record in sums()],
    )
    shown = evolvable("taskset", "split", path).out
    assert "75 tasks would be" in shown
    assert (
        "Written to"
        in evolvable("taskset", "split", path, "--write", "--train", "0.2", "--val", "0.2").out
    )
    assert "names its split already" in evolvable("taskset", "split", path).out
    listed = evolvable("taskset", "list", path).out
    assert listed.count(" test ") == 45
    assert "What is" not in listed


def test_the_task_sets_of_the_library_are_listed_checked_and_split(evolvable):
    about = evolvable.project / "ENVIRONMENT.md"
    about.write_bytes(ABOUT)
    tasks = written(
        evolvable, [{k: v for k, v in record.items() if k != "split"} for record in sums()]
    )
    evolvable("init", "--yes")
    evolvable(
        *("update", "environment:sums", "--create", "-m", "sums"),
        *("--file", f"ENVIRONMENT.md={about}", "--file", f"tasks.jsonl={tasks / 'tasks.jsonl'}"),
    )
    assert "environment:sums" in (listed := evolvable("taskset", "list").out) and " 75 " in listed
    assert evolvable("taskset", "check", "environment:sums").code == 0
    assert "environment:sums@2" in evolvable("taskset", "split", "environment:sums", "--write").out
    assert "Every task names" in evolvable("taskset", "split", "environment:sums").out

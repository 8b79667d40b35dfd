"""`try`: does this skill help me? Tasks from a table, prompts and sessions; a scripted model behind
HTTP.
"""

import asyncio
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine, skill_text
from mcp_place import Place
from model_api import Asked, ModelApi, Reply, chats
from session_cases import FUNCTIONS, labelled_cases

from evolvable_evolve.evolution import (
    CommandHost,
    HostContext,
    TryResult,
    drive_run,
    find_run,
    linked_folders,
    parse_executor_spec,
    plan_try,
    read_try,
    start_try,
    tasks_of_prompts,
    tasks_of_set,
    tasks_of_table,
)
from evolvable_evolve.evolution.executors.base import PYTHON_PLACEHOLDER
from evolvable_evolve.evolution.tasks.dependency_folders import find_dependencies
from evolvable_evolve.evolution.tasks.reader import read_taskset
from evolvable_evolve.sandbox import SandboxChoice, sandbox_of
from evolvable_evolve.try_budget import within_budget
from evolvable_server.config import Config
from evolvable_server.person_config import PersonConfig
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.llm.endpoint import ModelEndpoint, NamedModels

ABOUT = b"---\nname: forms\ndescription: Tasks.\n---\n"
PERSON, HOUSE = Caller(Actor.HUMAN), Ref.parse("skill:house")
RULE = "Amounts of this house are rounded up to the next ten, also those of older forms."
QUESTIONS = (
    "What does the ferry to Brindisi cost for two bicycles?",
    "How many pages has the lease of the bakery?",
    "Sum up the invoices that Miriam left on the desk.",
    "Which budget did the choir get for costumes?",
    "Give the length of the garden fence in metres.",
    "Count the chairs that were lent to the school.",
    "Name the price of the used printing press.",
    "What is the deposit for the canoe?",
    "How much flour goes into nine loaves?",
    "State the number of votes for the blue flag.",
    "What did the orchard earn in its third season?",
    "How long may the lorry be on the narrow bridge?",
    "Tell the weight of the bronze bell.",
    "Which page of the atlas shows Tasmania?",
    "What is the fine for a late library book?",
)
FIXED = 5
"""The first so many are right with the skill alone; the last is never right, all others always."""


class House(ModelApi):
    """A model that reads the skill where it has one, and knows some answers without it."""

    broken = ""

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        messages = asked.body["messages"]
        if isinstance(data := messages[-1]["content"], str) and '"answers"' in data:
            return chats(json.dumps({"better": self.prefer(json.loads(data)["answers"])}))
        return self.work(messages)

    def prefer(self, answers: dict[str, str]) -> str:
        return next((name for name, text in answers.items() if "ten" in text), "same")

    def work(self, messages: list[dict]) -> Reply:
        read = next((one["content"] for one in messages if one["role"] == "tool"), None)
        skills = re.findall(r"^- ([a-z-]+): ", messages[0]["content"], re.MULTILINE)
        if read is None and skills:
            arguments = json.dumps({"name": skills[0]})
            call = {
                "id": "c1",
                "type": "function",
                "function": {"name": "read_skill", "arguments": arguments},
            }
            return chats(None, stop="tool_calls", tool_calls=[call])
        text = messages[1]["content"]
        if "canary" in text.casefold():
            word = re.search(r"kestrel-[0-9a-f]+", read or "")
            return chats(word[0] if word else "NONE")
        number = next(at for at, one in enumerate(QUESTIONS) if one in text)
        with_rule = read is not None and RULE in read
        right = number != len(QUESTIONS) - 1 and (number >= FIXED or with_rule)
        return chats(str(10 * number + 10) if right else "7")


def table(folder: Path) -> Path:
    path = folder / "asked.csv"
    rows = [f'"{question}",{10 * at + 10}' for at, question in enumerate(QUESTIONS)]
    path.write_text("\n".join(["question,answer", *rows]) + "\n", encoding="utf-8")
    return path


class TryPlace:
    """A library with one skill, and a model behind HTTP that does the tasks and judges."""

    def __init__(self, root: Path, library: Library, api: House) -> None:
        self.root, self.library, self.api = root, library, api
        endpoint = ModelEndpoint(
            "local", "openai-chat", "qwen", api.url, attempts=1, price=(1.0, 2.0)
        )
        self.means = HostContext(dict(os.environ), models=NamedModels({"local": endpoint}, {}))
        self.save("house", RULE)

    def save(self, name: str, body: str) -> Ref:
        ref = Ref.parse(f"skill:{name}")
        with self.library.store.transaction(Actor.HUMAN, "mine") as tx:
            tx.put(ref.within(USER_SCOPE), {"SKILL.md": File(skill_text(name, body=body).encode())})
        return ref

    def begin(self, *refs: Ref, listed=None, **options) -> str:
        spec = parse_executor_spec("local", None, self.means.models)
        tasks = listed or tasks_of_table(table(self.root))
        return start_try(
            self.library, PERSON, self.means, refs or (HOUSE,), tasks, spec, options
        ).run

    def drive(self, run: str) -> TryResult:
        folder = find_run(self.library.store.home, run)
        asyncio.run(drive_run(self.library, PERSON, folder, self.means))
        result = read_try(self.library.store.home, run)
        assert result is not None
        return result


@pytest.fixture
def place(tmp_path) -> Iterator[TryPlace]:
    with Library.open(tmp_path / "library", create=True) as library, House() as api:
        yield TryPlace(tmp_path, library, api)


@pytest.mark.process
def test_a_table_of_fifteen_tasks_comes_to_the_sentence_by_a_model_behind_http(place):
    result = place.drive(place.begin())

    assert result.state == "finished" and result.trials <= 150
    [one] = result.skills
    assert one.sentence.startswith(
        "With house 14 of 15, without 9 of 15, 2 of 2 times each: it helps on these tasks (fixed "
        "5 of 15, broke 0). It was read in 15 of 15."
    )
    assert "For tasks like these in general: cannot tell (5 better, 0 worse)" in one.sentence
    assert one.like_these.more is not None and one.tokens is not None and one.tokens > 0
    changed = [its for its in one.answers if its.score_with != its.score_without]
    assert [(its.without, its.with_skill) for its in changed][0] == ("7", "10")


@pytest.mark.process
def test_a_run_that_is_killed_at_a_record_goes_on_to_the_same_answer(place):
    run = place.begin()
    whole = place.drive(run).skills
    folder = find_run(place.library.store.home, run)
    lines = folder.ledger.read_bytes().splitlines(keepends=True)
    for cut in range(2, len(lines), max(1, len(lines) // 3)):
        folder.ledger.write_bytes(b"".join(lines[:cut]))
        assert [asdict_without_times(one) for one in place.drive(run).skills] == [
            asdict_without_times(one) for one in whole
        ], cut


def asdict_without_times(one):
    return replace(
        one, seconds=None, sentence=re.sub(r", \d+ s (more|less) a task", "", one.sentence)
    )


@pytest.mark.process
def test_a_skill_that_changes_nothing_makes_no_difference_and_several_are_tried_against_shared_runs(
    place,
):
    idle = place.save("idle", "Say hello to everybody who asks.")
    result = place.drive(place.begin(HOUSE, idle))

    answers = {one.skill: str(one.on_these.answer) for one in result.skills}
    assert answers == {"house": "helps", "idle": "no difference"}
    base = [
        asked
        for asked in place.api.asked
        if "- house" not in str(asked.body) and "- idle" not in str(asked.body)
    ]
    assert len(base) <= 5 * 15 + 10  # those without were run once for both


@pytest.mark.process
def test_prompts_that_nothing_checks_are_compared_by_a_judge_in_both_orders(place):
    class Compared(House):
        def work(self, messages):
            reply = super().work(messages)
            read = (
                any(one["role"] == "tool" for one in messages)
                and "canary" not in str(messages).casefold()
            )
            return chats("ten more, as the house does") if read else reply

    with Compared() as api:
        there = TryPlace(place.root, place.library, api)
        result = there.drive(there.begin(listed=tasks_of_prompts(QUESTIONS), judge="local"))
    [one] = result.skills
    assert one.on_these.compared and (one.on_these.fixed, one.on_these.broken) == (15, 0)
    assert "15 of 15 tasks, without it in 0" in one.sentence and "it helps" in one.sentence


def test_a_task_whose_answer_stands_in_the_skill_is_taught_and_left_out(place):
    place.save("house", "The invoices of Miriam sum up to 4711.25 pesetas exactly.")
    path = place.root / "more.csv"
    path.write_text(
        "question,answer\nSum up the invoices of Miriam.,4711.25 pesetas exactly\nA,1\nB,2\n",
        encoding="utf-8",
    )
    plan, listed = plan_try(
        place.library, PERSON, [HOUSE], tasks_of_table(path), {"kind": "simulated"}
    )
    [why] = plan.left_out.values()
    assert why.startswith("taught: ") and "expected answer" in why
    assert len(listed.tasks) == 2
    path.write_text(
        "question,answer\nSum up the invoices of Miriam.,4711.25 pesetas exactly\nA,1\n",
        encoding="utf-8",
    )
    with pytest.raises(InvalidArgument, match="1 left out: taught"):
        plan_try(place.library, PERSON, [HOUSE], tasks_of_table(path), {"kind": "simulated"})


@pytest.mark.process
def test_a_run_whose_arm_without_reads_the_skill_is_void(place):
    class Leaking(House):
        def work(self, messages):
            return (
                super().work(messages)
                if "canary" in str(messages).casefold()
                else chats(f"7 {RULE}")
            )

    with Leaking() as api:
        there = TryPlace(place.root, place.library, api)
        [one] = there.drive(there.begin()).skills
    assert str(one.on_these.answer) == "cannot tell"
    assert "The run is void: the arm without it" in one.sentence


SCRIPT = """\
import json, sys
given = json.load(sys.stdin)
has = bool(given["program"]["resources"])
number = int(given["prompt"].split()[-1])
right = has or number >= 5
output = str(number) if right else "nothing"
print(json.dumps({"output": output, "read": ["skill:house"] if has else []}))
"""


@pytest.mark.process
def test_the_command_shows_what_it_takes_and_ends_with_the_sentence(tmp_path):
    machine = CommandLine(tmp_path)
    script = tmp_path / "do.py"
    script.write_text(SCRIPT, encoding="utf-8")
    machine.configure(
        f"[executors.own]\ncommand = {json.dumps([sys.executable, '-I', '-S', str(script)])}\n"
    )
    machine("import", machine.save(tmp_path / "skills", "house", skill_text("house")), "--yes")
    path = tmp_path / "t.csv"
    path.write_text(
        "prompt,expected\n"
        + "".join(f"{q} Form {at},{at}\n" for at, q in enumerate(QUESTIONS[:8])),
        encoding="utf-8",
    )
    assert "no skill named huose" in machine("try", "huose", "--from", path, code=1).err, (
        "before all else"
    )
    planned = machine("try", "house", "--from", path, "--plan")
    assert "8 tasks from t.csv, each with its check" in planned.out and "80 at most" in planned.out
    found = machine("try", "house", "--from", path, "--max-calls", 80, "--json").json
    assert found["skills"][0]["on_these"]["answer"] == "helps"
    again = machine("evolve", "status", "--json").json
    assert "it helps on these tasks" in str(again)


REPAIR = """\
import json, pathlib, sys
given = json.load(sys.stdin)
has = bool(given["program"]["resources"])
for name, wrong, right, known in FUNCTIONS:
    file = pathlib.Path(given["workspace"], f"code_{name}.py")
    if file.exists() and (has or known):
        file.write_text(file.read_text().replace(wrong, right))
print(json.dumps({"output": "done", "read": ["skill:house"] if has else []}))
"""


@pytest.mark.process
def test_fifteen_labelled_sessions_come_to_a_verdict_by_their_own_checks(tmp_path):
    machine = CommandLine(tmp_path)
    usable = [
        case
        for case in labelled_cases()
        if case.name.startswith(("repair-", "commit-")) and case.usable
    ]
    chosen = [
        *usable[:12],
        *(case for case in usable if case.name in ("commit-0", "commit-1", "commit-2")),
    ]
    for case in chosen:
        case.write(machine.user)
    known = [
        [name, f"return {wrong}", f"return {right}", at >= 5]
        for at, (name, _, wrong, right, *_) in enumerate(FUNCTIONS)
    ]
    script = tmp_path / "repair.py"
    script.write_text(REPAIR.replace("FUNCTIONS", repr(known)), encoding="utf-8")
    machine.configure(
        f"[executors.own]\ncommand = {json.dumps([sys.executable, '-I', '-S', str(script)])}\n"
    )
    machine("import", machine.save(tmp_path / "skills", "house", skill_text("house")), "--yes")

    ran = machine("try", "house", "--max-calls", 150, stdin="y\n" * 4)
    assert "15 tasks from sessions, each with its check" in ran.out, ran.out + ran.err
    assert "house 15 of 15, without 7 of 15" in ran.out and "it helps on these tasks" in ran.out


def test_train_and_validation_of_a_task_set_are_tried_and_nothing_of_its_test():
    lines = [
        json.dumps(
            {
                "id": f"{split}-{at}",
                "prompt": f"{QUESTIONS[at]} {split}",
                "expected": "1",
                "split": split,
            }
            | ({"files": f"work/{split}"} if split == "test" else {})
        )
        for split in ("train", "val", "test")
        for at in range(3)
    ]
    files = {
        "ENVIRONMENT.md": ABOUT,
        "tasks.jsonl": "\n".join(lines).encode(),
        "work/test/secret.txt": b"sealed",
    }
    listed = tasks_of_set(read_taskset("forms", files))

    assert [one.id for one in listed.tasks] == [
        f"{split}-{at}" for split in ("train", "val") for at in range(3)
    ]
    assert "sealed" not in str(listed.files) and "test-" not in str(listed.files)


@pytest.mark.process
def test_agents_try_within_the_budget_of_a_day_and_with_the_executors_that_it_names(place):
    home = place.library.store.home
    person = PersonConfig(
        place.root / "config.toml", budgets={"try": {"executors": ["local"], "calls": 100}}
    )
    config, agent = Config(home, place.root, person=person), Caller(Actor.AGENT, session="s")
    spec, tasks = (
        parse_executor_spec("local", None, place.means.models),
        tasks_of_table(table(place.root)),
    )

    def begin(calls: int, **more: bool) -> str:
        return start_try(
            place.library, agent, place.means, [HOUSE], tasks, spec, {"calls": calls}, **more
        ).run

    assert within_budget(config, "local", "", {"cost": 1.0}) == {"cost": 1.0, "calls": 100}
    with pytest.raises(Refused, match="is not allowed to callers"):
        within_budget(config, "other", "", {})
    assert read_try(home, begin(60, waits=True)).state == "waiting"
    assert within_budget(config, "local", "", {}) == {"calls": 40}, (
        "what one under way may spend is spent"
    )
    begin(40)
    with pytest.raises(Refused, match="for a day is spent"):
        within_budget(config, "local", "", {})


@pytest.mark.process
@pytest.mark.anyio
async def test_a_trial_over_mcp_that_nobody_can_be_asked_about_waits_and_runs_nothing(
    tmp_path, monkeypatch
):
    (tmp_path / "there").mkdir()
    machine, owned = Place(tmp_path), tmp_path / "owned"
    machine.configure(f'[executors.mine]\ncommand = ["touch", "{owned}"]\n')
    monkeypatch.setattr(
        Place, "environment", {**machine.environment, "EVOLVABLE_TOOLSETS": "evolve"}
    )
    given = {
        "skill": "skill:pdf",
        "executor": "mine",
        "prompts": list(QUESTIONS),
        "expected": ["1"] * len(QUESTIONS),
    }
    async with machine.client("handshake", within=120) as client:
        begun = await client.call_tool("try_skill", given)
        assert not begun.is_error, begun.content[0].text
        assert begun.structured_content["waits"]
        assert "waits in the inbox" in begun.structured_content["warnings"][-1]
        status = await client.call_tool("evolve_status", {"run": begun.structured_content["run"]})
        assert status.structured_content["state"] == "waiting"
        assert (await client.call_tool("evolve_continue", {})).is_error, "a person begins it"
        inbox = await client.call_tool("review_inbox", {})
        [waiting] = inbox.structured_content["runs"]
        assert waiting["run"] == begun.structured_content["run"]
        assert "evolve_continue" in waiting["begin"]
    assert not owned.exists()
    run = waiting["run"]
    there = CommandLine(tmp_path / "there")
    there.home = machine.home
    listed = there("inbox", "list").out
    assert f"Run {run} waits for your yes" in listed
    assert "15 tasks from prompts" in listed
    assert str(owned) in listed
    assert there("inbox", "list", "--json").json["runs"][0]["run"] == run
    there.configure(f'[executors.mine]\ncommand = ["touch", "{owned}"]\n')
    talk = there.talk("inbox", "decide")
    talk.until("Begin it [y,n,s]?")
    talk.type("n\n")
    assert f"Run {run} is removed" in talk.end() and not owned.exists()
    assert not there("inbox", "list", "--json").json["runs"]


@pytest.mark.process
def test_a_table_may_have_the_command_that_checks_each_task_and_rows_with_an_answer(tmp_path):
    machine = CommandLine(tmp_path)
    script = tmp_path / "write.py"
    script.write_text(
        "import json, pathlib, sys\ngiven = json.load(sys.stdin)\n"
        "has = bool(given['program']['resources'])\nname = given['prompt'].split()[-1]\n"
        "if has or name > 'd':\n    pathlib.Path(given['workspace'], name + "
        "'.txt').write_text('x')\nprint(json.dumps({'output': '7', 'read': ['skill:house'] if has "
        "else []}))\n",
        encoding="utf-8",
    )
    machine.configure(
        f"[executors.own]\ncommand = {json.dumps([sys.executable, '-I', '-S', str(script)])}\n"
    )
    machine("import", machine.save(tmp_path / "skills", "house", skill_text("house")), "--yes")
    there = "python3 -c 'import sys; open(sys.argv[1])'"
    rows = [
        f'Write the file {name},,"{there} {name}.txt && {there} {name}.txt"' for name in "abcdefgh"
    ]
    path = tmp_path / "t.csv"
    path.write_text(
        "\n".join(["prompt,expected,check", *rows, "Say seven,7,", "Say nothing,,"]),
        encoding="utf-8",
    )

    planned = machine("try", "house", "--from", path, "--plan")
    assert "9 tasks from t.csv" in planned.out
    assert f"{there} a.txt && {there} a.txt" in planned.out.replace("\n", " ")
    assert "no answer and no check" in planned.out + planned.err
    ran = machine("try", "house", "--from", path, "--max-calls", 200, stdin="y\n" * 3)
    assert "house 9 of 9, without 5 of 9" in ran.out and "it helps on" in ran.out, ran.out
    path.write_text("prompt,check\nA,rm x | tee y\nB,true\n", encoding="utf-8")
    assert (
        "has the sign | of a shell" in machine("try", "house", "--from", path, "--plan", code=1).err
    )


def test_folders_of_dependencies_are_found_and_links_and_folders_of_the_commit_are_not(tmp_path):
    for folder in (
        "node_modules/left",
        "packages/app/node_modules",
        "vendor",
        "web",
        ".venv",
        "venv/bin",
    ):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "venv" / "pyvenv.cfg").write_text("home = /usr/bin\n", encoding="utf-8")
    (tmp_path / "web" / "node_modules").symlink_to(Path.home())
    held = {"packages/app/package.json": b"", "vendor/kept.go": b"", "web/index.js": b""}
    found = find_dependencies(tmp_path, held)
    assert sorted(found) == ["node_modules", "packages/app/node_modules", "venv"]
    assert found["venv"] == str(tmp_path / "venv")


@pytest.mark.process
def test_a_trial_in_the_sandbox_sees_the_dependencies_of_its_project_and_changes_nothing_of_them(
    tmp_path,
):
    if (sandbox := sandbox_of(SandboxChoice()).sandbox) is None:
        pytest.skip("no sandbox works here")
    (dependency := tmp_path / "project" / "app" / "node_modules").mkdir(parents=True)
    (dependency / "left.txt").write_text("left", encoding="utf-8")
    work = tmp_path / "trial" / "work"
    (work / "app").mkdir(parents=True)
    (work / "app" / "own.txt").write_text("own", encoding="utf-8")
    code = (
        "import pathlib; here = pathlib.Path('app'); "
        "print(here.joinpath('node_modules/left.txt').read_text())\n"
        "try: here.joinpath('node_modules/new.txt').write_text('x')\n"
        "except OSError: print('read only')\nhere.joinpath('made.txt').write_text('y')\n"
    )
    host = CommandHost(
        sandbox=sandbox, links={"one": linked_folders({"app/node_modules": str(dependency)})}
    )
    ran = asyncio.run(host.run((PYTHON_PLACEHOLDER, "-c", code), work, 30.0, task="one"))
    assert ran.out.decode().split("\n")[:2] == ["left", "read only"], ran.err
    assert sorted(path.name for path in (work / "app").iterdir()) == ["made.txt", "own.txt"], (
        "no copy came back"
    )
    assert [path.name for path in dependency.iterdir()] == ["left.txt"]
    other = asyncio.run(host.run((PYTHON_PLACEHOLDER, "-c", code), work, 30.0, task="two"))
    assert other.code == 1, "another task sees nothing of it"


def test_a_task_whose_files_hold_the_skill_as_rules_is_left_out_also_in_a_packed_project(place):
    body = (
        f"{RULE}\nNever round down what a customer pays in cash.\n"
        "A receipt names the amount before and after it."
    )
    place.save("house", body)
    with zipfile.ZipFile(packed := io.BytesIO(), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("docs/CLAUDE.md", f"# Rules of the project\n\n{body}\n")
        archive.writestr("tests/test_a.py", "assert True\n")
    files = {
        "ENVIRONMENT.md": ABOUT,
        "work/a/project.zip": packed.getvalue(),
        "work/b/AGENTS.md": RULE.encode(),
    }
    files["work/c/.codex/skills/house/SKILL.md"] = b"Another text under its name."
    lines = [
        {"id": one, "prompt": f"{one}?", "expected": "1", "split": "val", "files": f"work/{one}"}
        for one in "abc"
    ]
    lines += [{"id": one, "prompt": f"{one}?", "expected": "1", "split": "val"} for one in "de"]
    files["tasks.jsonl"] = "\n".join(map(json.dumps, lines)).encode()
    listed = tasks_of_set(read_taskset("forms", files))
    plan, left = plan_try(place.library, PERSON, [HOUSE], listed, {"kind": "simulated"})
    assert plan.left_out.keys() == {"a", "c"}
    assert plan.left_out["a"].endswith("hold the skill: docs/CLAUDE.md")
    assert plan.left_out["c"].endswith("hold the skill: .codex/skills/house/SKILL.md")
    assert [one.id for one in left.tasks] == ["b", "d", "e"], "one line in common is no copy"


@pytest.mark.process
def test_without_a_sandbox_copies_of_the_skill_at_home_are_told_and_reading_one_voids_the_run(
    place,
):
    copy = place.root / "user" / ".claude" / "skills" / "house" / "SKILL.md"
    copy.parent.mkdir(parents=True)
    copy.write_text("An older text.", encoding="utf-8")
    script = place.root / "do.py"
    script.write_text(
        f"import json\nprint(json.dumps({{'output': '1', 'trace': 'tool Bash: cat {copy}'}}))\n",
        encoding="utf-8",
    )
    spec = parse_executor_spec(f"{sys.executable} -I -S {script}")
    nothing = SandboxChoice(path=str(place.root))
    host = HostContext({**os.environ, "HOME": str(place.root / "user")}, sandbox=nothing)
    assert host.working_sandbox is None
    begun = start_try(
        place.library, PERSON, host, [HOUSE], tasks_of_table(table(place.root)), spec, {}
    )
    assert f"could read it in {copy.parent}" in " ".join(begun.warnings)
    asyncio.run(
        drive_run(place.library, PERSON, find_run(place.library.store.home, begun.run), host)
    )
    [one] = read_try(place.library.store.home, begun.run).skills
    assert "The run is void: the arm without it" in one.sentence


@pytest.mark.process
def test_under_several_executors_the_answers_stand_side_by_side_by_executor(tmp_path):
    machine = CommandLine(tmp_path)
    scripts = {"own": SCRIPT, "idle": SCRIPT.replace("right = has or number", "right = number")}
    lines = []
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
        command = json.dumps([sys.executable, "-I", "-S", str(tmp_path / f"{name}.py")])
        lines.append(f"[executors.{name}]\ncommand = {command}\n")
    machine.configure("".join(lines))
    machine("import", machine.save(tmp_path / "skills", "house", skill_text("house")), "--yes")
    path = tmp_path / "t.csv"
    path.write_text(
        "prompt,expected\n"
        + "".join(f"{q} Form {at},{at}\n" for at, q in enumerate(QUESTIONS[:8])),
        encoding="utf-8",
    )
    words = (
        "try",
        "house",
        "--from",
        path,
        "--executor",
        "own",
        "--executor",
        "idle",
        "--max-calls",
        80,
    )
    shown = machine(*words).out
    assert "own:\n  With house 8 of 8, without 3 of 8" in shown
    assert "idle:\n  With house 3 of 8" in shown
    assert "own (0.00 without, 1.00 with): [-nothing-] {+" in shown
    assert "idle (0.00 without, 0.00 with): nothing" in shown
    answers = {
        name: one["skills"][0]["on_these"]["answer"]
        for name, one in machine(*words, "--json").json["by_executor"].items()
    }
    assert answers["own"] == "helps" and answers["idle"] != "helps"

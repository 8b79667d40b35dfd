"""Tasks of one template are one group, whatever numbers and names they hold; a common frame around
contents is none.
"""

import ast
import asyncio
import inspect
import json
import random
import textwrap
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from evolvable_evolve.evolution.tasks import holdout
from evolvable_evolve.evolution.tasks.diagnostics import check_taskset
from evolvable_evolve.evolution.tasks.holdout import HeldOutTest, hold_out_test, look_at
from evolvable_evolve.evolution.tasks.locate import load_taskset, render_alike
from evolvable_evolve.evolution.tasks.opened_tasks import OpenedTaskLog
from evolvable_evolve.evolution.tasks.reader import InvalidTaskSet, read_taskset
from evolvable_evolve.evolution.tasks.templates import find_forms, structure
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import USER_SCOPE, Ref
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import approve_seen, update_resource

EXAMPLES = Path(__file__).parents[2] / "examples"


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NAMES = _words(
    "Maria Peter Aylin Chen Sofia Liam Noor Ravi Greta Pablo Mina Tomas Elif Anna Jonas Kofi"
)
CITIES = _words(
    "Oslo Bergen Paris London Lima Quito Cairo Delhi Tokyo Turin Lyon Porto Riga Vilnius Graz Linz"
)
MATTERS = (
    "parking",
    "holiday rules",
    "a late parcel",
    "the new office",
    "lunch",
    "a broken heater",
    "a lost badge",
)
PLANTED = (
    "Write a polite email to {n} about {m}.",
    "Translate the sentence that {n} lives in {c} to German.",
    "Book a train from {c} to {d} for {n} and name the platform.",
    "Draft a text message that tells {n} why {m} is cancelled.",
)


@cache
def functions() -> list[tuple[str, str]]:
    """The first line of what functions of the standard library say of themselves, and
    their source.
    """
    found = {}
    for module in (textwrap, inspect, ast, random, json, asyncio.tasks, asyncio.streams):
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (
                said := ast.get_docstring(node)
            ):
                found[said.splitlines()[0]] = ast.unparse(node)
    return [
        (said, source)
        for said, source in found.items()
        if not said.startswith("Return true if the object")
    ]


def filled(seed: int, texts: tuple[str, ...], count: int = 200) -> list[str]:
    chance = random.Random(seed)
    return [
        texts[number % len(texts)].format(
            n=chance.choice(NAMES),
            m=chance.choice(MATTERS),
            c=chance.choice(CITIES),
            d=chance.choice(CITIES),
            k=chance.randrange(10_000),
        )
        for number in range(count)
    ]


def groups(texts: list[str]) -> int:
    return len({form.group for form in find_forms(texts)})


def test_numbers_dates_paths_identifiers_and_quoted_names_are_one_mask():
    texts = [
        "Send order 17 of 2026-03-04 at src/app/main.py to 'Anna Ng' by send_mail",
        "send order PO-9 of 4 March 2026 at ~/x.txt to “Bo” by sendMail",
    ]

    assert structure(texts[0]) == structure(texts[1]) == _words("send order 0 of 0 at 0 to 0 by 0")
    assert len(structure("Summarise “the harbour office keeps a ledger of every ship”")) == 10, (
        "a quoted text stays"
    )


@pytest.mark.parametrize("planted", [1, 2, 4])
def test_planted_templates_are_found_with_digits_and_without(planted):
    digits = tuple(f"{one} Ticket {{k}}, floor {{k}}." for one in PLANTED)

    assert [groups(filled(7, some[:planted])) for some in (PLANTED, digits)] == [planted] * 2


def test_kinds_that_differ_in_a_word_and_repeat_stay_kinds():
    postage = [
        f"What does it cost to send {n} kg to {one}?" for n in range(1, 51) for one in CITIES[:4]
    ]
    crates = [
        f"Bring {n} crates to the {a} {b}."
        for a in ("red", "blue", "old")
        for b in ("mill", "quay")
        for n in range(5)
    ]
    lines = (EXAMPLES / "order-emails/tasks.jsonl").read_text(encoding="utf-8").splitlines()
    emails = [json.loads(line)["prompt"] for line in lines]

    assert (groups(postage), groups(crates), groups(emails)) == (4, 6, 5)


@pytest.mark.process
@pytest.mark.parametrize(
    "frame",
    [
        "{said}",
        "Write a Python function that does the following. {said}",
        (
            "You are a careful engineer. Think step by step and answer with a name and no word "
            "more. {said}"
        ),
        "Fix the failing test in src/app_{n}.py\n{source}",
        "Explain in two sentences what this does:\n\n{source}",
    ],
)
def test_a_common_frame_around_different_contents_is_no_template(frame):
    texts = [
        frame.format(n=n, said=said, source=source)
        for n, (said, source) in enumerate(functions()[:200])
    ]

    assert groups(texts) >= 0.8 * len(texts) and len(texts) > 150


def made(alike: str = "", prompts: list[str] | None = None, **more: str):
    prompts = prompts or filled(
        3, ("What does it cost to send {k} kg to Peru?", "Which {k} boats sail to Chile?"), 120
    )
    lines = [
        {"id": f"t{n}", "prompt": text, "expected": "7", "category": text.split()[-1], **more}
        for n, text in enumerate(prompts)
    ]
    about = f"---\nname: made\ndescription: m.\n{f'alike: {alike}' if alike else ''}\n---\n"
    return read_taskset(
        "made",
        {
            "tasks.jsonl": "\n".join(map(json.dumps, lines)).encode(),
            "ENVIRONMENT.md": about.encode(),
        },
    )


def test_without_a_person_templates_are_groups_and_the_check_asks_with_two_examples_of_each():
    found = asyncio.run(check_taskset(made()))

    assert found.asks and found.exploratory and found.passes and found.effective_n == 2
    assert [(one.tasks, len(one.examples)) for one in found.templates] == [(60, 2), (60, 2)]
    [said] = [one.text for one in found.remarks if one.rule == "templates"]
    assert said.startswith("These 120 tasks look like 2 templates: ") and "kg to Peru" in said


@pytest.mark.parametrize(
    ("alike", "effective", "claim"),
    [
        ("all-kinds", 60, "these kinds of tasks alone: Chile?, Peru?"),
        ("more-kinds", 2, "the effective n is"),
        ("only-words", 60, "they only read alike"),
    ],
)
def test_a_persons_answer_decides_what_counts_as_one_and_every_verdict_says_it(
    alike, effective, claim
):
    taskset = made(alike)
    found = asyncio.run(check_taskset(taskset))
    test = HeldOutTest(
        hold_out_test(taskset)[1], holdout.TestAccessLog(Path("none")), lambda files: None
    )

    assert found.effective_n <= effective
    assert not found.asks
    assert found.exploratory == (alike == "more-kinds")
    assert claim in test.describe_claim()
    again = read_taskset("made", {**taskset.files, **render_alike(taskset, "only-words")})
    assert again.alike == "only-words" and again.files["ENVIRONMENT.md"].count(b"alike:") == 1


def test_one_remark_says_that_tasks_are_alike_and_in_several_parts():
    prompts = [f"What is {n} and {n}?" for n in range(8)]
    named = made(prompts=prompts, split="val")
    lines = named.files["tasks.jsonl"].replace(b'"split": "val"', b'"split": "test"', 4)
    found = asyncio.run(check_taskset(read_taskset("made", {**named.files, "tasks.jsonl": lines})))

    [said] = [one.text for one in found.remarks if "alike" in one.text or "template" in one.text]
    assert said.startswith("These 8 tasks look like 1 template: ") and said.endswith(
        "is tested on another."
    )


def test_an_agents_word_on_tasks_that_read_alike_does_not_count_until_a_person_stands_for_it(
    tmp_path,
):
    ref, agent, person = (
        Ref.parse("environment:made"),
        Caller(Actor.AGENT, session="s"),
        Caller(Actor.HUMAN),
    )
    with Library.open(tmp_path / "home", create=True) as library:

        def edit_about(caller: Caller, said: str, **more: str) -> str:
            files = {path: data.decode() for path, data in made(said).files.items()} | more
            create = library.store.head_or_none(ref.within(USER_SCOPE)) is None
            update_resource(library, caller, ref, "why", files=files, create=create)
            return load_taskset(library, caller, ref)[0].alike

        assert edit_about(agent, "only-words") == ""
        head = library.store.head(ref.within(USER_SCOPE))
        approve_seen(library, person, {str(head.ref): head.tree})
        assert load_taskset(library, agent, ref)[0].alike == "only-words"
        assert edit_about(person, "more-kinds") == "more-kinds"
        assert edit_about(agent, "only-words") == "more-kinds", (
            "the edit of what a person stands for waits"
        )
        for said, counts in (("all-kinds", ""), ("more-kinds", "more-kinds")):
            with library.store.transaction(Actor.AGENT, "by its file tool") as tx:
                tx.put(
                    ref.within(USER_SCOPE),
                    {path: File(data) for path, data in made(said).files.items()},
                )
            assert load_taskset(library, agent, ref)[0].alike == counts, (
                "the person's own word stays"
            )


def test_another_answer_is_refused():
    with pytest.raises(InvalidTaskSet, match="all-kinds, more-kinds, only-words"):
        made("every-kind")


def test_looks_are_by_the_form_and_stay_counted_when_a_set_is_grouped_anew(tmp_path):
    def salt(first: int) -> list[str]:
        return [
            f"Send {n} kg of salt to the harbour of Oslo by ship." for n in range(first, first + 40)
        ]

    def opened(taskset, run: str) -> None:
        accesses, log = (
            holdout.TestAccessLog.in_library(tmp_path),
            OpenedTaskLog.in_library(tmp_path),
        )
        HeldOutTest(hold_out_test(taskset)[1], accesses, lambda files: None, log).open(run, "f")

    opened(made("", salt(0), split="test"), "one")

    assert look_at(tmp_path, made("", salt(100), split="test")) == 2, (
        "other numbers in the form that was opened"
    )
    assert look_at(tmp_path, made("only-words", salt(100), split="test")) == 2, (
        "a later word takes no look back"
    )
    boats = [f"Which of {n} boats sails first?" for n in range(40)]
    assert look_at(tmp_path, made("", boats, split="test")) == 1
    opened(made("only-words", boats[:20], split="test"), "two")
    assert look_at(tmp_path, made("only-words", boats[20:], split="test")) == 1, (
        "each of them is another task"
    )


@pytest.mark.process
def test_tasks_of_one_project_are_told_apart_by_what_they_ask_and_equal_asks_by_their_files():
    shared = "\n".join(said for said, _ in functions())[:3_000].encode()
    asked = [said for said, _ in functions()[:30]]
    lines = [
        {"id": f"p{n}", "prompt": text, "expected": "7", "files": "work"}
        for n, text in enumerate(asked)
    ]
    lines += [
        {
            "id": f"f{n}",
            "prompt": "Fix the failing test in src/a.py",
            "expected": "7",
            "files": f"own/{n}",
        }
        for n in range(30)
    ]
    files = {f"own/{n}/a.py": source.encode() for n, (_, source) in enumerate(functions()[:30])} | {
        "work/a.py": shared
    }
    taskset = read_taskset(
        "made", {"tasks.jsonl": "\n".join(map(json.dumps, lines)).encode(), **files}
    )

    counts = Counter(task.kind or task.id for task in taskset.tasks)
    assert len(counts) >= 50, counts.most_common(3)

"""The 19 operators of the resource protocol over the six kinds: every cell works, or is refused
with its reason.
"""

import asyncio
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confined import needs_sandbox

from evolvable_evolve import contracts, variables
from evolvable_evolve.rspl import OPERATORS, RunHost, build_resource, run_resource
from evolvable_store import bundle
from evolvable_store.errors import NoSuchResource, Refused
from evolvable_store.operation import Actor
from evolvable_store.resource import Kind, Ref, main_file
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.verbs import edit, load, resource_info, search, tool_commands
from evolvable_tools.verbs.registry import VERBS, place_of

PERSON = Caller(Actor.HUMAN)
DOCS = Path(__file__).parents[2] / "docs/operators.md"
TASKS = [
    {"id": "t1", "prompt": "6 * 7", "expected": "42", "scorer": {"type": "exact"}, "split": "train"}
]
TOOL = '  run:\n    argv: ["{python}", "-c", "print(input())"]\n'
COUNTER = itertools.count(1)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    with Library.open(tmp_path_factory.mktemp("operators") / "home", create=True) as library:
        yield library


def texts(kind: Kind, name: str) -> dict[str, str]:
    """The files of a resource of this kind."""
    more = {Kind.TOOL: f"metadata:\n{TOOL}", Kind.PROMPT: 'metadata:\n  arguments: "topic"\n'}.get(
        kind, ""
    )
    head = f"---\nname: {name}\ndescription: Counts {name} things.\n{more}---\n"
    files = {main_file(kind, name): f"{head}\n# Things\n\n## Steps\n\nAbout {{topic}}.\n"}
    return files | (
        {"tasks.jsonl": "\n".join(map(json.dumps, TASKS))} if kind is Kind.ENVIRONMENT else {}
    )


def made(library: Library, kind: Kind) -> Ref:
    """A resource of this kind that no other cell uses."""
    ref = Ref(kind, f"thing-{next(COUNTER)}")
    edit.update_resource(library, PERSON, ref, "made", files=texts(kind, ref.name), create=True)
    return ref


def text_of(library: Library, ref: Ref) -> str:
    return load.get_resource(library, PERSON, ref).text or ""


def steps_of(ref: Ref) -> str:
    return f"{ref}/{main_file(ref.kind, ref.name)}#steps"


def init(library: Library, ref: Ref, tmp_path: Path) -> None:
    folder, name = tmp_path / "things", f"found-{next(COUNTER)}"
    for path, text in texts(ref.kind, name).items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / path).write_text(text, encoding="utf-8")
    library.working_copies.add(folder, kind=ref.kind)
    assert "Counts" in text_of(library, Ref(ref.kind, name))


def build(library: Library, ref: Ref, tmp_path: Path) -> None:
    built = build_resource(library, PERSON, ref)
    head = library.store.head(ref)
    assert Path(built.path).name == head.tree
    assert (Path(built.path) / main_file(ref.kind, ref.name)).read_text(
        encoding="utf-8"
    ) == text_of(library, ref)


def register(library: Library, ref: Ref, tmp_path: Path) -> None:
    assert library.store.head(made(library, ref.kind)).version == 1


def unregister(library: Library, ref: Ref, tmp_path: Path) -> None:
    edit.remove_resource(library, PERSON, ref, "not needed")
    with pytest.raises(NoSuchResource):
        load.get_resource(library, PERSON, ref)
    assert "Counts" in text_of(library, ref.at(1))


def get(library: Library, ref: Ref, tmp_path: Path) -> None:
    assert "## Steps" in text_of(library, ref)


def get_info(library: Library, ref: Ref, tmp_path: Path) -> None:
    found = resource_info.get_info(library, PERSON, ref)
    assert (found.kind, found.version, found.label, found.evolvable) == (ref.kind, 1, "1.0.1", True)
    assert found.description == f"Counts {ref.name} things."
    assert found.arguments["type"] == "object"


def list_(library: Library, ref: Ref, tmp_path: Path) -> None:
    found = search.list_resources(library, PERSON, kind=ref.kind, query=ref.name)
    assert str(ref) in [one.ref for one in found.resources]


def retrieve(library: Library, ref: Ref, tmp_path: Path) -> None:
    found = search.find_skill(
        library, PERSON, f"counts {ref.name} things", kind=ref.kind, mode="keyword", limit=20
    )
    assert str(ref) in [one.ref for one in found.matches]


def get_state(library: Library, ref: Ref, tmp_path: Path) -> None:
    state = resource_info.get_state(library, PERSON, ref)
    assert (state.head, state.latest, state.approved, state.proposals) == (1, 1, None, [])


def update(library: Library, ref: Ref, tmp_path: Path) -> None:
    path = main_file(ref.kind, ref.name)
    done = edit.update_resource(
        library, PERSON, ref, "more", files={path: text_of(library, ref) + "\nMore.\n"}
    )
    assert done.version == 2 and text_of(library, ref).endswith("More.\n")


def copy(library: Library, ref: Ref, tmp_path: Path) -> None:
    target = Ref(ref.kind, f"copy-{next(COUNTER)}")
    edit.update_resource(library, PERSON, target, "branch", copy_of=ref, create=True)
    assert resource_info.get_info(library, PERSON, target).copied_from == f"{ref}@1"
    assert "## Steps" in text_of(library, target)


def restore(library: Library, ref: Ref, tmp_path: Path) -> None:
    first = text_of(library, ref)
    update(library, ref, tmp_path)
    assert edit.restore_resource(library, PERSON, ref, 1, "back").version == 3
    assert text_of(library, ref) == first


def get_variables(library: Library, ref: Ref, tmp_path: Path) -> None:
    [steps] = variables.get_variables(library, PERSON, ref, [steps_of(ref)]).variables
    assert (steps.role, steps.evolvable, steps.value) == ("section", True, "\nAbout {topic}.\n")


def set_variables(library: Library, ref: Ref, tmp_path: Path) -> None:
    before = text_of(library, ref)
    done = variables.set_variables(library, PERSON, ref, {steps_of(ref): "\nElse.\n"}, 1, "else")
    assert done.version == 2 and text_of(library, ref) == before.replace("About {topic}.", "Else.")


def run(library: Library, ref: Ref, tmp_path: Path) -> None:
    given = {
        Kind.PROMPT: {"topic": "tea"},
        Kind.TOOL: {"a": 1},
        Kind.ENVIRONMENT: {"task": "t1", "output": "42"},
    }
    if ref.kind is Kind.TOOL:
        found = tool_commands.tool_version(library, library.store.head(ref), 1)
        assert found is not None
        tool_commands.approve_tool(library, PERSON, found, via="test")
    ran = asyncio.run(
        run_resource(library, PERSON, ref, given.get(ref.kind, {}), RunHost(dict(os.environ)))
    )
    if ref.kind is Kind.ENVIRONMENT:
        assert ran.score == 1
    else:
        wanted = {Kind.TOOL: '{"a": 1}', Kind.PROMPT: "About tea."}.get(ref.kind, "About {topic}.")
        assert wanted in ran.text


def save_to_json(library: Library, ref: Ref, tmp_path: Path) -> None:
    assert bundle.export_json(library.store, tmp_path / "one.json", [ref]) == (
        library.store.head(ref).ref,
    )


def load_from_json(library: Library, ref: Ref, tmp_path: Path) -> None:
    save_to_json(library, ref, tmp_path)
    with (
        Library.open(tmp_path / "other", create=True) as other,
        (tmp_path / "one.json").open("rb") as stream,
    ):
        bundle.import_json(other.store, stream)
        assert text_of(other, ref) == text_of(library, ref)


def save_contract(library: Library, ref: Ref, tmp_path: Path) -> None:
    contracts.save_contract(library, PERSON, refs=[ref])
    text = library.store.file(library.store.head(contracts.CONTRACTS), contracts.FILE).data.decode()
    assert f"## {ref}@1\n" in text


def load_contract(library: Library, ref: Ref, tmp_path: Path) -> None:
    save_contract(library, ref, tmp_path)
    [entry] = contracts.load_contract(library, PERSON).entries
    assert (entry.ref, entry.version, entry.state) == (str(ref), 1, "current")


CELLS: dict[str, Callable[[Library, Ref, Path], None]] = {
    name: getattr(sys.modules[__name__], {"list": "list_"}.get(name, name)) for name in OPERATORS
}


def cell(name: str, kind: Kind) -> object:
    marks = (pytest.mark.process, needs_sandbox) if (name, kind) == ("run", Kind.TOOL) else ()
    return pytest.param(name, kind, id=f"{name}-{kind}", marks=marks)


@pytest.mark.parametrize(
    ("name", "kind"), [cell(name, kind) for name in OPERATORS for kind in Kind]
)
def test_every_operator_works_on_every_kind_or_is_refused_with_its_reason(
    library, tmp_path, name, kind
):
    ref = made(library, kind)
    if reason := OPERATORS[name].refused.get(kind):
        with pytest.raises(Refused, match=re.escape(reason)):
            CELLS[name](library, ref, tmp_path)
    else:
        CELLS[name](library, ref, tmp_path)


def test_there_are_19_operators_and_each_is_a_verb_of_the_registry():
    assert len(OPERATORS) == 19
    assert {one.verb for one in OPERATORS.values()} <= VERBS.keys()


def test_the_table_of_the_manual_names_every_operator_its_command_and_every_refusal():
    rows = dict(
        re.findall(r"^\| `(\w+)` \| (.+) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    )

    assert list(rows) == list(OPERATORS)
    for one in OPERATORS.values():
        assert f"`evolvable {place_of(one.verb)}" in rows[one.name], one.name
        assert all(reason in rows[one.name] for reason in one.refused.values()), one.name

"""Code, glossary and developer pages name the same things."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
import structure

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
HEADING = re.compile(r"^\*\*(?P<word>[^*]+)\*\*(?: \((?P<classes>`[^)]+`)\))? —", re.MULTILINE)
PACKAGES = [ROOT / package for package in structure.PACKAGES]


@pytest.fixture(scope="module")
def modules() -> list[structure.Module]:
    """Reading them takes seconds, so the tests that need them are no part of the fast tier."""
    return structure.modules()


def headings() -> list[re.Match[str]]:
    return list(HEADING.finditer((DOCS / "glossary.md").read_text(encoding="utf-8")))


def names(text: str | None) -> list[str]:
    return re.findall(r"`(\w+)`", text or "")


@pytest.mark.process
def test_each_class_name_of_the_product_has_one_meaning(modules):
    assert structure.repeated(structure.public_classes(modules)) == {}


@pytest.mark.process
def test_no_module_imports_one_that_imports_it_for_types_or_inside_of_a_function_either(modules):
    assert structure.circular_imports(structure.imports(modules)) == []


@pytest.mark.process
def test_the_core_imports_no_annex_and_no_annex_another(modules):
    assert structure.annex_imports(structure.imports(modules)) == []


def module_of(place: str, text: str) -> structure.Module:
    return structure.Module(ROOT / place, text, ast.parse(text))


def test_imports_for_types_and_inside_of_functions_count_as_others_do():
    late = "def read():\n    from evolvable_store import store\n"
    typed = (
        "if TYPE_CHECKING:\n    from evolvable_store.gc import Unused\n"
        "    from evolvable_page.kit import Kit\n"
    )
    graph = structure.imports(
        [
            module_of("skills_store/evolvable_store/gc.py", late),
            module_of("skills_store/evolvable_store/store.py", typed),
            module_of("server/evolvable_page/kit.py", "import evolvable_store.gc\n"),
            module_of("server/evolvable_teams/plugin.py", "from evolvable_page import kit\n"),
        ]
    )
    gc, store = "skills_store/evolvable_store/gc.py", "skills_store/evolvable_store/store.py"
    page = "server/evolvable_page/kit.py:1 evolvable_store.gc"
    assert structure.circular_imports(graph) == sorted(
        [
            page,
            f"{gc}:2 evolvable_store.store",
            f"{store}:2 evolvable_store.gc",
            f"{store}:3 evolvable_page.kit",
        ]
    )
    assert structure.annex_imports(graph) == [
        "server/evolvable_teams/plugin.py:1 evolvable_page.kit",
        f"{store}:3 evolvable_page.kit",
    ]


@pytest.mark.process
def test_each_class_that_a_glossary_heading_names_exists(modules):
    classes = {name for name, _ in structure.public_classes(modules)}
    named = [name for heading in headings() for name in names(heading["classes"])]
    assert len(named) > 50
    assert [name for name in named if name not in classes] == []


def test_each_word_of_the_glossary_stands_once_and_in_order():
    words = [heading["word"] for heading in headings()]
    assert [word for word, count in Counter(words).items() if count > 1] == []
    assert words == sorted(words, key=str.casefold)


def test_no_class_belongs_to_two_words():
    named = Counter(name for heading in headings() for name in names(heading["classes"]))
    assert [name for name, count in named.items() if count > 1] == []


def pages() -> list[Path]:
    return [
        DOCS / "architecture.md",
        *sorted((DOCS / "how-to").glob("*.md")),
        ROOT / "CONTRIBUTING.md",
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_each_file_that_a_developer_page_names_exists(page):
    """A name such as `evolvable_store/merge.py`, `tests/evolve/test_scorers.py` or `verbs/`."""
    found = re.findall(r"`([\w./-]+/[\w.-]*)`", page.read_text(encoding="utf-8"))
    assert found
    known = [ROOT, *(package.parent for package in PACKAGES), *PACKAGES]
    assert [path for path in found if not any((root / path).exists() for root in known)] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_each_name_that_a_developer_page_takes_from_a_module_exists(page):
    """A name such as `evolvable_store.merge.merge_files`."""
    for name in re.findall(r"`(evolvable_\w+(?:\.\w+)+)`", page.read_text(encoding="utf-8")):
        assert _exists(name.split(".")), name


def _exists(parts: list[str]) -> bool:
    for cut in range(len(parts), 0, -1):
        for package in PACKAGES:
            folder = package.parent.joinpath(*parts[:cut])
            module = (
                folder.with_suffix(".py")
                if folder.with_suffix(".py").is_file()
                else folder / "__init__.py"
            )
            if module.is_file():
                return cut == len(parts) or parts[cut] in _defined(module)
    return False


def _defined(module: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        found.update(target.id for target in targets if isinstance(target, ast.Name))
    return found

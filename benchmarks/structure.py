"""Measure the structure of the product's code against the limits of the project, and report it.

    python benchmarks/structure.py            the report
    python benchmarks/structure.py --check    the same; exit code 1 when a limit is missed
    python benchmarks/structure.py --words    only the word list; exit code 1 when there are hits
    python benchmarks/structure.py --imports  only the imports: directions, doors of packages,
                                              faces; exit code 1 when one is wrong

Everything is read from the source files; nothing of the product is imported. A module's *code
lines* are the lines that hold a token which is neither a comment nor part of a docstring.
"""

import argparse
import ast
import collections
import contextlib
import functools
import graphlib
import io
import re
import statistics
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "skills_store/evolvable_store",
    "tools/evolvable_tools",
    "server/evolvable_server",
    "tools/evolvable_evolve",
    "server/evolvable_teams",
    "server/evolvable_page",
)
ANNEXES = ("evolvable_evolve", "evolvable_teams", "evolvable_page")
"""The packages that the core runs without. None imports another."""

DOORS = 3
"""Modules of a package, its face included, that code outside of the package may import."""

SQL = re.compile(
    r"^\s*(SELECT\b.*\bFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+"
    r"(TABLE|INDEX|TRIGGER))",
    re.S,
)
SQL_HOMES = ("evolvable_store/storage/", "evolvable_store/search/", "evolvable_teams/postgres/")
LIMITS = {
    "imports of an annex": 0,
    "imports in a circle": 0,
    "doors of a package": DOORS,
    "faces that do not agree": 0,
    "functions over 60 lines": 0,
    "public class names that repeat": 0,
    "modules with SQL elsewhere": 0,
    "modules under 40 lines": 0,
    "modules with function-level imports": 40,
    "median lines of a function": 10,
    "public functions that are bare participles": 0,
    "hits of the word list": 0,
}

PARTICIPLES = re.compile(
    r"begun|bound|brought|built|chosen|done|drawn|fallen|felt|found|given|gone|grown|heard|held|"
    r"hidden|kept|known|left|lost|made|meant|met|paid|said|seen|sent|shown|spent|spoken|stood|"
    r"stuck|taken|thought|thrown|told|understood|won|worn|written|[a-z]+ed"
)
"""Names of one word that are a participle."""

PARTICIPLE_EXCEPTIONS = {"cancelled", "closed", "elapsed", "embed", "feed", "seed", "signed"}
"""Verbs that end so, and names that the standard library, anyio or the SDK of MCP give to the same
thing.
"""


@dataclass(frozen=True)
class Module:
    path: Path
    text: str
    tree: ast.Module

    @functools.cached_property
    def name(self) -> str:
        """The name that it is imported by; that of the package for an `__init__`."""
        package = next(
            ROOT / package for package in PACKAGES if self.path.is_relative_to(ROOT / package)
        )
        parts = self.path.relative_to(package.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @functools.cached_property
    def place(self) -> str:
        return self.path.relative_to(ROOT).as_posix()


@functools.cache
def modules() -> list[Module]:
    """Every module of the product, read once; the seed skills' scripts are resources and do not
    count.
    """
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "seed/skills" not in path.as_posix():
                text = path.read_text(encoding="utf-8")
                found.append(Module(path, text, ast.parse(text)))
    return found


def code_lines(module: Module) -> int:
    """Lines with code: no blanks, no comments, no docstrings."""
    docs: set[int] = set()
    for node in ast.walk(module.tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else []:
            if isinstance(statement, ast.Expr) and isinstance(
                getattr(statement.value, "value", None), str
            ):
                docs.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    skipped = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docs)


def functions(module: Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (
                f"{module.place}:{node.lineno} {node.name}",
                (node.end_lineno or 0) - node.lineno + 1,
            )


def comment_lines(module: Module) -> int:
    """Lines that hold a comment, alone or behind code."""
    tokens = tokenize.generate_tokens(io.StringIO(module.text).readline)
    return sum(token.type == tokenize.COMMENT for token in tokens)


def bare_participles(module: Module) -> Iterator[str]:
    """The public functions and methods whose name is one participle.

    A property is a value, and may be one.
    """
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith(
            "_"
        ):
            continue
        values = {"property", "cached_property", "functools.cached_property"}
        if values & {ast.unparse(decorator) for decorator in node.decorator_list}:
            continue
        if PARTICIPLES.fullmatch(node.name) and node.name not in PARTICIPLE_EXCEPTIONS:
            yield f"{module.place}:{node.lineno} {node.name}"


def imports_late(module: Module) -> bool:
    return any(
        isinstance(inner, ast.Import | ast.ImportFrom)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    )


def has_sql(module: Module) -> bool:
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
        for node in ast.walk(module.tree)
    )


def repeated(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = collections.defaultdict(list)
    for name, place in pairs:
        places[name].append(place)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def public_classes(found: list[Module]) -> Iterator[tuple[str, str]]:
    for module in found:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, module.place


# The directions of imports

Imports = dict[str, dict[str, str]]
"""Module -> module that it imports -> the place of the import."""


def imports(found: list[Module]) -> Imports:
    """Every import of a module of the product: those for types and those inside of functions too.

    That Python runs the packages around a module first counts for nothing.
    """
    names = {module.name for module in found}
    graph: Imports = {name: {} for name in names}
    for module in found:
        for node in ast.walk(module.tree):
            for name in _imported(node, names):
                if name != module.name:
                    graph[module.name].setdefault(name, f"{module.place}:{node.lineno}")
    return graph


def _imported(node: ast.AST, names: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        for alias in node.names:
            within = f"{node.module}.{alias.name}"
            if within in names:
                yield within
            elif node.module in names:
                yield node.module


def annex_imports(graph: Imports) -> list[str]:
    """The imports of an annex by the core or by another annex."""
    return sorted(
        f"{place} {imported}"
        for importer, those in graph.items()
        for imported, place in those.items()
        if (annex := imported.partition(".")[0]) in ANNEXES and annex != importer.partition(".")[0]
    )


def circular_imports(graph: Imports) -> list[str]:
    """The imports of a module that, directly or over others, imports its importer."""
    sorter = graphlib.TopologicalSorter(graph)
    with contextlib.suppress(graphlib.CycleError):  # it still gives the modules that can be ordered
        sorter.prepare()
    unordered = set(graph)
    while ready := sorter.get_ready():
        sorter.done(*ready)
        unordered.difference_update(ready)
    return sorted(
        f"{graph[importer][imported]} {imported}"
        for importer in unordered
        for imported in graph[importer].keys() & unordered
        if _reaches(graph, imported, importer)
    )


def _reaches(graph: Imports, start: str, goal: str) -> bool:
    waiting, seen = [start], {start}
    while waiting:
        if (name := waiting.pop()) == goal:
            return True
        waiting += graph[name].keys() - seen
        seen |= graph[name].keys()
    return False


# The doors of packages


def packages_around(name: str, packages: set[str]) -> list[str]:
    """The packages that a module lies in, itself included, the outermost first."""
    parts = name.split(".")
    return [
        within for end in range(1, len(parts) + 1) if (within := ".".join(parts[:end])) in packages
    ]


def doors(found: list[Module]) -> dict[str, list[str]]:
    """By package, the modules of it that code outside of it imports, its `__init__` included.

    Imports for types and inside of functions count. All that lies in a package counts for it, at
    whatever depth. Only the six distributions' own packages are layers of packages: for them the
    modules right in them count, and each of their packages by itself. Modules that are named in
    strings (the table of commands, `-m`) are found at run time and do not count; neither do tests.
    """
    packages = {module.name for module in found if module.path.name == "__init__.py"}
    opened: dict[str, set[str]] = {package: set() for package in packages}
    for importer, those in imports(found).items():
        inside = set(packages_around(importer, packages))
        for imported in those:
            for package in packages_around(imported, packages):
                layer = "." not in package
                if package not in inside and not (
                    layer and packages_around(imported, packages)[1:]
                ):
                    opened[package].add(imported)
    return {package: sorted(those) for package, those in sorted(opened.items())}


def too_many_doors(found: list[Module]) -> list[str]:
    return [
        f"{package}: {', '.join(those)}"
        for package, those in doors(found).items()
        if len(those) > DOORS
    ]


def uneven_faces(found: list[Module]) -> list[str]:
    """The faces whose `__all__`, imports for types and table of late names do not name the same,
    and private names.
    """
    wrong = []
    for module in found:
        table = _late_names(module)
        if table is None:
            continue
        public = set(_all_names(module))
        typed = {
            (alias.name, f"{node.module}")
            for block in module.tree.body
            if isinstance(block, ast.If)
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        wrong += [f"{module.place}: {name} of {home}" for name, home in sorted(table ^ typed)]
        wrong += [
            f"{module.place}: {name} is not in __all__"
            for name, _ in sorted(typed)
            if name not in public
        ]
        wrong += [
            f"{module.place}: {name} is private" for name in sorted(public) if name.startswith("_")
        ]
    return wrong


def _late_names(module: Module) -> set[tuple[str, str]] | None:
    """The pairs of a name and its module in the table of a face; None of a module that
    is no face.
    """
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "late_names"
        ):
            table: dict[str, str] = ast.literal_eval(node.args[1])
            return {
                (name, f"{module.name}.{home}")
                for home, names in table.items()
                for name in names.split()
            }
    return None


def _all_names(module: Module) -> list[str]:
    for node in module.tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
        ):
            return list(ast.literal_eval(node.value))
    return []


# The word list


def wordlist() -> list[tuple[re.Pattern[str], str]]:
    rules = []
    for line in (ROOT / "benchmarks" / "words.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pattern, _, advice = line.partition(" -> ")
            rules.append((re.compile(pattern, re.IGNORECASE), advice))
    return rules


STATEMENT = re.compile(
    r"\s*(--[^\n]*\n\s*)*(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|WITH|UNION|WHERE)\b"
)
"""The beginning of a string of SQL, in capitals; names of stored tables and columns in it are no
prose.
"""


def _sql_parts(node: ast.AST) -> list[ast.Constant]:
    """The constants of one string, an f-string or not, that is SQL."""
    values = node.values if isinstance(node, ast.JoinedStr) else [node]
    parts = [
        part for part in values if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return parts if STATEMENT.match("".join(str(part.value) for part in parts)) else []


def _tables_of_names(node: ast.AST) -> Iterator[ast.AST]:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "late_names"
    ):
        yield from ast.walk(node)


def prose(module: Module) -> Iterator[tuple[int, str]]:
    """Docstrings, comments and messages, by line: strings with a space in them, without SQL and
    tables of names.
    """
    code = {
        id(part)
        for node in ast.walk(module.tree)
        for part in (*_sql_parts(node), *_tables_of_names(node))
    }
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
            and id(node) not in code
        ):
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def pages() -> Iterator[tuple[str, int, str]]:
    for path in [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield path.relative_to(ROOT).as_posix(), number, line


WORD_TABLES = re.compile(r"evolvable_tools/(scan|review|redaction|outcomes)/")
"""Packages with tables of words to look for in texts of others: only their docstrings and comments
are read.
"""


def word_hits(found: list[Module]) -> list[str]:
    rules = wordlist()
    lines: list[tuple[str, int, str]] = list(pages())
    for module in found:
        quoted = bool(WORD_TABLES.search(module.place))
        docs = _docstring_lines(module) if quoted else None
        lines += [
            (module.place, number, line)
            for number, line in prose(module)
            if docs is None or line.startswith("#") or number in docs
        ]
    return sorted(
        {
            f"{place}:{number}: {match.group(0)!r} ({advice})"
            for place, number, line in lines
            for pattern, advice in rules
            if (match := pattern.search(line))
        }
    )


def _docstring_lines(module: Module) -> set[int]:
    docs: set[int] = set()
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
        ):
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                docs.update(range(first.lineno, (first.end_lineno or 0) + 1))
    return docs


# The report


def measure(found: list[Module]) -> tuple[dict[str, float], dict[str, list[str]]]:
    """The figures by the names of LIMITS, and for each the places behind it."""
    small = [
        f"{module.place} {lines}"
        for module in found
        if (lines := len(module.text.splitlines())) < 40
        and module.path.stem not in {"__init__", "__main__", "registry", "errors"}
    ]
    lengths = [length for module in found for _, length in functions(module)]
    long = [
        f"{name} {length}" for module in found for name, length in functions(module) if length > 60
    ]
    late = [module.place for module in found if imports_late(module)]
    classes = repeated(public_classes(found))
    sql = [
        module.place
        for module in found
        if has_sql(module) and not any(home in module.place for home in SQL_HOMES)
    ]
    participles = [place for module in found for place in bare_participles(module)]
    hits = word_hits(found)
    graph = imports(found)
    annexes, circles = annex_imports(graph), circular_imports(graph)
    opened, uneven = doors(found), uneven_faces(found)
    code, comments = sum(map(code_lines, found)), sum(map(comment_lines, found))
    nodes = sum(1 for module in found for _ in ast.walk(module.tree))
    figures: dict[str, float] = {
        "imports of an annex": len(annexes),
        "imports in a circle": len(circles),
        "doors of a package": max(map(len, opened.values())),
        "faces that do not agree": len(uneven),
        "functions over 60 lines": len(long),
        "public class names that repeat": len(classes),
        "modules with SQL elsewhere": len(sql),
        "modules under 40 lines": len(small),
        "public functions that are bare participles": len(participles),
        "hits of the word list": len(hits),
        "comment lines, percent of code lines": round(100 * comments / code, 1),
        "syntax-tree nodes per code line": round(nodes / code, 1),
        "median lines of a function": statistics.median(lengths),
        "modules with function-level imports": len(late),
        "modules": len(found),
        "code lines": code,
        "code lines per module": round(code / len(found), 1),
    }
    details = {
        "imports of an annex": annexes,
        "imports in a circle": circles,
        "doors of a package": [
            f"{package}: {', '.join(those)}" for package, those in opened.items()
        ],
        "faces that do not agree": uneven,
        "functions over 60 lines": long,
        "public class names that repeat": [
            f"{name}: {', '.join(places)}" for name, places in classes.items()
        ],
        "modules with SQL elsewhere": sql,
        "modules under 40 lines": small,
        "public functions that are bare participles": participles,
        "hits of the word list": hits,
        "modules with function-level imports": late,
    }
    return figures, details


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 when a limit is missed")
    parser.add_argument("--words", action="store_true", help="only the hits of the word list")
    parser.add_argument("--details", action="store_true", help="list the places behind each figure")
    parser.add_argument(
        "--imports", action="store_true", help="only the imports: directions, doors, faces"
    )
    options = parser.parse_args()
    found = modules()
    if options.imports:
        graph = imports(found)
        wrong = (
            annex_imports(graph)
            + circular_imports(graph)
            + too_many_doors(found)
            + uneven_faces(found)
        )
        most = max(map(len, doors(found).values()))
        print("\n".join(wrong) or f"no import in a wrong direction; at most {most} doors a package")
        return bool(wrong)
    if options.words:
        hits = word_hits(found)
        print("\n".join(hits) or "no hits")
        return bool(hits)
    figures, details = measure(found)
    missed = []
    for name, value in figures.items():
        limit = LIMITS.get(name)
        if limit is not None and value > limit:
            missed.append(name)
        end = f"   limit {limit:g}" if limit is not None else ""
        print(f"{name:44} {value:8g}{end}{'   MISSED' if name in missed else ''}")
    if options.details:
        for name, places in details.items():
            print(f"\n{name}:", *places, sep="\n  ")
    return bool(options.check and missed)


if __name__ == "__main__":
    sys.exit(main())

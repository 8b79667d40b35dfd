"""Tasks in other languages than the library's: 50 skills, each called for in five languages, with a
scripted judge.

`languages.jsonl` holds one skill a line, by its id in the smaller corpus, and a task for it in each
language. The tasks were written by hand for this project and are under its licence. The glossary
that lookup uses was written by somebody who knew them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from support import Row, progress

from evolvable_store.search.analyzer import FUNCTION_WORDS
from evolvable_store.search.index import Index
from evolvable_store.search.tokenizer import fold, tokenize
from evolvable_store.search.translation import language_of_task, translate_words
from evolvable_store.store import Store
from evolvable_tools.retrieval.cascade import CascadeResult, search_cascade
from evolvable_tools.retrieval.search_types import Verdict
from lookup.data import Library, Record, lines, take_in

FILE = Path(__file__).with_name("languages.jsonl")
SHORT = Path(__file__).with_name("short_tasks.tsv")
"""Tasks of two to five words in five languages, a language and a task on each line."""
LANGUAGES = ("de", "fr", "es", "zh", "ja")
LEAST = 0.80
"""Share of the tasks that the judge has to answer right."""


@dataclass(frozen=True, slots=True)
class Foreign:
    """One task in another language. skill: the id of the right one."""

    language: str
    task: str
    skill: str


def foreign_tasks() -> list[Foreign]:
    """Return the tasks of every language."""
    return [Foreign(name, row[name], row["skill"]) for row in lines(FILE) for name in LANGUAGES]


def perfectly_judged(found: CascadeResult, right: str) -> bool:
    """Return whether a judge that always chooses right makes the right skill the first: where it is
    asked, it has to be in its list.
    """
    if found.verdict is Verdict.CHOOSE:
        return right in [match.ref for match in found.matches] + [
            str(entry.ref) for entry in found.further
        ]
    return [match.ref for match in found.matches[:1]] == [right]


def rows(corpus: Sequence[Record]) -> list[Row]:
    """Return hit@1 by words alone and with the scripted judge, in all and by language."""
    library = Library.of(corpus)
    progress(f"other languages: {len(library.skills):,} skills")
    names = {record["id"]: name for name, record in library.skills.items()}
    tasks = [one for one in foreign_tasks() if one.skill in names]
    first: dict[str, list[bool]] = {}
    judged: dict[str, list[bool]] = {}
    with TemporaryDirectory() as place:
        home = Path(place) / "home"
        take_in(home, library)
        with Store.open(home) as store, Index.open(store) as index:
            for one in tasks:
                right = f"skill:{names[one.skill]}"
                found = search_cascade(index, one.task)
                best = [match.ref for match in found.matches[:1]]
                first.setdefault(one.language, []).append(best == [right])
                judged.setdefault(one.language, []).append(perfectly_judged(found, right))
    where = f"other languages, {len(tasks)} tasks among {len(library.skills):,} skills"
    every = [one for some in judged.values() for one in some]
    return [
        Row(f"{where}: hit@1, words alone", _shares(first)),
        Row(
            f"{where}: hit@1, scripted perfect judge of a list of at most 36",
            _shares(judged),
            f"at least {LEAST:.2f}",
            sum(every) >= LEAST * len(every),
        ),
    ]


def translated_rows(queries: Sequence[Record]) -> list[Row]:
    """Return how many short tasks in other languages get English words, and how many in English are
    taken for one.
    """
    short = [line.split("\t")[1] for line in SHORT.read_text(encoding="utf-8").splitlines()]
    english = [query["text"] for query in queries if query.get("lang", "en") == "en"]
    found, wrong = (sum(map(_is_translated, some)) for some in (short, english))
    return [
        Row("other languages: short tasks that get English words", f"{found} of {len(short)}"),
        Row(
            "other languages: English tasks that are taken for another language",
            f"{wrong} of {len(english):,}",
        ),
    ]


def _is_translated(task: str) -> bool:
    words = tokenize(task)
    return bool(
        translate_words(fold(task), words, language_of_task(fold(task), words, FUNCTION_WORDS))
    )


def _shares(right: Mapping[str, Sequence[bool]]) -> str:
    every = [one for some in right.values() for one in some]
    by_language = ", ".join(f"{name} {sum(some) / len(some):.2f}" for name, some in right.items())
    return f"{sum(every) / max(1, len(every)):.3f} ({by_language})"

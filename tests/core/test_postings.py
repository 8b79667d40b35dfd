"""Postings: a ranking says what the library says now, however it came to say it, and whichever way
it is computed.
"""

import contextlib
import math
import random
import struct
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable
from types import ModuleType

import pytest
from postgres_place import ON_SQLITE
from samples import put_texts

from evolvable_store import fsck
from evolvable_store.bundle.export import backup
from evolvable_store.resource import Ref
from evolvable_store.search import bm25, index_file, posting_loops, postings, rare_postings
from evolvable_store.search.analyzer import (
    FIELD_NUMBERS,
    FIELDS,
    HEAVIEST,
    pack_weights,
    parse_query,
    terms,
    weigh_fields,
)
from evolvable_store.search.bm25 import COVERAGE, PRIOR
from evolvable_store.search.index import Index, check_index
from evolvable_store.search.index_file import INDEX_FILE, IndexFile
from evolvable_store.search.postings import (
    FEW,
    MAX_PENDING,
    PendingDocuments,
    Postings,
    PostingsReader,
    add_document,
    count_pending,
    flush_pending,
)
from evolvable_store.search.tokenizer import fold, fold_marks, is_unnormalized, tokenize
from evolvable_store.store import Store

SYLLABLES = ["ba", "ko", "ri", "mu", "ta", "len", "do", "fi", "zu", "gra", "pel", "nor"]
VOCABULARY = [
    first + second + third for first in SYLLABLES for second in SYLLABLES for third in SYLLABLES[:6]
]
OFTEN = [1 / (place + 1) for place in range(len(VOCABULARY))]

Texts = dict[str, tuple[str, str]]
"""Name -> description and body."""


def put(store: Store, texts: Texts, remove: Iterable[str] = (), **files: bytes) -> None:
    """Writes skills and removes others, all in one operation."""
    text = "---\nname: {}\ndescription: {}\n---\n{}\n"
    put_texts(
        store, {name: text.format(name, *both) for name, both in texts.items()}, remove, **files
    )


def said(chance: random.Random, count: int) -> str:
    """Returns so many words, a few of them often and most of them seldom, as people use them."""
    return " ".join(chance.choices(VOCABULARY, OFTEN, k=count))


def library(chance: random.Random, store: Store, count: int) -> Texts:
    sizes = [(chance.randint(3, 12), chance.randint(5, 60)) for _ in range(count)]
    texts = {
        f"skill-{at}": (said(chance, short), said(chance, long))
        for at, (short, long) in enumerate(sizes)
    }
    put(store, texts)
    return texts


def scores(index: Index, query: str, limit: int = 1_000) -> dict[str, float]:
    return {
        str(scored.entry.ref): scored.score for scored in index.search(query, limit=limit).scored
    }


def names(index: Index, query: str) -> list[str]:
    return [scored.entry.name for scored in index.search(query).scored]


def filler(count: int, start: int = 0) -> Texts:
    return {
        f"filler-{number}": (f"Filler {number}.", "wood") for number in range(start, start + count)
    }


# In step


def change(store: Store, chance: random.Random, there: Texts, number: int) -> tuple[int, int]:
    """Makes one to five new or changed skills and now and then removes one; returns how many of
    each.
    """
    new: Texts = {}
    for at in range(chance.randint(1, 5)):
        name = chance.choice(sorted(there)) if chance.random() < 0.7 else f"skill-{number}-{at}"
        new[name] = said(chance, chance.randint(3, 12)), said(chance, chance.randint(5, 60))
    gone = [name for name in sorted(there) if name not in new and chance.random() < 0.004]
    put(store, new, remove=gone)
    there |= new
    for name in gone:
        del there[name]
    return len(new), len(gone)


def waits(store: Store) -> int:
    """Returns how many documents wait to be settled."""
    with contextlib.closing(IndexFile(store.home)) as file, file.reading() as db:
        return count_pending(db)[0]


@ON_SQLITE
def test_documents_that_are_settled_together_leave_in_the_time_that_they_took_to_come(
    index: Index,
) -> None:
    """A search during an import reads thousands that wait; the next one finds most of
    them settled.
    """
    chance, numbers = random.Random(19), range(len(FIELDS))
    often, seldom = VOCABULARY[:300], VOCABULARY[300:]
    pending, anew = PendingDocuments(), PendingDocuments()
    with contextlib.closing(IndexFile(index.path.parent)) as file, file.writing() as db:
        for number in range(600):
            words = " ".join([*often, *chance.sample(seldom, 5)])
            add_document(db, number, pack_weights(weigh_fields([], "", (), words, ())))
        db.execute("UPDATE document SET settled = 1, resource = NULL WHERE id % 50 = 1")
        begun = time.thread_time()
        pending.refresh(db)
        come = time.thread_time() - begun
        db.execute("UPDATE document SET settled = 1 WHERE id % 20 <> 0 AND resource IS NOT NULL")
        db.execute("DELETE FROM document WHERE id % 100 = 1")
        begun = time.thread_time()
        pending.refresh(db)
        left = time.thread_time() - begun
        anew.refresh(db)
    assert left < 2 * come
    assert pending.gone == anew.gone != set()
    for term in terms(VOCABULARY):
        assert list(pending.fields_of(term, numbers)) == list(anew.fields_of(term, numbers))
        its, same = Postings(term, FIELD_NUMBERS["body"]), Postings(term, FIELD_NUMBERS["body"])
        pending.add_to(its)
        anew.add_to(same)
        assert its == same


@ON_SQLITE
@pytest.mark.process
def test_an_index_that_followed_hundreds_of_changes_ranks_as_one_made_anew(
    store: Store, index: Index
) -> None:
    chance, done = random.Random(7), Counter[str]()
    there = library(chance, store, MAX_PENDING + 1)
    queries = [said(chance, chance.randint(1, 12)) for _ in range(20)]
    for number in range(240):
        puts, removals = change(store, chance, there, number)
        index.search(queries[number % len(queries)])
        done.update(puts=puts, removals=removals, settled=not waits(store))
        if number % 50 == 49:
            with (
                Store.open(backup(store, store.home.with_name(f"copy-{number}"))) as copy,
                Index.open(copy) as anew,
            ):
                for query in queries:
                    followed, made = scores(index, query), scores(anew, query)
                    assert list(followed) == list(made) and len(made) > 1
                    assert followed == pytest.approx(made, abs=1e-9)
            assert list(check_index(store)) == []
    assert fsck.check_library(store, checks=[check_index]).faults == ()
    assert done["puts"] > 600 and done["removals"] > 100 and done["settled"] > 3


@pytest.mark.process
def test_a_second_index_that_looks_seldom_ranks_as_the_one_that_followed(
    store: Store, index: Index
) -> None:
    """What one process settles, another has in its memory still."""
    chance = random.Random(11)
    there = library(chance, store, MAX_PENDING + 1)
    with Index.open(store) as other:
        for number in range(120):
            change(store, chance, there, number)
            query = said(chance, 6)
            index.search(query)
            if number % 7 == 0:
                assert scores(other, query) == pytest.approx(scores(index, query), abs=1e-9)


def test_what_another_process_settles_later_is_not_counted_twice(
    store: Store, index: Index
) -> None:
    library(random.Random(17), store, 100)
    before = scores(index, "bababa bakoba")
    with contextlib.closing(IndexFile(store.home)) as file, file.writing() as db:
        flush_pending(db)

    assert len(before) > 1 and scores(index, "bababa bakoba") == pytest.approx(before, abs=1e-9)


@pytest.mark.parametrize("settled_before", [False, True])
def test_a_removed_resource_is_never_returned(
    store: Store, index: Index, settled_before: bool
) -> None:
    put(store, {"marsupials": ("All about the quokka.", "quokka")})
    if settled_before:
        put(store, filler(MAX_PENDING + 1))
    assert names(index, "quokka") == ["marsupials"]

    put(store, {}, remove=["marsupials"])
    assert names(index, "quokka") == names(index, "marsupials") == []
    put(store, filler(MAX_PENDING + 1, start=1_000))
    assert names(index, "quokka") == names(index, "marsupials") == []
    assert list(check_index(store)) == []


# What counts


def test_two_words_side_by_side_count_more_than_apart(store: Store, index: Index) -> None:
    put(
        store,
        {
            "apart": ("merge branches before conflict arises", ""),
            "beside": ("merge conflict branches arises", ""),
        },
    )

    first, second = index.search("merge conflict").scored

    assert (first.entry.name, second.entry.name) == ("beside", "apart")
    assert "pairs" in {part.field for part in first.parts} - {part.field for part in second.parts}
    put(store, {"rebase-tool-push": ("Helps.", ""), "push-rebase-tool": ("Helps.", "")})
    assert names(index, "push rebase") == ["push-rebase-tool", "rebase-tool-push"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("say—“it’s” → done ✅ v2", ["say", "it", "s", "done", "v2"]),
        ("naïve Ωmega —", ["naive", "ωmega"]),
        ("漢字仮名 and 3½", ["漢字", "字仮", "仮名", "and", "3½"]),
        ("\ud800broken\udfff", ["broken"]),
    ],
)
def test_signs_beyond_ascii_part_words_and_letters_are_part_of_them(
    text: str, said: list[str]
) -> None:
    assert tokenize(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("हिन्दी में फ़ॉर्म", ["हिन्दी", "में", "फ़ॉर्म"]),
        ("தமிழ் বাংলা", ["தமிழ்", "বাংলা"]),
        ("العَرَبِيَّة العـــربية", ["العربية", "العربية"]),
        ("שָׁלוֹם", ["שלום"]),
        ("Pru\u0308fe das Re\u0301sume\u0301", ["prufe", "das", "resume"]),
        ("İstanbul за\u0301мок", ["istanbul", "замок"]),
        ("ёлка Ёлка йод и\u0306од", ["елка", "елка", "йод", "йод"]),
        ("ＰＤＦ ﾄﾞ①", ["pdf", "ド", "1"]),
        ("m² naïve™ 3½ é…", ["m2", "naive", "3½", "e"]),
        ("ภาษาไทย pdf ฟอร์ม", ["ภาษ", "าษา", "ษาไ", "าไท", "ไทย", "pdf", "ฟอร์", "อร์ม"]),
        ("မြန်မာ ខ្មែរ ປີ", ["မြန်", "န်မာ", "ខ្មែរ", "ປີ"]),
        ("⚠️ a\u0301\ufe0f 👩\u200d💻", ["a"]),
    ],
)
def test_marks_stay_in_their_words_and_compatible_letters_are_one(
    text: str, said: list[str]
) -> None:
    expected = [fold_marks(fold(one)) for one in said]
    assert tokenize(text) == tokenize(unicodedata.normalize("NFD", text)) == expected
    assert set(weigh_fields([], "", (), text, ())["body"][0].split("\n")) == set(terms(expected))


def test_every_mark_and_compatible_letter_is_looked_for() -> None:
    for at in {
        *range(0x80, 0xD800),
        *range(0xE000, 0x10000),
        *range(0x1D400, 0x1D800),
        *range(0x1EE00, 0x1FC00),
    }:
        own = chr(at).casefold()
        other = unicodedata.normalize("NFKC", own).casefold()
        is_mark = unicodedata.category(own[0]) in ("Mn", "Mc") and not 0xFE00 <= at <= 0xFE0F
        if is_mark or (own.isalnum() and "\u2044" not in other and other != own):
            assert is_unnormalized(own), hex(at)


@pytest.mark.parametrize(
    "text", ["e" + "\u0301\u0327" * 50_000, "ﾞ\u093c" * 50_000, "ก่ํ" * 30_000, "\u093c" * 90_000]
)
def test_any_number_of_marks_takes_no_time(text: str) -> None:
    before = time.process_time()
    tokenize(text)
    assert time.process_time() - before < 1


def test_a_skill_in_thai_is_found_by_a_part_of_what_it_says(store: Store, index: Index) -> None:
    put(store, {"one": ("กรอกแบบฟอร์ม PDF ให้ฉัน", ""), "two": ("แปลเอกสารภาษาไทย", "")})
    assert names(index, "แบบฟอร์ม") == ["one"] and names(index, "เอกสาร") == ["two"]


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("k8s", "kubernetes"),
        ("golang", "go"),
        ("repo", "repository"),
        ("db", "database"),
        ("js", "javascript"),
    ],
)
def test_a_short_form_and_what_it_stands_for_are_one_word(
    store: Store, index: Index, short: str, long: str
) -> None:
    put(
        store,
        {
            "one": (f"Works with {short} every day.", ""),
            "two": (f"Works with {long} every day.", ""),
        },
    )

    by_short, by_long = scores(index, short), scores(index, long)

    assert by_short == by_long
    assert set(by_short) == {"skill:one", "skill:two"} and len(set(by_short.values())) == 1


def test_a_word_that_is_repeated_counts_more(store: Store, index: Index) -> None:
    put(store, {"tables": ("Works with csv files.", ""), "forms": ("Works with pdf files.", "")})

    assert (names(index, "csv csv csv pdf")[0], names(index, "csv pdf pdf pdf")[0]) == (
        "tables",
        "forms",
    )
    assert scores(index, "pdf pdf")["skill:forms"] > scores(index, "pdf")["skill:forms"]
    put(store, {"often": ("Works.", "json json json xml"), "once": ("Works.", "json xml xml xml")})
    assert names(index, "json")[0] == "often"


def test_function_words_find_something_in_a_small_library_only_when_they_are_alone(
    store: Store, index: Index
) -> None:
    put(store, {"guide": ("How to do it yourself.", ""), "pdf": ("Fills PDF forms.", "")})

    assert names(index, "how to do it") == ["guide"]
    assert names(index, "how to do it with pdf") == ["pdf"]


def test_a_skill_is_found_by_the_names_of_its_other_files(store: Store, index: Index) -> None:
    put(store, {"maths": ("Works with numbers.", "")}, quaternion_rotation=b"x")

    (scored,) = index.search("rotation").scored

    assert (scored.entry.name, [part.field for part in scored.parts]) == ("maths", ["files"])
    assert names(index, "md") == []


# All of them, or the best of many


class Brute:
    """Scores by the definition: BM25 in each field, summed over all, half of it by how much is
    covered.
    """

    def __init__(self, texts: Texts) -> None:
        self.weights = {
            name: {
                field: dict(zip(terms.split("\n"), weights, strict=True))
                for field, (terms, weights) in weigh_fields(
                    [name], description, (), f"{body}\n", ()
                ).items()
            }
            for name, (description, body) in texts.items()
        }
        self.having = Counter(
            (f, key) for its in self.weights.values() for f, terms in its.items() for key in terms
        )

    def idf(self, count: int) -> float:
        return math.log(1 + (len(self.weights) + PRIOR - count + 0.5) / (count + 0.5))

    def scores(self, query: str) -> dict[str, float]:
        terms = parse_query(query)
        most = {
            key: max(self.having[field, key] for field in FIELDS if field != "pairs")
            for key in terms
        }
        mass = {
            key: one.count * self.idf(most[key])
            for key, one in terms.items()
            if not one.pair and most[key]
        }
        found = {}
        for name, its in self.weights.items():
            has = {
                (field, key): its[field][key] * HEAVIEST / 255
                for field in its
                for key in terms
                if key in its[field]
            }
            shares = (
                terms[key].count * FIELDS[field].weight * self.idf(self.having[field, key]) * weight
                for (field, key), weight in has.items()
            )
            covered = sum(mass.get(key, 0) for key in {key for _, key in has}) / (
                sum(mass.values()) or 1
            )
            if has:
                found[f"skill:{name}"] = sum(shares) * (1 - COVERAGE + COVERAGE * covered)
        return found


def test_in_a_library_of_some_hundred_every_score_is_that_of_the_definition(
    store: Store, index: Index
) -> None:
    chance = random.Random(3)
    brute = Brute(library(chance, store, FEW - 100))
    for _ in range(5):
        query = said(chance, chance.randint(1, 12))
        assert scores(index, query) == pytest.approx(brute.scores(query), abs=1e-9)


@pytest.mark.process
@pytest.mark.parametrize("loops", [bm25, posting_loops])
def test_in_a_large_library_the_best_are_those_of_a_sum_over_all(
    store: Store, index: Index, loops: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bm25, "Sums", loops.Sums)
    monkeypatch.setattr(bm25, "weights_at", loops.weights_at)
    chance = random.Random(5)
    brute = Brute(library(chance, store, 2 * FEW))
    for query in [said(chance, chance.randint(1, 30)) for _ in range(50)]:
        found, whole = index.search(query, limit=20).scored, brute.scores(query)
        best = sorted(whole.values(), reverse=True)[:20]
        assert [scored.score for scored in found] == pytest.approx(best, abs=1e-9)
        assert [whole[str(scored.entry.ref)] for scored in found] == pytest.approx(best, abs=1e-9)
        for scored in found:
            gained = sum(part.score for part in scored.parts)
            assert gained * (1 - COVERAGE + COVERAGE * scored.coverage) == pytest.approx(
                scored.score, abs=1e-9
            )


OFTENEST = b"bababa"


def entry_of(field: int, count: int, places: bytes) -> str:
    """Returns the statement that puts an entry of the word that is said most into its bucket."""
    data = struct.pack("=IHBB", 0, len(OFTENEST), field, count) + OFTENEST + places
    bucket = rare_postings.bucket_of(OFTENEST, rare_postings.BUCKETS)
    return f"INSERT OR REPLACE INTO rare VALUES ({bucket}, x'{data.hex()}')"


HURT = {
    "no weights of some places": "UPDATE posting SET weights = x'01'",
    "a place beyond the block": "UPDATE posting SET documents = x'ffff', weights = x'01'",
    "an entry that is cut off": entry_of(0, 2, b"\0\0\1"),
    "an entry of a field that is none": entry_of(200, 1, b"\0\0\1"),
    "an entry with a place beyond the block": entry_of(0, 1, b"\xff\xff\1"),
}


@pytest.mark.process
@pytest.mark.parametrize("hurt", HURT.values(), ids=HURT)
def test_postings_that_cannot_be_are_made_anew(store: Store, index: Index, hurt: str) -> None:
    """SQLite does not notice a bit that was flipped inside of a value."""
    library(random.Random(29), store, MAX_PENDING + 1)
    wanted = scores(index, "bababa bakoba")
    with contextlib.closing(IndexFile(store.home)) as file, file.writing() as db:
        db.execute(hurt)

    with Index.open(store) as reading:
        assert scores(reading, "bababa bakoba") == wanted
    assert list(check_index(store)) == []


TERMS = {"not compressed": "7801ffff", "cut off": "00ff", "of no encoding": "000100000000000000ff"}


@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
def test_terms_of_a_document_that_cannot_be_are_made_anew(
    store: Store, index: Index, terms: str
) -> None:
    library(random.Random(31), store, 5)
    wanted = scores(index, "bababa bakoba")
    with contextlib.closing(IndexFile(store.home)) as file, file.writing() as db:
        db.execute(f"UPDATE document SET terms = x'{terms}'")

    assert ["index cannot be read" in fault.what for fault in check_index(store)] == [True]
    with Index.open(store) as reading:
        assert scores(reading, "bababa bakoba") == wanted
    assert list(check_index(store)) == []


@pytest.mark.parametrize("count", [50, 2 * FEW])
def test_a_resource_weighed_alone_has_the_score_that_the_search_gave_it(
    store: Store, index: Index, count: int
) -> None:
    chance = random.Random(13)
    library(chance, store, count)
    ranking = index.search(said(chance, 8), limit=40)

    weighed = index.weigh(ranking, [scored.entry.id for scored in ranking.scored])

    assert weighed == ranking.weighed
    assert index.matches(ranking, weighed) == {scored.entry.id: scored for scored in ranking.scored}
    assert len(weighed) > 10


def test_what_is_only_weighed_can_be_read_afterwards(store: Store, index: Index) -> None:
    chance = random.Random(17)
    library(chance, store, 60)
    query = said(chance, 8)
    whole, few = index.search(query, limit=30), index.search(query, limit=5, depth=30)

    assert (few.weighed, len(few.scored)) == (whole.weighed, 5)
    assert index.matches(few, few.weighed) == {scored.entry.id: scored for scored in whole.scored}


def test_what_goes_between_weighing_and_reading_is_left_out(store: Store, index: Index) -> None:
    put(store, {"one": ("Merge conflicts.", "x"), "two": ("Merge conflicts.", "y")})
    ranking = index.search("merge conflict", limit=1, depth=2)
    put(store, {}, remove=["two"])

    assert [scored.entry.name for scored in index.matches(ranking, ranking.weighed).values()] == [
        "one"
    ]


# What a process keeps


@pytest.mark.process
def test_what_was_given_up_is_read_again_and_ranks_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(19)
    there = library(chance, store, FEW + 50)
    queries = [said(chance, chance.randint(1, 12)) for _ in range(20)]
    with Index.open(store) as keeping, Index.open(store) as forgetting:
        for number, query in enumerate(chance.choices(queries, k=80)):
            if number % 20 == 19:
                change(store, chance, there, number)
            wanted = scores(keeping, query)
            with monkeypatch.context() as patch:
                patch.setattr(postings, "_MOST_KEPT", 2_000)
                assert scores(forgetting, query) == pytest.approx(wanted, abs=1e-9) and wanted


def test_what_was_asked_for_last_is_given_up_last(
    store: Store, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    library(random.Random(23), store, MAX_PENDING + 1)
    first, second, third = terms = VOCABULARY[:3]
    index.search(first)  # takes all in
    with contextlib.closing(IndexFile(store.home)) as file, file.reading() as db:
        reader = PostingsReader(PendingDocuments(), range(len(FIELDS)))
        before = {term: reader.read(db, [term])[term] for term in terms}
        size = sum(map(postings._size, before.values()))
        assert reader.read(db, [first])[first][0] is before[first][0]

        monkeypatch.setattr(postings, "_MOST_KEPT", size)
        reader.read(db, [VOCABULARY[3]])
        assert reader.read(db, [first])[first][0] is before[first][0]
        assert reader.read(db, [third])[third][0] is before[third][0]
        again = reader.read(db, [second])[second]

    assert again[0] is not before[second][0]
    assert [(its.term, its.field, its.count) for its in again] == [
        (its.term, its.field, its.count) for its in before[second]
    ]


# Answers


def test_answers_are_shared_survive_reopening_and_are_lost_with_the_file(
    store: Store, index: Index
) -> None:
    index.answers["question"] = "answer"
    with Index.open(store) as other:
        assert other.answers["question"] == "answer"
        other.answers["question"] = "another"
    assert dict(index.answers) == {"question": "another"}
    index.close()
    with Index.open(store) as again:
        assert dict(again.answers) == {"question": "another"}
    (store.home / INDEX_FILE).unlink()

    with Index.open(store) as anew:
        assert dict(anew.answers) == {}


def test_the_oldest_answers_go_when_there_are_too_many(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "MAX_ANSWERS", 5)
    for number in range(8):
        index.answers[str(number)] = "x"

    assert list(index.answers) == ["3", "4", "5", "6", "7"] and len(index.answers) == 5


def test_what_came_after_a_search_can_be_weighed_by_it(store: Store, index: Index) -> None:
    """The embedder may have seen it before the search did."""
    put(store, filler(1_000))
    ranking = index.search("wood")
    put(store, {"new": ("Wood.", "wood")})
    new = store.head(Ref.parse("new")).id

    weighed = index.weigh(ranking, [new, *ranking.weighed])

    assert weighed == ranking.weighed | {new: weighed[new]}
    assert weighed[new].score == 0

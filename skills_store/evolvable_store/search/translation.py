"""The language of a text, its stems, and English words for a task by a small glossary.

Function words tell the language of a text; of a task, words of the glossary do too. A word that is
English too tells nothing.

Most skills are written in English. A task in one of nine other languages gets English words for
its words in the glossary `task_words.tsv`. Words are compared by their stems, German compounds by
their parts, and languages that write no spaces by the longest known word at each place.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from itertools import chain
from pathlib import Path

from Stemmer import Stemmer

from evolvable_store.search.tokenizer import compile_late, fold_marks

GLOSSARY = Path(__file__).with_name("task_words.tsv")
# Read with the module, and parsed on first use.
_TEXT = GLOSSARY.read_text(encoding="utf-8")

# Frequent words that tell a language from English and mostly from the others.
_FUNCTION_WORDS: Mapping[str, str] = {
    "de": "der das und ist ein eine einen einem einer fur mit auf von zu im dem den des ich mir "
    "mein meine meinen wie nicht aus bei zum zur wenn oder sich auch unsere unser unserem "
    "dieses diese diesen dieser diesem bitte wir mach",
    "fr": "le la les un une des du de et est pour avec sur dans mon ma mes je ce cette ces nos "
    "notre comment pas ne qui que au aux par en moi sans son sa",
    "es": "el la los las un una de del y es para con en mi mis por que como este esta estos "
    "nuestro nuestra se al lo cuando sin",
    "pt": "os um uma da dos das para com em na nos nas meu minha meus por que como este esta ao "
    "se sem nossa nosso de",
    "it": "il lo la gli un una del della dei delle per con nel nella mio mia miei che questo "
    "questa di da al si senza nostro nostra",
}
# More function words, which other languages have too or which are rare: they tell no language.
_OTHER_FUNCTION_WORDS: Mapping[str, str] = {
    "de": "aber alle allen alles als am an anderen ans auch bin bis da damit dann dass dein "
    "deine die diese dir doch du durch er es euch euer etwas fur gegen gib habe haben hat "
    "hier hilf hin ihm ihn ihnen ihr ihre ins ist ja jede jeden jeder jedes kann kannst "
    "konnen mal man mehr mich muss noch nun nur ob ohne sein seine seit sind so soll "
    "sollen uber uns unter vom vor war was weil welche welchen werden wird wurde wo "
    "wollen will",
    "fr": "a ai afin aide alors apres as aucun aussi autre autres avant avoir bien c ca car "
    "cela ces cet chaque chez ci d dans deja depuis deux dont elle elles en entre etre eu "
    "fait faire faut fois ici il ils j jusque l leur leurs lors lui m ma mais meme moins "
    "n ne notre nous on ont ou peut peux plus pourquoi puis quand quel quelle quelles "
    "quels quoi s sa sans sera si son sont sous t ta te tes toi ton tous tout toute "
    "toutes tres tu veux vers voici vos votre vous y",
    "es": "a ademas algo ante antes aqui asi aun aunque ayuda ayudame bajo bien cada cual "
    "cuales cuanto cuantos debe desde donde dos e ella ellas ellos entonces entre eres es "
    "esa ese eso esos estan estas esto fue ha haber hace hacer hacia hasta hay he le les "
    "lo mas me mientras mio muy nada ni no nos o os otra otras otro otros pero poco "
    "porque puede puedes puedo pues quiero quien sea ser si sido sobre solo son soy su "
    "sus tambien tan tanto te tener tengo ti tiene toda todas todo todos tras tu tus uno "
    "unos usted ya yo",
    "pt": "a agora ainda alem ali ambos antes aos aqui as ate cada com deve desde dele dela "
    "depois do e ela elas ele eles entre essa esse esses estao estas eu faca fazer foi ha "
    "isso isto ja la lhe mais mas me mesmo minhas muito nem no nosso nossos o onde ou "
    "para pela pelas pelo pelos pode pois porque preciso qual quais quando quanto quantos "
    "quem quero sao seja ser seu seus so sobre sua suas tambem te tem temos ter toda "
    "todas todo todos tu tudo um umas uns voce voces",
    "it": "a abbiamo ad agli ai al alla alle allo altri altro anche ancora avere c cio ci cioe "
    "coi come cosa cui dal dalla dalle dagli dai deve devo dopo dove e ed essere fa fare "
    "fino fra ha hai hanno ho i in io l la le lei li loro lui ma me mentre mi mie molto "
    "ne negli nei nelle no noi non nostra nostre nostri o ogni per perche piu poi prima "
    "puo puoi qual quale quali quando quanti quanto quella quelle quelli quello quindi "
    "sara sei sia so sono sta su sua sue sugli sui sul sulla sulle suo suoi te ti tra tu "
    "tua tue tuo tutta tutte tutti tutto uno vi voglio voi vorrei",
}
# Snowball's stemmers for languages that write spaces.
_SPACED = {
    "de": "german",
    "fr": "french",
    "es": "spanish",
    "pt": "portuguese",
    "it": "italian",
    "ru": "russian",
}
# Words of English and of some other language.
_SHARED = frozenset(
    ("a", "am", "an", "as", "do", "i", "in", "me", "no", "on", "per", "so", "was", "will")
)
_FOREIGN = {word for words in _FUNCTION_WORDS.values() for word in words.split()}
# Stems of English words in the benchmarks' skills and tasks that look like words of a glossary.
_ENGLISH_STEMS = """
acceler action agenda alarm alter ambient analys archiv assur aud auditor ba base basi bauer brief
brows calculi cargo
cart carter changer charg charger client clientid clust cod coda coder coher colon columnar com
combin come comm comma
command commerc commiss comp compet compil complement complet concept confirm conform consol consult
cont conti
convers curriculum datum del dell demonstr deploy dia discuss disposit divid divis domin doubl
elabor elimin employ
equip ess examin extens extra fall favorit film finder formul full fuller fund funder fuse fusion
gen genet gestalt
grad grade grader grill group guard handl handler historian hot idiom implant indic inform invit
journal kart kern
legend li lie lime limit listen ma mail mailer mape march marco marker med media mess mi mid mise
modifi modular motif
must navig norm note notic nuclear nuclei optimis ora pa pager pagin panel parametr pass payer
persona piano planar
plane point pointer polit port porter post prior priori prob probe procur productid programm
proposit prov prove
prover public qual qualit quant ram rapport raster recur recurs red redact redeem redi redo
registrar regul rep resolv
respond restaur resum ret retir revis rig santa scala scalar scanner scheme sender separ serv sit
site slider sona
sorter starter sub supervis surveil symbol tableau tag telephon temp tempo termin tester ton tone
trace tracer trait
transform tri trie valid verifi vers versa vol voyag zone
"""
# In this order: a Japanese text has Han too.
_SCRIPTS = {
    "ja": "[\u3041-\u30ff]",
    "ko": "[\uac00-\ud7af]",
    "zh": "[\u3400-\u9fff]",
    "ru": "[\u0400-\u04ff]",
}
_OTHER_SCRIPT = "[\u0400-\u04ff\u3041-\u9fff\uac00-\ud7af]"
_LATIN_WORD = re.compile("[a-z]+")
_RUN = "[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
_LONGEST = 8  # characters of a known word in a language without spaces
_PART = 4  # letters of the shortest part of a compound
_MOST = 30  # English words that are added to a task
_BEGINNING = 5  # letters at the beginning of a word, in which its stem seldom differs
_SHORTEST = 3  # letters of a word that tells a language
_FEW = 3  # words of a short task for each word that tells its language
_TELLING = 2  # function words that tell the language of a text, where English has fewer
_MOST_WORDS = 1 << 12  # words whose languages a process caches


def translate_words(text: str, words: Sequence[str], language: str | None) -> list[str]:
    """Return at most 30 English words for a task, none for a task in English.

    text: the task, folded. words: its words. language: as `language_of_task` returns it.
    """
    if language is None:
        return []
    if language in _SPACED:
        function_words = _own_words(language) if language in _FUNCTION_WORDS else ()
        translated = [_by_stem(word, language) for word in words if word not in function_words]
    else:
        translated = [_by_longest(run, language) for run in compile_late(_RUN).findall(text)]
    return list(dict.fromkeys(chain.from_iterable(translated)))[:_MOST]


def language_of_text(words: Set[str], function_words: Set[str]) -> str | None:
    """Return the language of a text in Latin script, None for English or an unknown one.

    words: the different words of the text. function_words: those of English.
    """
    # The function words of all languages together first: most texts are in English and end here.
    foreign_words = _FOREIGN & words
    if len(foreign_words) < _TELLING:
        return None
    # Words that both have, such as "in" and "was", are no sign of English.
    english = len((function_words & words) - foreign_words - _SHARED)
    language = max(_FUNCTION_WORDS, key=lambda name: len(_own_words(name) & foreign_words))
    # More words than English has: an English text can quote a few of another language.
    is_told = len(_own_words(language) & foreign_words) >= max(_TELLING, english + 1)
    return language if is_told else None


@cache
def _own_words(language: str) -> Set[str]:
    """Return the function words that tell a language."""
    return frozenset(_FUNCTION_WORDS[language].split())


def stem_in(word: str, language: str | None) -> str | None:
    """Return the stem of a word without marks in a language of the Latin script.

    None in any other language, and for a function word.
    """
    if language not in _FUNCTION_WORDS or is_function_word(word, language):
        return None
    return str(_stemmer(language).stemWord(word))


def is_function_word(word: str, language: str | None) -> bool:
    """Return whether a word without marks says little in a language of the Latin script."""
    return language in _FUNCTION_WORDS and word in _function_words(language)


@cache
def _function_words(language: str) -> Set[str]:
    """Return all function words of a language."""
    return _own_words(language) | frozenset(_OTHER_FUNCTION_WORDS[language].split())


def language_of_task(text: str, words: Sequence[str], function_words: Iterable[str]) -> str | None:
    """Return the language of a task, None for English or an unknown one.

    text: the task, folded. words: its words. function_words: those of English.
    """
    if not text.isascii() and compile_late(_OTHER_SCRIPT).search(text):
        scripts = {
            name: len(compile_late(letters).findall(text)) for name, letters in _SCRIPTS.items()
        }
        # A character counts as half a word, so that a single foreign name does not decide.
        if 2 * sum(scripts.values()) > len(_LATIN_WORD.findall(text)):
            return next(name for name, count in scripts.items() if count)
    distinct_words = set(words)
    foreign_words = _FOREIGN.intersection(distinct_words)
    english = len(distinct_words.intersection(function_words) - foreign_words - _SHARED)
    # The usual case is a task in English, which needs no glossary.
    if english and not foreign_words:
        return None
    glossary_counts = Counter(language for word in distinct_words for language in _LANGUAGES[word])
    if not foreign_words and not glossary_counts:
        return None
    # A function word and a word of the glossary count alike.
    counts = {
        name: len(foreign_words & _own_words(name)) + glossary_counts[name]
        for name in _FUNCTION_WORDS
    }
    language = max(counts, key=lambda name: (counts[name], glossary_counts[name]))
    if fold_marks(text) != text:
        margin = 0  # marks on letters are a sign of the language too
    elif english:
        margin = english
    else:
        # A single word may be a name, which it seldom is in a short task.
        is_short = len(distinct_words) <= _FEW * counts[language]
        margin = 0 if is_short and glossary_counts[language] else 1
    return language if counts[language] > english + margin else None


def is_not_english(text: str, words: Sequence[str], function_words: Iterable[str]) -> bool:
    """Return whether a task is in another language than English, whichever that is.

    It is also where it has function words of another language and none of English. text, words,
    function_words: as for `language_of_task`.
    """
    if language_of_task(text, words, function_words) is not None:
        return True
    return bool(_FOREIGN.intersection(words)) and not set(words).intersection(function_words)


class _Languages(dict[str, tuple[str, ...]]):
    """By word, the languages whose glossary has it, found at first use; none for English words."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        candidates = _beginnings().get(word[:_BEGINNING], ()) if len(word) >= _SHORTEST else ()
        if not candidates:
            return ()  # most words, for which this is fast enough without the cache
        if len(self) >= _MOST_WORDS:
            self.clear()
        languages = self[word] = tuple(self._find_languages(word, candidates))
        return languages

    def _find_languages(self, word: str, candidates: Iterable[str]) -> Iterator[str]:
        # A word that is English too tells nothing.
        if _english_stemmer().stemWord(word) not in _english_stems():
            for language in candidates:
                if word not in _own_words(language) and _is_known(word, language):
                    yield language


_LANGUAGES = _Languages()


@cache
def _beginnings() -> Mapping[str, tuple[str, ...]]:
    """Return by the first letters of the glossary's words the languages that have such a word.

    Most words of English begin like none of them, so a task in English needs no glossary.
    """
    header, *rows = _rows()
    languages: dict[str, tuple[str, ...]] = {}
    for language in _FUNCTION_WORDS:
        at = header.index(language)
        words = (word for row in rows for word in row[at].split("/"))
        for beginning in {fold_marks(word.casefold())[:_BEGINNING] for word in words}:
            languages[beginning] = (*languages.get(beginning, ()), language)
    return languages


@cache
def _english_stems() -> Set[str]:
    """Return the stems of the glossary's English words, and of _ENGLISH_STEMS."""
    return {*_ENGLISH_STEMS.split(), *(_english_stemmer().stemWord(row[0]) for row in _rows())}


@cache
def _english_stemmer() -> Stemmer:
    return Stemmer("porter", 0)


def _by_stem(word: str, language: str) -> Iterator[str]:
    """Yield the English words for a word: by its stem, or of a German compound by its parts."""
    glossary, stem = _glossary(language), _stemmer(language).stemWord
    if (english_words := glossary.get(stem(word))) is not None:
        yield from english_words
    elif language == "de":
        # Every split of a compound, with the "s" that may join its parts (Arbeitsplatz).
        for at in range(_PART, len(word) - _PART + 1):
            first, second = word[:at], word[at:]
            yield from glossary.get(stem(second), ())
            without_s = glossary.get(stem(first.removesuffix("s")), ())
            yield from glossary.get(stem(first), without_s)


def _by_longest(run: str, language: str) -> Iterator[str]:
    """Yield the English words for the longest known word at each place of a run without spaces."""
    glossary, at = _glossary(language), 0
    while at < len(run):
        size = next((size for size in range(_LONGEST, 0, -1) if run[at : at + size] in glossary), 0)
        yield from glossary[run[at : at + size]] if size else ()
        at += size or 1


@cache
def _stemmer(language: str) -> Stemmer:
    return Stemmer(_SPACED[language])


@cache
def _glossary(language: str) -> Mapping[str, tuple[str, ...]]:
    """Return the English words by the stem of each known word of a language.

    Of a language without spaces they are by the word itself.
    """
    header, *rows = _rows()
    at = header.index(language)
    glossary: dict[str, tuple[str, ...]] = {}
    for english, *others in rows:
        for word in others[at - 1].split("/"):
            folded = fold_marks(word.casefold())
            key = _stemmer(language).stemWord(folded) if language in _SPACED else folded
            glossary[key] = (*glossary.get(key, ()), english)
    return glossary


def _is_known(word: str, language: str) -> bool:
    """Return whether the glossary of a language has this word in some form.

    It compares words with the same first letters. Tasks in English come here too, for which no
    glossary of stems should be built in memory.
    """
    known_words, stem = _known_words(language), _stemmer(language).stemWord
    beginning = f"\n{word[:_SHORTEST]}"
    at = known_words.find(beginning)
    while at >= 0:
        end = known_words.index("\n", at + 1)
        if stem(known_words[at + 1 : end]) == stem(word):
            return True
        at = known_words.find(beginning, end)
    return False


@cache
def _known_words(language: str) -> str:
    """Return the words of a language's glossary as lines, each after and before a line end."""
    header, *rows = _rows()
    at = header.index(language)
    words = (fold_marks(word.casefold()) for row in rows for word in row[at].split("/"))
    return "".join(f"\n{word}" for word in words) + "\n"


@cache
def _rows() -> list[list[str]]:
    """Return the cells of the glossary; the first row names the languages."""
    return [line.split("\t") for line in _TEXT.splitlines()]

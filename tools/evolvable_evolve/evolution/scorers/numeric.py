"""Scorers of numbers, dates and short texts: the strict one, and EvoSkill's with its flaws, for
comparison.

EvoSkill's scorer was described from its behaviour (the vectors in tests/evolve) and is written
independently. Known flaws are kept: units are not compared, a list of guesses passes, `cat` is
found in `concatenate`. `numeric_strict` has none of them.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_MONTHS = {
    name: number for number, names in enumerate(_WORDS["months"], start=1) for name in names.split()
}
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>[12]\d{3})\b"
_PARTS = {"MONTH": _MONTH, "DAY": _DAY, "YEAR": _YEAR}
_FORMS = (
    re.sub(
        "MONTH|DAY|YEAR",
        lambda part: _PARTS[part[0]],
        form,
    )
    for form in _WORDS["dates"]
)
# Not within a longer number, a path or a version.
_DATES = [
    re.compile(rf"(?<![\w.,/-]){form}(?![\w/-]|[.,]\d)", re.ASCII | re.IGNORECASE)
    for form in _FORMS
]

_CURRENCIES: dict[str, str] = {
    name: code for code, names in _WORDS["currencies"].items() for name in names
}
_POWERS: dict[str, int] = _WORDS["powers"]
_LETTERS: dict[str, int] = _WORDS["letters"]
_FILLERS, _HEDGES, _NEGATIONS = (
    frozenset(_WORDS[name]) for name in ("fillers", "hedges", "negations")
)

# letter as in 5M, a percent sign, or a word. Currency, sign, and currency after the sign; digits
# with separators of thousands; an exponent; then one factor: a
_NUMBER = re.compile(
    r"(?P<currency>[$€£¥]\s?)?(?P<sign>(?<![\w.)])-\s?)?(?P<late>[$€£¥]\s?)?"
    r"(?P<digits>(?<![A-Za-z_\d])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"(?P<power>[eE][+-]?\d{1,3}(?!\w))?"
    r"(?:(?P<letter>[kKmMbBtT])(?![A-Za-z\d])|\s?(?P<factor>%|percent\b|per cent\b)"
    r"|\s?(?P<named>(?:hundred|thousand|million|billion|trillion)s?\b|(?:mn|bn|tn)\b))?",
    re.ASCII | re.IGNORECASE,
)
_CURRENCY_WINDOW = 12  # characters after a number in which its currency may be named
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number with all its factors multiplied in, and the currency named with it, '' for none.

    plain: it is written with digits alone, as years are.
    """

    value: Decimal
    currency: str
    plain: bool

    @property
    def is_year(self) -> bool:
        """Whether it may be a year, which is right or wrong and never near."""
        return self.plain and 1900 <= self.value <= 2100


Date = tuple[int | None, int, int | None]
"""Year, month and day, as far as they are given.

A date that can be read two ways keeps both numbers as written.
"""


@dataclass(frozen=True, slots=True)
class ParsedAnswer:
    """Contents of a text: its dates, its quantities, and its other words in lower case without
    fillers.
    """

    dates: tuple[Date | str, ...]
    quantities: tuple[Quantity, ...]
    words: tuple[str, ...]


def parse_answer(text: str) -> ParsedAnswer:
    """Return the dates, quantities and words of a text. Never raises."""
    # The typographic minus and the no-break space mean the plain characters.
    dates, rest = _without_dates(text.replace("\u2212", "-").replace("\u00a0", " "))
    rest = _ORDINAL.sub("", rest)
    quantities, left, end = [], [], 0
    for found in _NUMBER.finditer(rest):
        quantity, unknown = _quantity(
            found, rest[found.end() : found.end() + _CURRENCY_WINDOW].lower()
        )
        quantities.append(quantity)
        # A letter that is no factor belongs to the words.
        left += [rest[end : found.start()], unknown]
        end = found.end()
    words = _WORD.findall(" ".join([*left, rest[end:]]).casefold())
    content_words = tuple(
        word for word in words if word not in _FILLERS and word not in _CURRENCIES
    )
    return ParsedAnswer(tuple(dates), tuple(quantities), content_words)


def _without_dates(text: str) -> tuple[list[Date | str], str]:
    dates: list[Date | str] = []

    def take(found: re.Match[str]) -> str:
        date = _date(found)
        if date is None:
            # It only looks like a date, so it stays for the numbers.
            return found[0]
        dates.append(date)
        return " "

    for form in _DATES:
        text = form.sub(take, text)
    return dates, text


def _date(found: re.Match[str]) -> Date | str | None:
    parts = found.groupdict()
    year = int(parts["year"]) if parts.get("year") else None
    if parts.get("one"):
        first, second = int(parts["one"]), int(parts["two"])
        # Above 12 a number is the day, whichever comes first. Both up to 12 is ambiguous, and
        # compared as written.
        if first > 12 >= second > 0 and first <= 31:
            return year, second, first
        if second > 12 >= first > 0 and second <= 31:
            return year, first, second
        return f"{first}/{second}/{year}" if 0 < first <= 12 and 0 < second <= 12 else None
    written = parts["month"]
    month = int(written) if written.isdigit() else _MONTHS[written.lower()]
    day = int(parts["day"]) if parts.get("day") else None
    return (year, month, day) if 1 <= month <= 12 and (day is None or 1 <= day <= 31) else None


def _quantity(found: re.Match[str], following: str) -> tuple[Quantity, str]:
    """Return the quantity, and the letter after it where that is no factor."""
    sign = (found["currency"] or found["late"] or "").strip()
    after = re.match(r"\s?([a-z]+|[€£¥])", following)
    currency = _CURRENCIES.get(sign) or (_CURRENCIES.get(after[1], "") if after else "")
    letter, word = found["letter"] or "", (found["factor"] or found["named"] or "").lower()
    # With a currency sign the letter's case does not matter: $5m is five million.
    power = _LETTERS.get(letter.upper() if sign else letter, 0) + _POWERS.get(
        word, _POWERS.get(word[:-1], 0)
    )
    power += int((found["power"] or "e0")[1:])
    value = Decimal(f"{'-' if found['sign'] else ''}{found['digits'].replace(',', '')}e{power}")
    plain = (
        not (sign or found["sign"] or found["power"] or letter or word)
        and found["digits"].isdigit()
    )
    return Quantity(value, currency, plain), "" if power else letter


_NO = frozenset(["no", "false"])
_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
# Signs of a list of guesses.
_LISTED = re.compile(r"[;|]|\s/\s|\bone of\b|\bany of\b")
_NUMERIC_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def numeric_strict(expected: str, output: str, *, rel_tol: float = 0.0, context: str = "") -> float:
    """Return 1.0 where the output gives the expected answer and no other, else 0.0.

    Units and percentages are multiplied in (0.543 billion is 543 million), lists are matched one to
    one in any order, dates by their meaning, years exactly, everything else within `rel_tol`. Words
    of the expected answer must be in the output as whole words. Any further number or date must be
    in `context` (the task) as well, and then no word of doubt may be beside it. Raises ValueError
    for an empty expected answer or a tolerance outside [0, 1].
    """
    if not expected.strip():
        raise ValueError("The expected answer is empty.")
    if not 0 <= rel_tol <= 1:
        raise ValueError(f"rel_tol must be from 0 to 1, not {rel_tol}.")
    expected_answer, output_answer = parse_answer(expected), parse_answer(output)
    if not (expected_answer.quantities or expected_answer.dates):
        return float(_matches_text(expected, expected_answer, output, output_answer))
    if not set(expected_answer.words) <= set(output_answer.words):
        return 0.0
    dates = _surplus(expected_answer.dates, output_answer.dates)
    quantities = _surplus_quantities(
        expected_answer.quantities, output_answer.quantities, Decimal(str(rel_tol))
    )
    if dates is None or quantities is None:
        return 0.0
    if not dates and not quantities:
        return float(not _adds_words(_NEGATIONS, expected, output))
    # Further numbers may repeat the question, and nothing else.
    context_answer = parse_answer(context)
    stated = set(dates) <= set(context_answer.dates) and all(
        any(each.value == other.value for other in context_answer.quantities) for each in quantities
    )
    return float(stated and not _adds_words(_HEDGES | _NEGATIONS, expected, output))


def _matches_text(
    expected: str, expected_answer: ParsedAnswer, output: str, output_answer: ParsedAnswer
) -> bool:
    """Compare answers without numbers: all words of the expected one in a row, and no doubt or list
    about them.
    """
    expected_words = _words(expected)
    # The opposite of a yes or no counts as doubt about it.
    doubts = _HEDGES | {_OPPOSITES[word] for word in expected_words & _OPPOSITES.keys()}
    if _adds_words(doubts if expected_words & _NO else doubts | _NEGATIONS, expected, output):
        return False
    if _LISTED.search(output.casefold()) and not _LISTED.search(expected.casefold()):
        return False
    if not expected_answer.words:  # punctuation or fillers alone
        return expected.split() == output.split()
    length = len(expected_answer.words)
    rows = (
        output_answer.words[start : start + length]
        for start in range(len(output_answer.words) - length + 1)
    )
    return expected_answer.words in rows


def _adds_words(words: frozenset[str], expected: str, output: str) -> bool:
    """Return whether the output has any of these words that the expected answer has not."""
    return bool((words & _words(output)) - _words(expected))


def _words(text: str) -> set[str]:
    return set(_NUMERIC_WORD.findall(text.casefold()))


def _surplus(
    expected_items: Sequence[Hashable], found_items: Sequence[Hashable]
) -> list[Hashable] | None:
    """Return what is given beyond what is wanted, each wanted one taken once; None when one is
    missing.
    """
    expected, found = Counter(expected_items), Counter(found_items)
    return list((found - expected).elements()) if expected <= found else None


def _surplus_quantities(
    expected: Sequence[Quantity], found: Sequence[Quantity], rel_tol: Decimal
) -> list[Quantity] | None:
    """Return the quantities given beyond those wanted; None unless each wanted one has one of its
    own.
    """
    # Fewer quantities than wanted cannot match one to one.
    if len(found) < len(expected):
        return None
    assigned: dict[int, int] = {}  # index given -> index wanted

    def assign(index: int, seen: set[int]) -> bool:
        """Find a quantity of its own for a wanted one, moving others where that helps (bipartite
        matching).
        """
        for at, candidate in enumerate(found):
            if at in seen or not _within_tolerance(expected[index], candidate, rel_tol):
                continue
            seen.add(at)
            if at not in assigned or assign(assigned[at], seen):
                assigned[at] = index
                return True
        return False

    if not all(assign(index, set()) for index in range(len(expected))):
        return None
    return [each for at, each in enumerate(found) if at not in assigned]


def _within_tolerance(expected: Quantity, found: Quantity, rel_tol: Decimal) -> bool:
    # A missing currency is not wrong, another one is.
    if expected.currency and found.currency and expected.currency != found.currency:
        return False
    if expected.value == found.value:
        return True
    # 2019 for 2020 is within 1 % and wrong.
    return not expected.is_year and abs(expected.value - found.value) <= rel_tol * abs(
        expected.value
    )


TOLERANCES = (0.05, 0.01, 0.1, 0.0, 0.025)
"""The relative tolerances of the graded score, in the order in which they are added: the sum
depends on it by rounding.
"""

_OFFICEQA_NUMBER = re.compile(r"-?\d+\.?\d*%?")
_AROUND = 20  # characters on each side of a number that are its context
_UNIT_WORDS = re.compile(
    r"\b(?:trillions?|billions?|millions?|thousands?|hundreds?|percent|percentage|%)\b"
)
_TAGGED = re.compile(r"<FINAL_ANSWER>\s*(.*?)\s*</FINAL_ANSWER>", re.DOTALL | re.IGNORECASE)

Number = tuple[float, str, bool, bool]
"""A number found in a text: its value, its context, whether it is a percentage, whether it is
negative.
"""


def officeqa_compat(expected: str, output: str, rel_tol: float) -> float:
    """Return 1.0 where the output is right by EvoSkill's rules within the relative tolerance, else
    0.0.

    Raises ValueError for an empty text, and for a tolerance outside [0, 1].
    """
    if not expected:
        raise ValueError("Ground truth cannot be empty")
    if not output:
        raise ValueError("Predicted answer cannot be empty")
    if not 0 <= rel_tol <= 1:
        raise ValueError(f"Tolerance must be between 0 and 1, got {rel_tol}")
    expected_values = [value for value, *_ in find_numbers(expected)]
    found = [value for value, *_ in find_numbers(output)]
    if not expected_values or not found:
        return float(_plain_text(expected) in _plain_text(output))
    # A list of years is matched against years; elsewhere a year in the output is no guess at a
    # value.
    with_years = any(map(is_year, expected_values)) or (
        len(expected_values) == 1 and significant_text(expected)[0]
    )
    candidates = [value for value in found if with_years or not is_year(value)]
    near = all(
        any(_within_relative(value, guess, rel_tol) for guess in candidates)
        for value in expected_values
    )
    return float(near and text_overlaps(expected, output))


def officeqa_graded(expected: str, output: str) -> float:
    """Return the mean over TOLERANCES, each weighing 1 / (1 + 20 tolerance); 0.0 for an empty
    output.

    Raises ValueError for an empty expected text.
    """
    if not output:
        return 0.0
    weighted = total = 0.0
    for tolerance in TOLERANCES:
        weight = 1.0 / (1.0 + 20.0 * tolerance)
        weighted += weight * officeqa_compat(expected, output, tolerance)
        total += weight
    return weighted / total


def find_numbers(text: str) -> list[Number]:
    """Return the numbers in a text, commas left out of them.

    Raises ValueError for an empty text.
    """
    if not text:
        raise ValueError("Cannot extract numbers from empty text")
    plain = text.replace("\u2212", "-").replace(",", "")
    found = []
    for match in _OFFICEQA_NUMBER.finditer(plain):
        around = plain[max(0, match.start() - _AROUND) : match.end() + _AROUND].lower()
        written = match[0]
        found.append(
            (float(written.rstrip("%")), around, written.endswith("%"), written.startswith("-"))
        )
    return found


def is_year(value: float) -> bool:
    """Return whether the number looks like a year: whole, from 1900 to 2100."""
    return 1900 <= value <= 2100 and value == int(value)


def significant_text(text: str) -> tuple[bool, str]:
    """Return whether a text has at least two characters besides numbers, unit words and
    punctuation, and these characters.
    """
    if not text:
        return False, ""
    rest = _OFFICEQA_NUMBER.sub("", text.lower().replace("\u2212", "-")).replace(
        ",",
        "",
    )
    rest = re.sub(r"[^\w\s]", " ", _UNIT_WORDS.sub("", rest))
    rest = " ".join(rest.split())
    return len(rest) >= 2, rest


def text_overlaps(expected: str, output: str) -> bool:
    """Return whether the words besides numbers agree: one text contains the other, or nothing was
    expected.
    """
    expected_text, output_text = significant_text(expected), significant_text(output)
    return not expected_text[0] or (
        output_text[0]
        and (expected_text[1] in output_text[1] or output_text[1] in expected_text[1])
    )


def find_final_answer(text: str) -> str:
    """Return the text between FINAL_ANSWER tags, or all of a text without them.

    Raises ValueError for an empty one.
    """
    if not text:
        raise ValueError("Cannot extract from empty text")
    found = _TAGGED.search(text)
    if not found:
        return text
    if not found[1].strip():
        raise ValueError("FINAL_ANSWER tags are empty")
    return found[1].strip()


def _within_relative(value: float, guess: float, rel_tol: float) -> bool:
    return guess == 0 if value == 0 else abs(value - guess) / abs(value) <= rel_tol


def _plain_text(text: str) -> str:
    """Return the text as whole answers are compared: in lower case, without quotes at its ends or
    parentheses.
    """
    return re.sub(
        r"\([^)]*\)",
        "",
        text.strip().lower().strip('"').strip("'"),
    ).strip()

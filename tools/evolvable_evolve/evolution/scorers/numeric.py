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
_FORMS = (re.sub("MONTH|DAY|YEAR", lambda part: _PARTS[part[0]], form) for form in _WORDS["dates"])
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

# Currency, sign, and currency after the sign; digits with separators of thousands; an exponent;
# then one factor: a letter as in 5M, a percent sign, or a word.
_NUMBER = re.compile(
    r"(?P<currency>[$€£¥]\s?)?(?P<sign>(?<![\w.)])-\s?)?(?P<late>[$€£¥]\s?)?"
    r"(?P<digits>(?<![A-Za-z_\d])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"(?P<power>[eE][+-]?\d{1,3}(?!\w))?"
    r"(?:(?P<letter>[kKmMbBtT])(?![A-Za-z\d])|\s?(?P<factor>%|percent\b|per cent\b)"
    r"|\s?(?P<named>(?:hundred|thousand|million|billion|trillion)s?\b|(?:mn|bn|tn)\b))?",
    re.ASCII | re.IGNORECASE,
)
_CURRENCY_WINDOW = 12
"""Characters after a number in which its currency may be named."""

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
    """The contents of a text: its dates, its quantities, and its other words in lower case without
    fillers.
    """

    dates: tuple[Date | str, ...]
    quantities: tuple[Quantity, ...]
    words: tuple[str, ...]


def parse_answer(text: str) -> ParsedAnswer:
    """Return the dates, quantities and words of a text. Never raises."""
    # The typographic minus and the no-break space mean the plain characters.
    dates, rest = _take_dates(text.replace("\u2212", "-").replace("\u00a0", " "))
    rest = _ORDINAL.sub("", rest)
    quantities, between, end = [], [], 0
    for match in _NUMBER.finditer(rest):
        following = rest[match.end() : match.end() + _CURRENCY_WINDOW].lower()
        quantity, letter = _parse_quantity(match, following)
        quantities.append(quantity)
        # A letter that is no factor belongs to the words.
        between += [rest[end : match.start()], letter]
        end = match.end()
    words = _WORD.findall(" ".join([*between, rest[end:]]).casefold())
    content_words = [word for word in words if word not in _FILLERS and word not in _CURRENCIES]
    return ParsedAnswer(tuple(dates), tuple(quantities), tuple(content_words))


def _take_dates(text: str) -> tuple[list[Date | str], str]:
    """Return the dates of a text, and the text without them."""
    dates: list[Date | str] = []

    def take(match: re.Match[str]) -> str:
        date = _parse_date(match)
        if date is None:
            # It only looks like a date, so it stays for the numbers.
            return match[0]
        dates.append(date)
        return " "

    for form in _DATES:
        text = form.sub(take, text)
    return dates, text


def _parse_date(match: re.Match[str]) -> Date | str | None:
    """Return a date, as text where it is ambiguous, None where it is none."""
    parts = match.groupdict()
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


def _parse_quantity(match: re.Match[str], following: str) -> tuple[Quantity, str]:
    """Return the quantity, and the letter after it where that is no factor.

    following: the text after the number, which may name its currency.
    """
    sign, digits = (match["currency"] or match["late"] or "").strip(), match["digits"]
    after = re.match(r"\s?([a-z]+|[€£¥])", following)
    currency = _CURRENCIES.get(sign) or (_CURRENCIES.get(after[1], "") if after else "")
    letter, word = match["letter"] or "", (match["factor"] or match["named"] or "").lower()
    # With a currency sign the letter's case does not matter: $5m is five million.
    power = _LETTERS.get(letter.upper() if sign else letter, 0)
    # The word without its last letter, for a plural.
    power += _POWERS.get(word, _POWERS.get(word[:-1], 0))
    power += int((match["power"] or "e0")[1:])
    value = Decimal(f"{'-' if match['sign'] else ''}{digits.replace(',', '')}e{power}")
    has_more = bool(sign or match["sign"] or match["power"] or letter or word)
    plain = not has_more and digits.isdigit()
    return Quantity(value, currency, plain), "" if power else letter


_NO = frozenset(["no", "false"])
_OPPOSITES = {"yes": "no", "no": "yes", "true": "false", "false": "true"}
# Marks of a list of guesses.
_LISTED = re.compile(r"[;|]|\s/\s|\bone of\b|\bany of\b")
_NUMERIC_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")


def numeric_strict(expected: str, output: str, *, rel_tol: float = 0.0, context: str = "") -> float:
    """Return 1.0 where the output gives the expected answer and no other, else 0.0.

    Units and percentages are multiplied in: 0.543 billion is 543 million. Lists are matched one to
    one in any order, dates by their meaning, years exactly, all other numbers within `rel_tol`.
    Words of the expected answer must be in the output as whole words. Any further number or date
    must be in `context` (the task) as well, and then no word of doubt may be beside it. Raises
    ValueError for an empty expected answer or a tolerance outside [0, 1].
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
    dates = _find_surplus(expected_answer.dates, output_answer.dates)
    tolerance = Decimal(str(rel_tol))
    quantities = _match_quantities(expected_answer.quantities, output_answer.quantities, tolerance)
    if dates is None or quantities is None:
        return 0.0
    if not dates and not quantities:
        return float(not _adds_words(_NEGATIONS, expected, output))
    # Further numbers may repeat the question, and nothing else.
    context_answer = parse_answer(context)
    context_values = [quantity.value for quantity in context_answer.quantities]
    has_dates = set(dates) <= set(context_answer.dates)
    stated = has_dates and all(quantity.value in context_values for quantity in quantities)
    return float(stated and not _adds_words(_HEDGES | _NEGATIONS, expected, output))


def _matches_text(
    expected: str, expected_answer: ParsedAnswer, output: str, output_answer: ParsedAnswer
) -> bool:
    """Return whether an answer without numbers is right.

    All words of the expected answer must follow each other in the output, without a word of doubt
    and not in a list of guesses.
    """
    expected_words = _find_words(expected)
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
    return bool((words & _find_words(output)) - _find_words(expected))


def _find_words(text: str) -> set[str]:
    return set(_NUMERIC_WORD.findall(text.casefold()))


def _find_surplus(
    expected_items: Sequence[Hashable], output_items: Sequence[Hashable]
) -> list[Hashable] | None:
    """Return the items of the output beyond the expected ones, each of which is taken once; None
    where an expected one is missing.
    """
    expected, output = Counter(expected_items), Counter(output_items)
    return list((output - expected).elements()) if expected <= output else None


def _match_quantities(
    expected: Sequence[Quantity], output: Sequence[Quantity], rel_tol: Decimal
) -> list[Quantity] | None:
    """Return the quantities of the output beyond the expected ones; None unless each expected one
    has one of its own.
    """
    # Fewer quantities than expected cannot match one to one.
    if len(output) < len(expected):
        return None
    # By the index in the output, the index of the expected quantity that it is assigned to.
    assigned: dict[int, int] = {}

    def assign(index: int, visited: set[int]) -> bool:
        """Assign a quantity of the output to an expected one; others are moved where that helps
        (bipartite matching).
        """
        for at, candidate in enumerate(output):
            if at in visited or not _is_near(expected[index], candidate, rel_tol):
                continue
            visited.add(at)
            if at not in assigned or assign(assigned[at], visited):
                assigned[at] = index
                return True
        return False

    if not all(assign(index, set()) for index in range(len(expected))):
        return None
    return [quantity for at, quantity in enumerate(output) if at not in assigned]


def _is_near(expected: Quantity, given: Quantity, rel_tol: Decimal) -> bool:
    # A missing currency is not wrong, another one is.
    if expected.currency and given.currency and expected.currency != given.currency:
        return False
    if expected.value == given.value:
        return True
    # 2019 for 2020 is within 1 % and wrong.
    if expected.is_year:
        return False
    return abs(expected.value - given.value) <= rel_tol * abs(expected.value)


TOLERANCES = (0.05, 0.01, 0.1, 0.0, 0.025)
"""The relative tolerances of the graded score, in the order in which they are added: by rounding
the sum depends on it.
"""

_OFFICEQA_NUMBER = re.compile(r"-?\d+\.?\d*%?")
_AROUND = 20
"""Characters on each side of a number that are its context."""

_UNIT_WORDS = re.compile(
    r"\b(?:trillions?|billions?|millions?|thousands?|hundreds?|percent|percentage|%)\b"
)
_TAGGED = re.compile(r"<FINAL_ANSWER>\s*(.*?)\s*</FINAL_ANSWER>", re.DOTALL | re.IGNORECASE)

Number = tuple[float, str, bool, bool]
"""A number of a text: its value, its context, whether it is a percentage, whether it is
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
    output_values = [value for value, *_ in find_numbers(output)]
    if not expected_values or not output_values:
        return float(_plain_text(expected) in _plain_text(output))
    # Expected years are matched against years; elsewhere a year in the output is no guess at a
    # value.
    has_years = any(map(is_year, expected_values))
    with_years = has_years or (len(expected_values) == 1 and significant_text(expected)[0])
    guesses = [value for value in output_values if with_years or not is_year(value)]
    near = all(
        any(_is_within(value, guess, rel_tol) for guess in guesses) for value in expected_values
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
    numbers = []
    for match in _OFFICEQA_NUMBER.finditer(plain):
        around = plain[max(0, match.start() - _AROUND) : match.end() + _AROUND].lower()
        written = match[0]
        value, is_percentage = float(written.rstrip("%")), written.endswith("%")
        numbers.append((value, around, is_percentage, written.startswith("-")))
    return numbers


def is_year(value: float) -> bool:
    """Return whether the number looks like a year: whole, from 1900 to 2100."""
    return 1900 <= value <= 2100 and value == int(value)


def significant_text(text: str) -> tuple[bool, str]:
    """Return whether a text has at least two characters besides numbers, unit words and
    punctuation, and these characters.
    """
    if not text:
        return False, ""
    rest = _OFFICEQA_NUMBER.sub("", text.lower().replace("\u2212", "-")).replace(",", "")
    rest = re.sub(r"[^\w\s]", " ", _UNIT_WORDS.sub("", rest))
    rest = " ".join(rest.split())
    return len(rest) >= 2, rest


def text_overlaps(expected: str, output: str) -> bool:
    """Return whether the words besides numbers agree: one text contains the other, or no word is
    expected.
    """
    has_expected, expected_text = significant_text(expected)
    has_output, output_text = significant_text(output)
    if not has_expected:
        return True
    return has_output and (expected_text in output_text or output_text in expected_text)


def find_final_answer(text: str) -> str:
    """Return the text between FINAL_ANSWER tags, or all of a text without them.

    Raises ValueError for an empty one.
    """
    if not text:
        raise ValueError("Cannot extract from empty text")
    match = _TAGGED.search(text)
    if not match:
        return text
    if not match[1].strip():
        raise ValueError("FINAL_ANSWER tags are empty")
    return match[1].strip()


def _is_within(value: float, guess: float, rel_tol: float) -> bool:
    return guess == 0 if value == 0 else abs(value - guess) / abs(value) <= rel_tol


def _plain_text(text: str) -> str:
    """Return the text as whole answers are compared: in lower case, without quotes at its ends or
    parentheses.
    """
    unquoted = text.strip().lower().strip('"').strip("'")
    return re.sub(r"\([^)]*\)", "", unquoted).strip()

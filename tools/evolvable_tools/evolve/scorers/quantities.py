"""What an answer says, taken apart: dates, quantities with their units multiplied in, and the words that are left."""

import re
from dataclasses import dataclass
from decimal import Decimal

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            *("january jan", "february feb", "march mar", "april apr", "may", "june jun", "july jul", "august aug"),
            *("september sep sept", "october oct", "november nov", "december dec"),
        ),
        start=1,
    )
    for name in names.split()
}
_MONTH = rf"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})\b\.?"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>[12]\d{3})\b"
_DATES = tuple(
    re.compile(rf"(?<![\w.,/-]){form}(?![\w/-]|[.,]\d)", re.ASCII | re.IGNORECASE)
    for form in (
        r"(?P<year>[12]\d{3})-(?P<month>[01]\d)(?:-(?P<day>[0-3]\d))?",
        rf"{_MONTH}\s+{_DAY}\s*,?\s+{_YEAR}",
        rf"{_DAY}\s+(?:of\s+)?{_MONTH},?\s+{_YEAR}",
        rf"{_MONTH}(?:\s+of)?,?\s+{_YEAR}",
        rf"{_MONTH}\s+{_DAY}\b",
        rf"{_DAY}\s+(?:of\s+)?{_MONTH}",
        r"(?P<one>\d{1,2})[/.](?P<two>\d{1,2})[/.](?P<year>[12]\d{3})",
    )
)

_CURRENCIES = {
    **dict.fromkeys(("$", "usd", "dollar", "dollars"), "usd"),
    **dict.fromkeys(("€", "eur", "euro", "euros"), "eur"),
    **dict.fromkeys(("£", "gbp", "pound", "pounds"), "gbp"),
    **dict.fromkeys(("¥", "jpy", "yen"), "jpy"),
}
_POWERS = {
    "hundred": 2,
    "thousand": 3,
    "million": 6,
    "billion": 9,
    "trillion": 12,
    "mn": 6,
    "bn": 9,
    "tn": 12,
    "%": -2,
    "percent": -2,
    "per cent": -2,
}
_LETTERS = {"k": 3, "K": 3, "M": 6, "B": 9, "T": 12}
"""Letters that multiply where they touch the number; after a currency sign small ones do too."""

_NUMBER = re.compile(
    r"(?P<currency>[$€£¥]\s?)?(?P<sign>(?<![\w.)])-\s?)?(?P<late>[$€£¥]\s?)?"
    r"(?P<digits>(?<![A-Za-z_\d])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|(?<![\w.])\.\d+)"
    r"(?P<power>[eE][+-]?\d{1,3}(?!\w))?"
    r"(?:(?P<letter>[kKmMbBtT])(?![A-Za-z\d])|\s?(?P<factor>%|percent\b|per cent\b)"
    r"|\s?(?P<named>(?:hundred|thousand|million|billion|trillion)s?\b|(?:mn|bn|tn)\b))?",
    re.ASCII | re.IGNORECASE,
)
_NEXT = 12  # characters after a number in which its currency may be named
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
FILLERS = frozenset(
    ["a", "an", "and", "of", "the", "in", "on", "at", "is", "was", "are", "were", "to", "for", "by", "it", "its"]
)
"""Words that say nothing in an answer."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number as it counts: its value with every factor in it, and the currency named with it, '' for none.

    A plain number is written with digits alone, as years are.
    """

    value: Decimal
    currency: str
    plain: bool

    @property
    def is_year(self) -> bool:
        """Whether it may be a year, which is right or wrong and never near."""
        return self.plain and 1900 <= self.value <= 2100


Date = tuple[int | None, int, int | None]
"""Year, month and day, as far as they are said. One that can be read two ways keeps both numbers as they stand."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a text says: its dates, its quantities, and its other words, small, fillers left out."""

    dates: tuple[Date | str, ...]
    quantities: tuple[Quantity, ...]
    words: tuple[str, ...]


def said(text: str) -> Said:
    """Returns the text taken apart. Never raises."""
    dates, rest = _without_dates(text.replace("\u2212", "-").replace("\u00a0", " "))
    rest = _ORDINAL.sub("", rest)
    quantities, left, end = [], [], 0
    for found in _NUMBER.finditer(rest):
        quantity, unknown = _quantity(found, rest[found.end() : found.end() + _NEXT].lower())
        quantities.append(quantity)
        left += [rest[end : found.start()], unknown]
        end = found.end()
    words = _WORD.findall(" ".join([*left, rest[end:]]).casefold())
    kept = tuple(word for word in words if word not in FILLERS and word not in _CURRENCIES)
    return Said(tuple(dates), tuple(quantities), kept)


def _without_dates(text: str) -> tuple[list[Date | str], str]:
    dates: list[Date | str] = []

    def take(found: re.Match[str]) -> str:
        date = _date(found)
        if date is None:
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
        one, two = int(parts["one"]), int(parts["two"])
        if one > 12 >= two > 0 and one <= 31:
            return year, two, one
        if two > 12 >= one > 0 and two <= 31:
            return year, one, two
        return f"{one}/{two}/{year}" if 0 < one <= 12 and 0 < two <= 12 else None
    written = parts["month"]
    month = int(written) if written.isdigit() else _MONTHS[written.lower()]
    day = int(parts["day"]) if parts.get("day") else None
    return (year, month, day) if 1 <= month <= 12 and (day is None or 1 <= day <= 31) else None


def _quantity(found: re.Match[str], following: str) -> tuple[Quantity, str]:
    """Returns the quantity, and the letter after it where that is no factor."""
    sign = (found["currency"] or found["late"] or "").strip()
    after = re.match(r"\s?([a-z]+|[€£¥])", following)
    currency = _CURRENCIES.get(sign) or (_CURRENCIES.get(after[1], "") if after else "")
    letter, word = found["letter"] or "", (found["factor"] or found["named"] or "").lower()
    power = _LETTERS.get(letter.upper() if sign else letter, 0) + _POWERS.get(word, _POWERS.get(word[:-1], 0))
    power += int((found["power"] or "e0")[1:])
    value = Decimal(f"{'-' if found['sign'] else ''}{found['digits'].replace(',', '')}e{power}")
    plain = not (sign or found["sign"] or found["power"] or letter or word) and found["digits"].isdigit()
    return Quantity(value, currency, plain), "" if power else letter

#!/usr/bin/env python3
"""Profiles a CSV, TSV, JSON or JSON Lines file: columns, types, empty cells, ranges, and what to be careful about.

Python 3.9 or newer, nothing to install. A name that ends in .gz is read as gzip. CSV and JSON Lines are streamed; a
JSON file is read whole.
Exit status: 0 profiled, 1 the file cannot be read as data, 2 wrong usage.
"""

import argparse
import codecs
import csv
import gzip
import json
import re
import signal
import sys
import zlib
from collections import Counter, defaultdict
from datetime import date
from itertools import chain, islice
from pathlib import Path

DISTINCT, COMMON, ROWS = 50_000, 1_000, 1_000_000
"""How many different values, counted values and row hashes are kept: what bounds the memory."""

EMPTY_WORDS = {"na", "n/a", "#n/a", "null", "none", "nan", "nil", "-", "--", "?", "(null)", "\\n"}
INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d*)")
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[-+]\d\d:?\d\d)?)?")
QUOTED = "numbers or booleans written as text"
ZEROS = "numbers with leading zeros; keep the column as text"
ODD = {
    ZEROS: r"0\d+",
    "numbers with a comma in them (text here)": r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[-+]?\d+,\d+",
    "numbers with a currency or percent sign (text here)": r"[$€£]\s?[-\d.,]+|[-\d.,]+\s?[$€£%]",
    "dates like 3/4/2026 (text here; find out which is the day)": r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4}",
}
MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
KINDS = {bool: "boolean", int: "integer", float: "number", list: "list", dict: "object"}
RANGES = {
    ("number", "integer"): "",
    ("datetime", "date"): "",
    ("text",): " chars",
    ("list",): " items",
}


class NotData(Exception):
    """The file cannot be read as what it should be."""


class Column:
    """What was seen in one column, in a bounded amount of memory."""

    def __init__(self, typed):
        self.typed, self.values, self.padded = typed, 0, 0
        self.types, self.odd, self.common, self.words = Counter(), Counter(), Counter(), Counter()
        self.seen, self.ends, self.first = set(), {}, {}

    def add(self, value):
        kind, key = self.classify(value)
        if kind is None:
            return
        self.values += 1
        self.types[kind] += 1
        if key is not None:
            low, high = self.ends.get(kind, (key, key))
            self.ends[kind] = min(low, key), max(high, key)
        text = (
            value
            if isinstance(value, str)
            else json.dumps(value, sort_keys=True, ensure_ascii=False)
        )
        self.first.setdefault(kind, short(text))
        if len(self.seen) <= DISTINCT:
            self.seen.add(hash((text, isinstance(value, str))))
        if len(self.common) <= COMMON:
            self.common[short(text)] += 1

    def classify(self, value):
        """Returns (type or None when empty, what is compared for the range)."""
        if not isinstance(value, str):
            if value is None or value != value:  # NaN is not equal to itself
                return None, None
            return KINDS[type(value)], len(value) if isinstance(value, (list, dict)) else value
        text = value.strip()
        self.padded += text != value
        if not text or text.lower() in EMPTY_WORDS:
            self.words.update([text] if value else ())
            return None, None
        moment = MOMENT.fullmatch(text)
        if moment and is_date(moment[1]):
            return ("datetime" if moment[2] else "date"), text
        if INTEGER.fullmatch(text) and len(text) < 400:
            found = "integer", int(text)
        elif NUMBER.fullmatch(text):
            found = "number", float(text)
        elif text.lower() in ("true", "false", "yes", "no"):
            found = "boolean", None
        else:
            self.odd.update(name for name, pattern in ODD.items() if re.fullmatch(pattern, text))
            return "text", len(text)
        self.odd[QUOTED] += self.typed
        return ("text", len(value)) if self.typed else found

    @property
    def kind(self):
        if set(self.types) == {"integer", "number"}:
            return "number"
        if self.codes:
            return "digits"
        if len(self.types) > 1:
            return ", ".join(
                f"{kind} {share(count, self.values)}" for kind, count in self.types.most_common()
            )
        return next(iter(self.types), "empty")

    @property
    def codes(self):
        """Whether every value is digits and some have leading zeros: zip codes, item numbers."""
        return set(self.types) == {"integer", "text"} and self.odd[ZEROS] == self.types["text"]

    @property
    def distinct(self):
        return f">{DISTINCT}" if len(self.seen) > DISTINCT else str(len(self.seen))

    @property
    def range(self):
        """The range as text: of the numbers or dates, else of the length of texts and lists."""
        for kinds, unit in RANGES.items():
            ends = [end for kind in kinds for end in self.ends.get(kind, ())]
            if ends and not self.codes and not (kinds == ("text",) and len(self.types) > 1):
                low, high = (
                    f"{end:.10g}" if isinstance(end, float) else str(end)
                    for end in (min(ends), max(ends))
                )
                return f"{low if low == high else f'{low} .. {high}'}{unit}"
        return ""

    @property
    def top(self):
        """The most common values when some repeat, else an example."""
        if not self.common or len(self.common) > COMMON:
            return ""
        often = [f"{text} ({count})" for text, count in self.common.most_common(3) if count > 1]
        return ", ".join(often) or f"e.g. {next(iter(self.common))}"

    def notes(self, rows, values):
        """Returns what to be careful about, as texts."""
        found = []
        if "," in self.kind:
            rare = min(self.types, key=lambda kind: (self.types[kind], kind != "text"))
            found.append(
                f"mixed types, e.g. {self.first[rare]!r} is {rare}" if values else "mixed types"
            )
        found += [f"{name}: {self.odd[name]}" for name in (QUOTED, *ODD) if self.odd[name]]
        if self.words:
            words = ", ".join(f"{word!r} ({count})" for word, count in self.words.most_common(3))
            found.append(f"counted as empty: {words}")
        if self.padded:
            found.append(f"values with spaces at an end: {self.padded}")
        if not self.values:
            found.append("no value at all")
        elif self.values == rows == len(self.seen) > 1 and self.is_short:
            found.append("unique and never empty: could be the key")
        elif self.values > 1 and len(self.seen) == 1:
            found.append("one value only")
        return found

    @property
    def is_short(self):
        """Whether the values are of one type that keys have, and none is too long for one."""
        return self.kind in ("integer", "text", "digits") and self.ends.get("text", (0,))[-1] <= 200


def is_date(text):
    try:
        return bool(date.fromisoformat(text))
    except ValueError:
        return False


def share(part, whole):
    percent = 100 * part / whole
    return "<1%" if percent < 1 else ">99%" if 99 < percent < 100 else f"{percent:.0f}%"


def counted(number, word):
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def short(text):
    """Returns a text of the data on one line: at most 40 characters, none that moves the cursor."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text)[:40]


class Table:
    """The columns of one file, in the order they appear."""

    def __init__(self, format_, encoding):
        self.format, self.facts, self.notes = format_, [encoding], []
        self.columns = defaultdict(lambda: Column(typed=self.format != "CSV"))
        self.rows, self.hashes, self.repeated = 0, set(), 0

    def add(self, record):
        self.rows += 1
        for name, value in record.items():
            self.columns[name].add(value)
        key = hash(json.dumps(list(record.items())))
        self.repeated += key in self.hashes
        if len(self.hashes) < ROWS:
            self.hashes.add(key)


def opened(path, *mode, **how):
    return (gzip.open if path.suffix == ".gz" else open)(path, *mode, **how)


def guess_delimiter(lines):
    """Returns the delimiter that splits these lines into the most columns evenly."""

    def score(delimiter):
        widths = Counter(len(row) for row in csv.reader(lines, delimiter=delimiter) if row)
        width, often = max(widths.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        return (width > 1, often / max(1, sum(widths.values())), width)

    return max(",;\t|", key=score)


def read_csv(file, table, args):
    csv.field_size_limit(1 << 30)
    delimiter = args.delimiter or guess_delimiter(list(islice(file, 100)))
    table.facts.insert(0, f"delimiter {delimiter!r}")
    file.seek(0)
    reader = csv.reader((line.replace("\0", "") for line in file), delimiter=delimiter)
    rows = filter(None, reader)
    top = next(rows, None)
    if top is None:
        raise NotData("the file is empty")
    names = (
        [f"(column {i})" for i in range(1, len(top) + 1)] if args.no_header else header(top, table)
    )
    table.columns.update((name, Column(typed=False)) for name in names)
    ragged, first = 0, 0
    for row in chain([top] if args.no_header else [], rows):
        if len(row) != len(names):
            ragged, first = ragged + 1, first or reader.line_num
            names += [f"(column {i + 1})" for i in range(len(names), len(row))]
        table.add(dict(zip(names, row)))  # noqa: B905  (strict= is not in Python 3.9)
    if ragged:
        table.notes.append(
            f"rows with another number of cells than the header: {ragged}, first at line {first}"
        )


def header(row, table):
    """Returns the column names in the first row, made unique."""
    names, count = [], Counter()
    for position, cell in enumerate(row, 1):
        name = cell.strip() or f"(column {position})"
        count[name] += 1
        names.append(name if count[name] == 1 else f"{name} ({count[name]})")
    doubled = [name for name, n in count.items() if n > 1]
    if doubled:
        table.notes.append(f"column names that appear twice: {', '.join(doubled)}")
    if any(INTEGER.fullmatch(name) or NUMBER.fullmatch(name) for name in names):
        table.notes.append("a column name is a number; if the first row is data, use --no-header")
    return names


def read_jsonl(file, table, _):
    broken, first = 0, ""
    for number, line in enumerate(file, 1):
        try:
            if line.strip():
                table.add(flat(json.loads(line)))
        except (ValueError, RecursionError) as error:
            broken, first = broken + 1, first or f"line {number}: {error}"
    if broken and not table.rows:
        raise NotData(f"no line is JSON ({first})")
    if broken:
        table.notes.append(f"lines that are not JSON: {broken}, first {first}")


def read_json(file, table, args):
    text = file.read()
    try:
        data = json.loads(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or lines[0].rstrip()[-1:] != "}" or args.path:
            raise NotData(f"not JSON: {error}") from None
        table.format = "JSON Lines"
        file.seek(0)
        read_jsonl(file, table, args)
    else:
        for record in records(data, args.path, table):
            table.add(flat(record))


def records(data, wanted, table):
    """Returns the list of records in `data`: at the path wanted, or the only list of objects there is."""
    for key in wanted.split(".") if wanted else ():
        if not isinstance(data, dict) or key not in data:
            have = ", ".join(list(data)[:10]) if isinstance(data, dict) else "no keys"
            raise NotData(f"there is no {key!r} in --path {wanted} (here: {have})")
        data = data[key]
    if not isinstance(data, dict):
        return data if isinstance(data, list) else [data]
    lists = dict(record_lists(data))
    if len(lists) > 1:
        choices = ", ".join(f"{path} ({len(found)})" for path, found in lists.items())
        raise NotData(f"several lists of records; choose one with --path: {choices}")
    for path, found in lists.items():
        table.facts.append(f"records at {path}")
        return found
    if len(data) > 1 and all(isinstance(value, dict) for value in data.values()):
        table.facts.append("an object of objects")
        return [{"(key)": key, **value} for key, value in data.items()]
    return [data]


def record_lists(data, prefix="", depth=3):
    for key, value in data.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield prefix + key, value
        elif isinstance(value, dict) and depth:
            yield from record_lists(value, f"{prefix}{key}.", depth - 1)


def flat(record, prefix=""):
    """Returns a record with nested objects as dotted names; a list stays one value."""
    if not isinstance(record, dict) or not record and prefix:
        return {prefix[:-1] if prefix else "(value)": record}
    return {
        name: value
        for key, inner in record.items()
        for name, value in flat(inner, f"{prefix}{key}.").items()
    }


def encoding_of(path):
    """Returns the encoding: by byte order mark, else UTF-8 when the whole file is, else Windows-1252."""
    with opened(path, "rb") as file:
        head = file.read(4096)
        marked = [encoding for mark, encoding in MARKS.items() if head.startswith(mark)]
        if b"\0" in head and not marked:
            raise NotData("binary, or UTF-16 without a byte order mark")
        try:
            for _ in codecs.iterdecode(
                chain([head], iter(lambda: file.read(1 << 20), b"")), "utf-8"
            ):
                pass
        except UnicodeDecodeError:
            return (marked or ["cp1252"])[0]
    return (marked or ["utf-8"])[0]


def profile(path, args):
    """Returns the table of a file."""
    encoding = encoding_of(path)
    suffix = Path(path.stem if path.suffix == ".gz" else path).suffix.lower()
    with opened(path, "rt", encoding=encoding, newline="", errors="replace") as file:
        start = file.read(4096).lstrip()[:1]
        file.seek(0)
        if suffix in (".jsonl", ".ndjson") and not args.path:
            name, read = "JSON Lines", read_jsonl
        elif suffix == ".json" or (
            start in ("{", "[") and suffix not in (".csv", ".tsv", ".tab", ".psv")
        ):
            name, read = "JSON", read_json
        else:
            name, read = "CSV", read_csv
        table = Table(name, encoding)
        read(file, table, args)
    if encoding == "cp1252":
        table.notes.append("not UTF-8; read as Windows-1252, check letters with accents")
    if table.repeated:
        table.notes.append(f"rows that repeat an earlier row exactly: {table.repeated}")
    return table


def as_text(name, table, values):
    grid = [("column", "type", "empty", "distinct", "range", "common")]
    notes = list(table.notes)
    for title, column in table.columns.items():
        empty = table.rows - column.values
        empty = f"{empty} ({share(empty, table.rows)})" if empty else "0"
        grid.append((short(title), column.kind, empty, column.distinct, column.range, column.top))
        notes += (f"{short(title)}: {note}" for note in column.notes(table.rows, values))
    grid = [row if values else row[:4] for row in grid]
    widths = [max(map(len, cells)) for cells in zip(*grid)]  # noqa: B905
    facts = [
        table.format,
        counted(table.rows, "row"),
        counted(len(table.columns), "column"),
        *table.facts,
    ]
    lines = [
        f"{name}: {', '.join(facts)}",
        "",
        *("  ".join(map(str.ljust, row, widths)).rstrip() for row in grid),
    ]
    if notes:
        lines += ["", "be careful:", *(f"- {note}" for note in notes)]
    return "\n".join(lines)


def as_json(name, table, values):
    columns = []
    for title, column in table.columns.items():
        seen = {"empty": table.rows - column.values, "distinct": column.distinct}
        shown = {"range": column.range, "common": column.top} if values else {}
        notes = column.notes(table.rows, values)
        columns.append({"name": title, "types": column.types, **seen, **shown, "notes": notes})
    found = {
        "file": name,
        "format": table.format,
        "rows": table.rows,
        "facts": table.facts,
        "notes": table.notes,
    }
    return json.dumps({**found, "columns": columns}, ensure_ascii=False, indent=2)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--path", default="", help="where the records are in a JSON file, such as data.items"
    )
    parser.add_argument(
        "--delimiter", default="", help="of a CSV file (\\t for a tab); guessed when not given"
    )
    parser.add_argument(
        "--no-header", action="store_true", help="the first row of a CSV file is data"
    )
    parser.add_argument("--no-values", action="store_true", help="print no value of the data")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    args.delimiter = args.delimiter.replace("\\t", "\t")
    if len(args.delimiter) > 1:
        parser.error("--delimiter wants one character (\\t for a tab)")
    try:
        table = profile(args.file, args)
    except (NotData, OSError, EOFError, zlib.error, csv.Error, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        print(f"{args.file.name}: {why}", file=sys.stderr)
        return 1
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that "| head" ends it quietly
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    print((as_json if args.json else as_text)(args.file.name, table, not args.no_values))
    return 0


if __name__ == "__main__":
    sys.exit(main())

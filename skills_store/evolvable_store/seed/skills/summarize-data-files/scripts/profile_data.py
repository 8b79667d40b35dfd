#!/usr/bin/env python3
"""Profiles a CSV, TSV, JSON or JSON Lines file: columns, types, empty cells, ranges, and what to be careful about.

Usage: profile_data.py [--json] [--path KEY.KEY] [--delimiter CHAR] [--no-header] [--no-values] FILE

Python 3.9 or newer, nothing to install. A name that ends in .gz is read as gzip. CSV and JSON Lines are streamed; a
JSON file is read whole. --no-values leaves out every value of the data, for files with personal data in them.
Exit status: 0 profiled, 1 the file cannot be read as data, 2 wrong usage.
"""

import argparse
import codecs
import csv
import gzip
import itertools
import json
import math
import re
import signal
import sys
from collections import Counter
from datetime import date
from pathlib import Path

DISTINCT, COMMON, ROWS = 50_000, 1_000, 1_000_000
"""How many different values, counted values and row hashes are kept: what bounds the memory."""

EMPTY_WORDS = {"na", "n/a", "#n/a", "null", "none", "nan", "nil", "-", "--", "?", "(null)", "\\n"}
INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d*)")
NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?=[eE]))(?:[eE][-+]?\d+)?")
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[-+]\d\d:?\d\d)?)?")
ODD = (
    ("quoted", re.compile(r"(?!)"), "numbers or booleans written as text"),
    ("leading zeros", re.compile(r"0\d+"), "numbers with leading zeros; keep the column as text"),
    (
        "comma",
        re.compile(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?|[-+]?\d+,\d+"),
        "numbers with a comma in them (text here)",
    ),
    ("money", re.compile(r"[$€£]\s?[-\d.,]+|[-\d.,]+\s?[$€£%]"), "numbers with a currency or percent sign (text here)"),
    (
        "date",
        re.compile(r"\d{1,2}[/.]\d{1,2}[/.]\d{2,4}"),
        "dates like 3/4/2026 (text here; find out which is the day)",
    ),
)
RANGES = ((("number", "integer"), ""), (("datetime", "date"), ""), (("text",), " chars"), (("list",), " items"))


class NotData(Exception):
    """The file cannot be read as what it should be."""


class Column:
    """What was seen in one column, in a bounded amount of memory."""

    def __init__(self, typed):
        self.typed = typed
        self.values = self.empty = self.padded = 0
        self.types, self.odd, self.common, self.words = Counter(), Counter(), Counter(), Counter()
        self.seen, self.low, self.high, self.first = set(), {}, {}, {}

    def add(self, value):
        kind, key = self.classify(value)
        if kind is None:
            self.empty += 1
            return
        self.values += 1
        self.types[kind] += 1
        if key is not None and (kind not in self.low or key < self.low[kind]):
            self.low[kind] = key
        if key is not None and (kind not in self.high or key > self.high[kind]):
            self.high[kind] = key
        text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
        self.first.setdefault(kind, short(text))
        if len(self.seen) <= DISTINCT:
            self.seen.add(hash((text, isinstance(value, str))))
        if len(self.common) <= COMMON:
            self.common[short(text)] += 1

    def classify(self, value):
        """Returns (type or None when empty, what is compared for the range)."""
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            return None, None
        if isinstance(value, (bool, int, float)):
            kind = "boolean" if isinstance(value, bool) else "integer" if isinstance(value, int) else "number"
            return kind, value
        if isinstance(value, (list, dict)):
            return ("list" if isinstance(value, list) else "object"), len(value)
        kind, key = self.classify_text(value)
        if self.typed and kind in ("integer", "number", "boolean"):
            self.odd["quoted"] += 1
            return "text", len(value)
        return kind, key

    def classify_text(self, value):
        text = value.strip()
        self.padded += text != value
        if not text or text.lower() in EMPTY_WORDS:
            self.words[text] += 1
            return None, None
        if INTEGER.fullmatch(text) and len(text) < 400:
            return "integer", int(text)
        if NUMBER.fullmatch(text):
            return "number", float(text)
        if text.lower() in ("true", "false", "yes", "no"):
            return "boolean", None
        moment = MOMENT.fullmatch(text)
        if moment and is_date(moment[1]):
            return ("datetime" if moment[2] else "date"), text
        for name, pattern, _ in ODD:
            self.odd[name] += bool(pattern.fullmatch(text))
        return "text", len(text)

    @property
    def kind(self):
        if set(self.types) == {"integer", "number"}:
            return "number"
        if len(self.types) <= 1:
            return next(iter(self.types), "empty")
        if self.codes:
            return "digits"
        return ", ".join(f"{kind} {share(count, self.values)}" for kind, count in self.types.most_common())

    @property
    def codes(self):
        """Whether every value is digits and some have leading zeros: zip codes, item numbers."""
        return set(self.types) == {"integer", "text"} and self.odd["leading zeros"] == self.types["text"]

    def could_be_key(self, rows):
        unique = rows > 1 and self.values == rows == len(self.seen)
        return unique and self.kind in ("integer", "text", "digits") and self.high.get("text", 0) <= 200

    def distinct(self):
        return f">{DISTINCT}" if len(self.seen) > DISTINCT else str(len(self.seen))

    def range(self):
        """Returns the range as text: of the numbers or dates, else of the length of texts and lists."""
        for kinds, unit in RANGES:
            lows = [self.low[kind] for kind in kinds if kind in self.low]
            highs = [self.high[kind] for kind in kinds if kind in self.high]
            if lows and not self.codes and not (kinds == ("text",) and len(self.types) > 1):
                low, high = show(min(lows)), show(max(highs))
                return f"{low if low == high else f'{low} .. {high}'}{unit}"
        return ""

    def top(self):
        """Returns the most common values when some repeat, else an example."""
        if not self.common or len(self.common) > COMMON:
            return ""
        often = [f"{text} ({count})" for text, count in self.common.most_common(3) if count > 1]
        return ", ".join(often) if often else f"e.g. {next(iter(self.common))}"

    def notes(self, rows, values):
        """Returns what to be careful about, as texts."""
        found = []
        if "," in self.kind:
            rare = min(self.types, key=lambda kind: (self.types[kind], kind != "text"))
            found.append(f"mixed types, e.g. {self.first[rare]!r} is {rare}" if values else "mixed types")
        found += [f"{text}: {self.odd[name]}" for name, _, text in ODD if self.odd[name]]
        if self.words:
            words = ", ".join(f"{word!r} ({count})" for word, count in self.words.most_common(3))
            found.append(f"counted as empty: {words}")
        if self.padded:
            found.append(f"values with spaces at an end: {self.padded}")
        if not self.values:
            found.append("no value at all")
        elif self.could_be_key(rows):
            found.append("unique and never empty: could be the key")
        elif self.values > 1 and len(self.seen) == 1:
            found.append("one value only")
        return found


def is_date(text):
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def share(part, whole):
    percent = 100 * part / whole
    return "<1%" if percent < 1 else ">99%" if 99 < percent < 100 else f"{percent:.0f}%"


def counted(number, word):
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def show(value):
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def short(text):
    """Returns a text of the data on one line: at most 40 characters, none that moves the cursor."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+", " ", text)[:40]


class Table:
    """The columns of one file, in the order they appear."""

    def __init__(self, format_, facts=()):
        self.format, self.facts, self.columns, self.rows = format_, list(facts), {}, 0
        self.typed = format_ != "CSV"
        self.notes, self.hashes, self.repeated = [], set(), 0

    def add(self, record):
        self.rows += 1
        for name, value in record.items():
            if name not in self.columns:
                self.columns[name] = Column(self.typed)
            self.columns[name].add(value)
        key = hash(json.dumps(list(record.items()), default=str))
        self.repeated += key in self.hashes
        if len(self.hashes) < ROWS:
            self.hashes.add(key)

    def finish(self):
        for column in self.columns.values():
            column.empty = self.rows - column.values
        if "cp1252" in self.facts:
            self.notes.append("not UTF-8; read as Windows-1252, check letters with accents")
        if self.repeated:
            self.notes.append(f"rows that repeat an earlier row exactly: {self.repeated}")
        return self


def open_binary(path):
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")


def encoding_of(path):
    """Returns the encoding: by byte order mark, else UTF-8 when the whole file is, else Windows-1252."""
    with open_binary(path) as file:
        head = file.read(4096)
        if head.startswith(codecs.BOM_UTF8):
            return "utf-8-sig"
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        if b"\0" in head:
            raise NotData("binary, or UTF-16 without a byte order mark")
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for chunk in itertools.chain([head], iter(lambda: file.read(1 << 20), b"")):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8"


def open_text(path, encoding):
    opener = gzip.open if path.suffix == ".gz" else open
    return opener(path, "rt", encoding=encoding, newline="", errors="replace")


def guess_delimiter(lines):
    """Returns the delimiter that splits these lines into the most columns evenly."""

    def score(delimiter):
        widths = Counter(len(row) for row in csv.reader(lines, delimiter=delimiter) if row)
        width, often = max(widths.items(), key=lambda item: (item[1], item[0]), default=(1, 0))
        return (width > 1, often / max(1, sum(widths.values())), width)

    return max(",;\t|", key=score)


def read_csv(path, encoding, args):
    csv.field_size_limit(1 << 30)
    with open_text(path, encoding) as file:
        delimiter = args.delimiter or guess_delimiter(list(itertools.islice(file, 100)))
    table = Table("CSV", [f"delimiter {delimiter!r}", encoding])
    with open_text(path, encoding) as file:
        reader = csv.reader((line.replace("\0", "") for line in file), delimiter=delimiter)
        names, ragged, first = None, 0, 0
        for row in reader:
            if not row:
                continue
            if names is None:
                names = header(row, args.no_header, table)
                if not args.no_header:
                    continue
            if len(row) != len(names):
                ragged, first = ragged + 1, first or reader.line_num
                names += [f"(column {i + 1})" for i in range(len(names), len(row))]
            table.add(dict(zip(names, row)))  # noqa: B905  (strict= is not in Python 3.9)
    if names is None:
        raise NotData("the file is empty")
    for name in names:
        table.columns.setdefault(name, Column(typed=False))
    if ragged:
        table.notes.append(f"rows with another number of cells than the header: {ragged}, first at line {first}")
    return table


def header(row, absent, table):
    """Returns the column names: the first row's, made unique, or numbers when there is no header."""
    if absent:
        return [f"(column {i})" for i in range(1, len(row) + 1)]
    names, count = [], Counter()
    for position, cell in enumerate(row, 1):
        name = cell.strip() or f"(column {position})"
        count[name] += 1
        names.append(name if count[name] == 1 else f"{name} ({count[name]})")
    doubled = [name for name, n in count.items() if n > 1]
    if doubled:
        table.notes.append(f"column names that appear twice: {', '.join(doubled)}")
    if any(INTEGER.fullmatch(cell.strip()) or NUMBER.fullmatch(cell.strip()) for cell in row):
        table.notes.append("a column name is a number; if the first row is data, use --no-header")
    return names


def read_jsonl(path, encoding):
    table, broken, first = Table("JSON Lines", [encoding]), 0, ""
    with open_text(path, encoding) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                table.add(flat(json.loads(line)))
            except (ValueError, RecursionError) as error:
                broken, first = broken + 1, first or f"line {number}: {error}"
    if broken and not table.rows:
        raise NotData(f"no line is JSON ({first})")
    if broken:
        table.notes.append(f"lines that are not JSON: {broken}, first {first}")
    return table


def read_json(path, encoding, wanted):
    with open_text(path, encoding) as file:
        text = file.read()
    try:
        data = json.loads(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) > 1 and lines[0].strip()[-1:] == "}" and not wanted:
            return read_jsonl(path, encoding)
        raise NotData(f"not JSON: {error}") from None
    except RecursionError:
        raise NotData("nested too deeply") from None
    table = Table("JSON", [encoding])
    for record in records(data, wanted, table):
        table.add(flat(record))
    return table


def records(data, wanted, table):
    """Returns the list of records in `data`: at the path wanted, or the only list of objects there is."""
    for key in wanted.split(".") if wanted else ():
        if not isinstance(data, dict) or key not in data:
            have = ", ".join(list(data)[:10]) if isinstance(data, dict) else "no keys"
            raise NotData(f"there is no {key!r} in --path {wanted} (here: {have})")
        data = data[key]
    if isinstance(data, list):
        return data
    if not isinstance(data, dict):
        return [data]
    lists = dict(record_lists(data))
    if len(lists) == 1:
        path, found = next(iter(lists.items()))
        table.facts.append(f"records at {path}")
        return found
    if lists:
        choices = ", ".join(f"{path} ({len(found)})" for path, found in lists.items())
        raise NotData(f"several lists of records; choose one with --path: {choices}")
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
    if not isinstance(record, dict):
        return {prefix.rstrip(".") or "(value)": record}
    found = {}
    for key, value in record.items():
        found.update(flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value})
    return found


def profile(path, args):
    """Returns the table of a file."""
    encoding = encoding_of(path)
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix.lower() in (".jsonl", ".ndjson") and not args.path:
        return read_jsonl(path, encoding).finish()
    if suffix.lower() not in (".csv", ".tsv", ".tab", ".psv"):
        with open_text(path, encoding) as file:
            start = file.read(4096).lstrip()[:1]
        if start in ("{", "[") or suffix.lower() == ".json":
            return read_json(path, encoding, args.path).finish()
    return read_csv(path, encoding, args).finish()


def as_text(name, table, values):
    size = [counted(table.rows, "row"), counted(len(table.columns), "column")]
    facts = ", ".join([table.format, *size, *table.facts])
    head = ["column", "type", "empty", "distinct", *(["range", "common"] if values else [])]
    body = []
    for title, column in table.columns.items():
        empty = f"{column.empty} ({share(column.empty, table.rows)})" if column.empty and table.rows else "0"
        extra = [column.range(), column.top()] if values else []
        body.append([short(title), column.kind, empty, column.distinct(), *extra])
    widths = [max(len(row[i]) for row in [head, *body]) for i in range(len(head))]
    lines = [f"{name}: {facts}", ""]
    lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in [head, *body]]
    notes = list(table.notes)
    for title, column in table.columns.items():
        notes += (f"{short(title)}: {note}" for note in column.notes(table.rows, values))
    if notes:
        lines += ["", "be careful:", *(f"- {note}" for note in notes)]
    return "\n".join(lines)


def as_json(name, table, values):
    columns = []
    for title, column in table.columns.items():
        entry = {"name": title, "types": dict(column.types), "empty": column.empty, "distinct": column.distinct()}
        if values:
            entry |= {"range": column.range(), "common": column.top()}
        columns.append({**entry, "notes": column.notes(table.rows, values)})
    found = {"file": name, "format": table.format, "rows": table.rows, "facts": table.facts, "notes": table.notes}
    return json.dumps({**found, "columns": columns}, ensure_ascii=False, indent=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--path", default="", help="where the records are in a JSON file, such as data.items")
    parser.add_argument("--delimiter", help="of a CSV file; guessed when not given")
    parser.add_argument("--no-header", action="store_true", help="the first row of a CSV file is data")
    parser.add_argument("--no-values", action="store_true", help="print no value of the data")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    args.delimiter = args.delimiter and args.delimiter.replace("\\t", "\t")
    if args.delimiter and len(args.delimiter) != 1:
        parser.error("--delimiter wants one character (\\t for a tab)")
    try:
        table = profile(args.file, args)
    except (NotData, OSError, EOFError, csv.Error, RecursionError) as error:
        print(f"{args.file.name}: {error}", file=sys.stderr)
        return 1
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that "| head" ends it quietly
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    print((as_json if args.json else as_text)(args.file.name, table, not args.no_values))
    return 0


if __name__ == "__main__":
    sys.exit(main())

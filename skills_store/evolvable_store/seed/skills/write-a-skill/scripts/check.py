#!/usr/bin/env python3
"""Checks skill folders against the Agent Skills specification, offline. Python 3.9 or newer, nothing to install.

Prints a verdict for each folder, then one line for each problem. Errors break the specification or a common host;
warnings are advice. Exit status: 0 no errors, 1 errors (with --strict also warnings), 2 wrong usage.
"""

import argparse
import ast
import os
import re
import signal
import sys
from collections import Counter
from pathlib import Path

LIMITS = {
    "name": 64,
    "description": 1024,
    "compatibility": 500,
    "license": 1024,
    "allowed-tools": 4096,
}
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
NOT_TEXT = re.compile(
    r"(?:~|null|true|false|yes|no|on|off|[-+]?\d[\d_]*(?:\.[\d_]*)?(?:e[-+]?\d+)?|[-+]?\.\d+"
    r"|0x[0-9a-f_]+|0o?[0-7_]+|[-+]?\.inf|\.nan|\d{4}-\d\d?-\d\d?(?:[t ].*)?|[-+]?\d+(?::[0-5]?\d)+(?:\.\d*)?)",
    re.IGNORECASE,
)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b"}
ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|(.))",
    re.DOTALL,
)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
MENTION = re.compile(r"`(?:[^`\s]+ )*?((?:scripts|references|assets)/[\w./-]+\w)[^`]*`")
FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,}).*?^\1\2[`~]*\s*$", re.MULTILINE | re.DOTALL)
WHEN = re.compile(
    r"\b(?:when|whenever|before|after|while|if|use (?:this|it|for)|for tasks?)\b", re.IGNORECASE
)
JUNK = {"__pycache__", ".DS_Store", "Thumbs.db", ".git", "node_modules", ".venv", ".env"}
MAX_LINES, MAX_TOKENS, MAX_FILE, MAX_TOTAL = 500, 5000, 5 * 2**20, 16 * 2**20


class Report:
    """What is wrong with one folder."""

    def __init__(self, folder):
        self.folder, self.lines, self.facts = folder, [], ""

    def error(self, where, text, level="error"):
        """`where` is a path in the folder, or the number of a line of SKILL.md."""
        self.lines.append((level, f"SKILL.md:{where}" if isinstance(where, int) else where, text))

    def warn(self, where, text):
        self.error(where, text, "warning")

    def print(self):
        """Prints it and returns how many errors and warnings there are."""
        counts = Counter(level for level, _, _ in self.lines)
        verdict = ", ".join(counted(counts[level], level) for level in sorted(counts)) or "ok"
        print(f"{self.folder.name}: {verdict}{self.facts}")
        for level, where, text in self.lines:
            print(f"  {level:7}  {where}: {text}")
        return counts


def counted(number, word):
    return f"{number} {word}{'' if number == 1 else 's'}"


class Unreadable(Exception):
    """The frontmatter cannot be read: the number of the line, and why."""


def entries(lines):
    """Returns [(line number, key, rest of the line, deeper lines)] for the keys at the indentation of the first."""
    found, indent = [], None
    for number, line in lines:
        bare = line.strip()
        if not bare or (bare.startswith("#") and not (found and found[-1][2][:1] in "|>")):
            if found:
                found[-1][3].append((number, ""))
            continue
        depth = len(line) - len(line.lstrip(" "))
        if line[depth] == "\t":
            raise Unreadable(number, "a tab indents this line; YAML wants spaces")
        indent = depth if indent is None else indent
        if depth > indent and found:
            found[-1][3].append((number, line))
            continue
        match = re.match(r"""("[^"]*"|'[^']*'|[^\s:#"'][^:#]*?)\s*:(?:\s+(.*))?$""", bare)
        if depth != indent or not match:
            raise Unreadable(number, f"this line is not 'key: value': {bare[:60]}")
        found.append((number, match[1].strip("\"'"), (match[2] or "").strip(), []))
    return found


def fold(parts):
    """Returns lines joined as YAML folds them: one break is a space, each empty line a line break."""
    text = ""
    for part in parts:
        if not part:
            text += "\n"
        elif re.search(r"(?<!\\)(?:\\\\)*\\$", text):
            text = text[:-1] + part  # a double-quoted text whose line break is escaped
        else:
            text += part if not text or text.endswith("\n") else " " + part
    return text.rstrip("\n")


def unquote(number, text):
    """Returns the content of a quoted scalar that may be followed by a comment."""
    pattern = r"'((?:[^']|'')*)'" if text[0] == "'" else r'"((?:[^"\\]|\\.)*)"'
    match = re.match(pattern + r"\s*(?:#.*)?$", text, re.DOTALL)
    if not match:
        raise Unreadable(number, "the quotes do not match up, or text follows them")
    if text[0] == "'":
        return match[1].replace("''", "'")
    return ESCAPE.sub(
        lambda m: ESCAPES.get(m[4], m[4]) if m[4] else chr(int(m[1] or m[2] or m[3], 16)), match[1]
    )


def value(number, rest, deeper):
    """Returns a text, or a dict for a nested map, or None for anything that is not a text."""
    lines = [line.strip() for _, line in deeper]
    if re.fullmatch(r"[|>][-+\d]*\s*(?:#.*)?", rest):
        return (fold(lines) if rest[0] == ">" else "\n".join(lines)).strip("\n")
    if rest.startswith(('"', "'")):
        return unquote(number, fold([rest, *lines]))
    rest = re.sub(r"(?:^|\s+)#.*$", "", rest)
    text = fold([rest, *lines]).strip()
    if not rest and re.match(r"[^\s:]+:(?:\s|$)", text) and not text.startswith("- "):
        return {key: (n, value(n, inner, more)) for n, key, inner, more in entries(deeper)}
    if not text or text.startswith((*"[{&*!%@`|>?", "- ")) or NOT_TEXT.fullmatch(text):
        return None
    if ": " in text or text.endswith(":"):
        raise Unreadable(number, "the value has a colon in it; put the value in double quotes")
    return text


def split(data, report):
    """Returns ({key: (line, value)}, body) of a SKILL.md."""
    if data.startswith(b"\xef\xbb\xbf"):
        report.error(1, "it starts with a byte order mark; save it as plain UTF-8")
        data = data[3:]
    text = data.decode("utf-8").replace("\r\n", "\n")
    lines = text.split("\n")
    if CONTROL.search(text):
        line = next(i for i, line in enumerate(lines, 1) if CONTROL.search(line))
        report.error(line, "there is a control character here")
    if lines[0].rstrip() != "---":
        raise Unreadable(1, "the first line must be ---, then name and description, then ---")
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise Unreadable(1, "the frontmatter has no closing ---")
    fields = {}
    for number, key, rest, deeper in entries(enumerate(lines[1:end], 2)):
        if key in fields:
            report.error(number, f"the key {key!r} is there twice")
        fields[key] = (number, value(number, rest, deeper))
    return fields, "\n".join(lines[end + 1 :])


def check_fields(fields, report):
    for key, (number, _) in fields.items():
        if key not in (*LIMITS, "metadata"):
            report.error(number, f"unknown key {key!r}; put it under metadata, as a text")
    for key in ("name", "description"):
        if key not in fields:
            report.error(1, f"{key} is missing")
    for key, limit in LIMITS.items():
        if key in fields:
            check_text(key, *fields[key], limit, report)
    check_metadata(*fields.get("metadata", (1, {})), report)


def check_text(key, number, text, limit, report):
    if not isinstance(text, str):
        report.error(number, f"{key} is not a text; put the value in double quotes")
        return
    if not text.strip():
        report.error(number, f"{key} is empty")
    elif CONTROL.search(text):
        report.error(number, f"{key} has a control character in it")
    elif len(text) > limit:
        report.error(number, f"{key} has {len(text):,} characters, the limit is {limit:,}")
    if key == "name" and text:
        if not NAME.fullmatch(text):
            report.error(number, f"name {text!r}: only a-z, 0-9 and single hyphens between them")
        if text != report.folder.name:
            report.error(
                number, f"name is {text!r}, the folder is {report.folder.name!r}; make them equal"
            )
    if key == "description" and text:
        if re.search(r"<[/!?]?[A-Za-z]", text):
            report.error(number, "description has a tag like <this>; some hosts refuse it")
        elif len(text) < 40 or not WHEN.search(text):
            report.warn(number, "description does not say when to use the skill")


def check_metadata(number, metadata, report):
    if not isinstance(metadata, dict):
        report.error(number, "metadata must be 'key: text' lines, indented by two spaces")
        return
    for key, (line, content) in metadata.items():
        if not isinstance(content, str):
            report.error(line, f"metadata {key} is not a text; put the value in double quotes")
    if "triggers" not in metadata:
        report.warn(
            number, "metadata has no triggers; keyword search has only name and description"
        )


def check_body(body, folder, report):
    if not body.strip():
        report.error("SKILL.md", "there is nothing after the frontmatter")
    lines, tokens = body.strip().count("\n") + 1, len(body) // 4
    if lines > MAX_LINES or tokens > MAX_TOKENS:
        report.warn(
            "SKILL.md", f"{lines} lines, about {tokens:,} tokens; move detail to references/"
        )
    prose = FENCE.sub("", body)
    links = {link.split("#")[0] for link in LINK.findall(prose)}
    for target in sorted(links | set(MENTION.findall(prose))):
        if not target or re.match(r"[a-z][a-z0-9+.-]+:", target, re.IGNORECASE):
            continue
        if target.startswith(("/", "~")) or ".." in Path(target).parts:
            report.error("SKILL.md", f"{target} points outside the folder")
        elif not (folder / target).exists():
            report.error("SKILL.md", f"{target} is named and is not there")


def check_files(folder, body, report):
    total = count = 0
    for here, folders, names in os.walk(folder):
        for junk in sorted(JUNK.intersection(folders + names)):
            report.warn(
                os.path.relpath(os.path.join(here, junk), folder), "does not belong in a skill"
            )
        folders[:] = sorted(set(folders) - JUNK)
        for name in sorted(set(names) - JUNK):
            path = Path(here, name)
            where = path.relative_to(folder).as_posix()
            if path.is_symlink() or not path.is_file():
                report.error(where, "is a link or a special file; hosts refuse it")
                continue
            count, total = count + 1, total + path.stat().st_size
            check_file(path, where, body, report)
    if total > MAX_TOTAL:
        report.error(".", f"{total:,} bytes together, the limit is {MAX_TOTAL:,}")
    report.facts = (
        f" ({counted(count, 'file')}, {total:,} bytes, about {len(body) // 4:,} tokens in SKILL.md)"
    )


def check_file(path, where, body, report):
    if path.stat().st_size > MAX_FILE:
        report.error(
            where, f"{path.stat().st_size:,} bytes, the limit for one file is {MAX_FILE:,}"
        )
    elif path.suffix == ".py":
        try:
            ast.parse(path.read_bytes(), filename=where)
        except (SyntaxError, ValueError) as error:
            report.error(
                f"{where}:{getattr(error, 'lineno', 1)}", f"does not parse: {error.args[0]}"
            )
    if where.startswith("scripts/") and path.suffix in (".py", ".sh", "") and os.name == "posix":
        with path.open("rb") as file:
            shebang = file.read(2) == b"#!"
        if shebang and not os.access(path, os.X_OK):
            report.warn(where, "has a #! line and is not executable (chmod +x)")
    if where != "SKILL.md" and where.count("/") <= 1 and path.name not in body:
        report.warn(where, "SKILL.md never mentions it, so an agent will not open it")


def check(folder):
    """Returns the report on one folder."""
    report = Report(folder)
    if not folder.is_dir():
        report.error(".", "is not a folder" if folder.exists() else "is not there")
        return report
    main = folder / "SKILL.md"
    if main.name not in os.listdir(folder) or not main.is_file():
        report.error(".", "has no SKILL.md (exactly this name)")
        return report
    body = ""
    try:
        fields, body = split(main.read_bytes(), report)
        check_fields(fields, report)
        check_body(body, folder, report)
    except UnicodeDecodeError as error:
        report.error("SKILL.md", f"is not UTF-8 (byte {error.start})")
    except Unreadable as error:
        report.error(*error.args)
    check_files(folder, body, report)
    return report


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.add_argument("folders", nargs="+", metavar="FOLDER", type=Path)
    args = parser.parse_args()
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that "| head" ends it quietly
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    counts = sum(
        (check(Path(os.path.abspath(folder))).print() for folder in args.folders), Counter()
    )
    return int(counts["error"] > 0 or (args.strict and counts["warning"] > 0))


if __name__ == "__main__":
    sys.exit(main())

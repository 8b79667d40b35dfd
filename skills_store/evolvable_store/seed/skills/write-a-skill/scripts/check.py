#!/usr/bin/env python3
"""Checks skill folders against the Agent Skills specification, offline. Python 3.9 or newer, nothing to install.

Usage: check.py [--strict] FOLDER [FOLDER ...]

Prints a verdict for each folder, then one line for each problem. Errors break the specification or a common host;
warnings are advice. Exit status: 0 no errors, 1 errors (with --strict also warnings), 2 wrong usage.
"""

import argparse
import ast
import os
import re
import signal
import sys
from pathlib import Path

KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
NOT_TEXT = re.compile(
    r"(?:~|null|true|false|yes|no|on|off|[-+]?\d[\d_]*(?:\.[\d_]*)?(?:e[-+]?\d+)?|[-+]?\.\d+"
    r"|0x[0-9a-f_]+|0o?[0-7_]+|[-+]?\.inf|\.nan|\d{4}-\d\d?-\d\d?(?:[t ].*)?|[-+]?\d+(?::[0-5]?\d)+(?:\.\d*)?)",
    re.IGNORECASE,
)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    '"': '"',
    "\\": "\\",
    "/": "/",
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
}
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|(.))", re.DOTALL)
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
MENTION = re.compile(r"`(?:[^`\s]+ )*?((?:scripts|references|assets)/[\w./-]+\w)[^`]*`")
FENCE = re.compile(r"^( {0,3})(`{3,}|~{3,}).*?^\1\2[`~]*\s*$", re.MULTILINE | re.DOTALL)
WHEN = re.compile(r"\b(?:when|whenever|before|after|while|if|use (?:this|it|for)|for tasks?)\b", re.IGNORECASE)
JUNK = ("__pycache__", ".DS_Store", "Thumbs.db", ".git", "node_modules", ".venv", ".env")
MAX_LINES, MAX_TOKENS, MAX_FILE, MAX_TOTAL = 500, 5000, 5 * 2**20, 16 * 2**20


class Report:
    """What is wrong with one folder."""

    def __init__(self, folder):
        self.folder, self.lines, self.facts = folder, [], ""

    def error(self, where, text):
        self.lines.append(("error", where, text))

    def warn(self, where, text):
        self.lines.append(("warning", where, text))

    def count(self, level):
        return sum(line[0] == level for line in self.lines)

    def print(self):
        errors, warnings = self.count("error"), self.count("warning")
        counts = [f"{n} {word}{'s' if n != 1 else ''}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
        verdict = ", ".join(counts) or "ok"
        print(f"{self.folder.name}: {verdict}{self.facts}")
        for level, where, text in self.lines:
            print(f"  {level:7}  {where}: {text}")


class Unreadable(Exception):
    """The frontmatter cannot be read; the message says why, `line` where."""

    def __init__(self, line, text):
        super().__init__(text)
        self.line = line


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
    return ESCAPE.sub(lambda m: ESCAPES.get(m[4], m[4]) if m[4] else chr(int(m[1] or m[2] or m[3], 16)), match[1])


def value(number, rest, deeper):
    """Returns a text, or a dict for a nested map, or None for anything that is not a text."""
    if rest[:1] in ("|", ">") and re.fullmatch(r"[|>][-+\d]*\s*(?:#.*)?", rest):
        lines = [line.strip() for _, line in deeper]
        return (fold(lines) if rest[0] == ">" else "\n".join(lines)).strip("\n")
    if rest[:1] in ('"', "'"):
        return unquote(number, fold([rest, *(line.strip() for _, line in deeper)]))
    rest = re.sub(r"(?:^|\s+)#.*$", "", rest)
    if not rest and any(line for _, line in deeper):
        first = next(line for _, line in deeper if line).strip()
        if first.startswith("- "):
            return None
        if re.match(r"[^\s:]+:(?:\s|$)", first):
            return {key: (n, value(n, inner, more)) for n, key, inner, more in entries(deeper)}
    text = fold([rest, *(line.strip() for _, line in deeper)]).strip()
    if text[:1] in tuple("[{&*!%@`|>?") or text.startswith("- ") or NOT_TEXT.fullmatch(text) or not text:
        return None
    if ": " in text or text.endswith(":"):
        raise Unreadable(number, "the value has a colon in it; put the value in double quotes")
    return text


def split(data, report):
    """Returns ({key: (line, value)}, body) of a SKILL.md."""
    if data.startswith(b"\xef\xbb\xbf"):
        report.error("SKILL.md:1", "it starts with a byte order mark; save it as plain UTF-8")
        data = data[3:]
    text = data.decode("utf-8").replace("\r\n", "\n")
    control = CONTROL.search(text)
    if control:
        report.error(f"SKILL.md:{text.count(chr(10), 0, control.start()) + 1}", "there is a control character here")
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise Unreadable(1, "the first line must be ---, then name and description, then ---")
    end = next((i for i, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
    if end is None:
        raise Unreadable(1, "the frontmatter has no closing ---")
    fields = {}
    for number, key, rest, deeper in entries(list(enumerate(lines[1:end], 2))):
        if key in fields:
            report.error(f"SKILL.md:{number}", f"the key {key!r} is there twice")
        fields[key] = (number, value(number, rest, deeper))
    return fields, "\n".join(lines[end + 1 :])


def check_fields(fields, report):
    def text(key, limit):
        number, content = fields.get(key, (1, ""))
        if not isinstance(content, str):
            report.error(f"SKILL.md:{number}", f"{key} is not a text; put the value in double quotes")
        elif key in fields and not content.strip():
            report.error(f"SKILL.md:{number}", f"{key} is empty")
        elif CONTROL.search(content):
            report.error(f"SKILL.md:{number}", f"{key} has a control character in it")
        elif len(content) > limit:
            report.error(f"SKILL.md:{number}", f"{key} has {len(content):,} characters, the limit is {limit:,}")
        return number, content if isinstance(content, str) else ""

    for key, (number, _) in fields.items():
        if key not in KEYS:
            report.error(f"SKILL.md:{number}", f"unknown key {key!r}; put it under metadata, as a text")
    for key in ("name", "description"):
        if key not in fields:
            report.error("SKILL.md:1", f"{key} is missing")
    number, name = text("name", 64)
    if name and not NAME.fullmatch(name):
        report.error(f"SKILL.md:{number}", f"name {name!r}: only a-z, 0-9 and single hyphens between them")
    if name and name != report.folder.name:
        report.error(f"SKILL.md:{number}", f"name is {name!r}, the folder is {report.folder.name!r}; make them equal")
    number, description = text("description", 1024)
    if description and re.search(r"<[/!?]?[A-Za-z]", description):
        report.error(f"SKILL.md:{number}", "description has a tag like <this>; some hosts refuse it")
    elif description and (len(description) < 40 or not WHEN.search(description)):
        report.warn(f"SKILL.md:{number}", "description does not say when to use the skill")
    text("compatibility", 500)
    text("license", 1024)
    text("allowed-tools", 4096)
    check_metadata(*fields.get("metadata", (1, {})), report)


def check_metadata(number, metadata, report):
    if not isinstance(metadata, dict):
        report.error(f"SKILL.md:{number}", "metadata must be 'key: text' lines, indented by two spaces")
        return
    for key, (line, content) in metadata.items():
        if not isinstance(content, str):
            report.error(f"SKILL.md:{line}", f"metadata {key} is not a text; put the value in double quotes")
    if "triggers" not in metadata:
        report.warn(f"SKILL.md:{number}", "metadata has no triggers; keyword search has only name and description")


def check_body(body, folder, report):
    if not body.strip():
        report.error("SKILL.md", "there is nothing after the frontmatter")
    lines, tokens = body.strip().count("\n") + 1, len(body) // 4
    if lines > MAX_LINES or tokens > MAX_TOKENS:
        report.warn("SKILL.md", f"{lines} lines, about {tokens:,} tokens; move detail to references/")
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
        for junk in sorted({*folders, *names} & set(JUNK)):
            report.warn(os.path.relpath(os.path.join(here, junk), folder), "does not belong in a skill")
        folders[:] = sorted(set(folders) - set(JUNK))
        for name in sorted(set(names) - set(JUNK)):
            path = Path(here, name)
            where = path.relative_to(folder).as_posix()
            if path.is_symlink() or not path.is_file():
                report.error(where, "is a link or a special file; hosts refuse it")
                continue
            count, total = count + 1, total + path.stat().st_size
            check_file(path, where, body, report)
    if total > MAX_TOTAL:
        report.error(".", f"{total:,} bytes together, the limit is {MAX_TOTAL:,}")
    files = "file" if count == 1 else "files"
    report.facts = f" ({count} {files}, {total:,} bytes, about {len(body) // 4:,} tokens in SKILL.md)"


def check_file(path, where, body, report):
    if path.stat().st_size > MAX_FILE:
        report.error(where, f"{path.stat().st_size:,} bytes, the limit for one file is {MAX_FILE:,}")
    elif path.suffix == ".py":
        try:
            ast.parse(path.read_bytes(), filename=where)
        except (SyntaxError, ValueError) as error:
            report.error(f"{where}:{getattr(error, 'lineno', 1)}", f"does not parse: {error.args[0]}")
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
    main = next((entry for entry in os.scandir(folder) if entry.name == "SKILL.md"), None)
    if main is None or not main.is_file():
        report.error(".", "has no SKILL.md (exactly this name)")
        return report
    body = ""
    try:
        fields, body = split((folder / "SKILL.md").read_bytes(), report)
        check_fields(fields, report)
        check_body(body, folder, report)
    except UnicodeDecodeError as error:
        report.error("SKILL.md", f"is not UTF-8 (byte {error.start})")
    except Unreadable as error:
        report.error(f"SKILL.md:{error.line}", str(error))
    check_files(folder, body, report)
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strict", action="store_true", help="warnings count as errors")
    parser.add_argument("folders", nargs="+", metavar="FOLDER", type=Path)
    args = parser.parse_args()
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # so that "| head" ends it quietly
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    reports = [check(Path(os.path.abspath(folder))) for folder in args.folders]
    for report in reports:
        report.print()
    return int(any(report.count("error") or (args.strict and report.lines) for report in reports))


if __name__ == "__main__":
    sys.exit(main())

"""Shell commands: parses a line into its simple commands, finds the files that they name, and normalises it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

MAX_COMMAND = 20_000
"""Characters of the longest line that is parsed."""

COMMAND_TOOLS = frozenset(("Bash", "shell", "shell_command", "exec_command", "local_shell", "unified_exec"))
"""Tools of clients that run a line of shell."""

READERS = frozenset(("cat", "head", "tail", "less", "more", "nl", "bat", "sed", "awk", "grep", "rg"))
RUNNERS = frozenset(("bash", "sh", "zsh", "python", "python3", "node", "deno", "bun", "ruby", "perl", "php", "Rscript"))
_SHELLS = frozenset(("bash", "sh", "zsh"))
_BEFORE = {"sudo": 1, "time": 1, "nohup": 1, "exec": 1, "env": 1, "command": 1, "timeout": 2, "npx": 1, "bunx": 1}
_RUN_BY = frozenset(("uv", "poetry", "pipenv", "hatch", "pdm", "rye"))
_QUIET = frozenset(("cd", "export", "source", ".", "set", "pushd", "mkdir"))
_HEREDOC = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1[^\n]*\n.*?(?:\n[ \t]*\2[ \t]*(?=\n|$)|$)", re.DOTALL)
_COMMENT = re.compile(r"(?m)^[ \t]*#.*$")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_TOKEN = re.compile(
    r"""[ \t\r]+|(?P<sign>[();<>|&\n]+)|(?P<word>(?:[^ \t\r\n();<>|&'"\\]+|\\.|'[^']*'|"(?:[^"\\]|\\.)*")+)""",
    re.DOTALL,
)
_QUOTED = re.compile(r"""'([^']*)'|"((?:[^"\\]|\\.)*)"|\\(.)""", re.DOTALL)
_ENDS = ("&&", "||", ";", "|", "|&", "&", "\n", "(", ")", "{", "}")


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One simple command. words: without assignments and programs that only start another.

    writes: its output goes into a file. alone: it succeeded if the whole line did. blamed: it failed if the line did.
    piped: it reads the output of the command before.
    """

    words: tuple[str, ...]
    writes: bool = False
    alone: bool = True
    blamed: bool = True
    piped: bool = False

    @property
    def program(self) -> str:
        return self.words[0].rpartition("/")[2]


# Several questions are asked of one command in a row.
@lru_cache(64)
def simple_commands(line: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands of a line in order; none where it cannot be parsed."""
    if len(line) > MAX_COMMAND:
        return ()
    if "<<" in line:
        line = _HEREDOC.sub("\n", line)
    parts = _parts(_COMMENT.sub("", line) if "#" in line else line)
    found: list[SimpleCommand] = []
    for place, (words, writes, _) in enumerate(parts):
        started = _started(words)
        if not started:
            continue
        inner = _inner(started)
        if inner is not None:
            found += simple_commands(inner) if len(inner) < len(line) else ()
            continue
        after = [end for _, _, end in parts[place:-1]]
        last = place == len(parts) - 1
        before = all(_is_quiet(words) for words, _, _ in parts[:place])
        piped = place > 0 and parts[place - 1][2] in ("|", "|&")
        found.append(SimpleCommand(started, writes, all(end == "&&" for end in after), last and before, piped))
    return tuple(found)


def _parts(line: str) -> list[tuple[list[str], bool, str]]:
    """Return (words, whether redirected into a file, what ends it) for each simple command."""
    try:
        tokens = list(_tokens(line.replace("\\\n", "")))
    except ValueError:
        return []
    parts: list[tuple[list[str], bool, str]] = []
    words: list[str] = []
    writes = skipping = False
    for token, is_sign in tokens:
        if is_sign and set(token) <= set("<>&") and ("<" in token or ">" in token):
            # A number before it is the stream; the next word is the file, or the other stream.
            if words and words[-1].isdigit():
                words.pop()
            writes, skipping = writes or token in (">", ">>", "&>"), True
        elif is_sign and token.strip("();|&\n") == "":
            end = next((end for end in _ENDS if token.strip().startswith(end)), "\n")
            if words:
                parts.append((words, writes, end))
            elif parts and end != "\n":
                parts[-1] = (*parts[-1][:2], end)
            words, writes, skipping = [], False, False
        elif skipping:
            writes, skipping = writes and token != "/dev/null", False
        elif token not in ("{", "}", "!", "then", "do", "done", "fi", "else"):
            words.append(token)
    if words:
        parts.append((words, writes, ""))
    return parts


def _tokens(line: str) -> Iterator[tuple[str, bool]]:
    """Yield the words of a line without their quotes, and the signs between them, each with whether it is a sign.

    Raises ValueError for a quote without an end.
    """
    at = 0
    while at < len(line):
        found = _TOKEN.match(line, at)
        if found is None:
            raise ValueError
        at = found.end()
        if (sign := found["sign"]) is not None:
            yield sign, True
        elif (word := found["word"]) is not None:
            yield _QUOTED.sub(_unquoted, word) if "'" in word or '"' in word or "\\" in word else word, False


def _unquoted(found: re.Match[str]) -> str:
    single, double, escaped = found.groups()
    return re.sub(r'\\(["\\])', r"\1", double) if double is not None else single if single is not None else escaped


def _started(words: list[str]) -> tuple[str, ...]:
    rest = list(words)
    while rest:
        if _ASSIGNMENT.match(rest[0]):
            rest = rest[1:]
        elif len(rest) > _BEFORE.get(rest[0], len(rest)):
            rest = rest[_BEFORE[rest[0]] :]
        elif (rest[0] in _RUN_BY and rest[1:2] == ["run"]) or rest[:2] == ["bundle", "exec"]:
            rest = rest[2:]
        else:
            break
    return tuple(rest)


def _inner(words: tuple[str, ...]) -> str | None:
    """Return the line that a shell is given to run, None for another command."""
    if words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for place, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-z]*c", word):
            return words[place + 1] if place + 1 < len(words) else ""
    return None


def _is_quiet(words: list[str]) -> bool:
    started = _started(words)
    return not started or started[0] in _QUIET


def read_files(commands: Sequence[SimpleCommand]) -> list[str]:
    """Return the paths that commands only read, as they are written there."""
    return [
        word
        for simple in commands
        if simple.program in READERS and not simple.writes and not _edits(simple)
        for word in simple.words[1:]
        if not word.startswith("-") and "\0" not in word
    ]


def run_files(commands: Sequence[SimpleCommand]) -> list[str]:
    """Return the paths of the programs and scripts that commands run, as they are written there."""
    found = []
    for simple in commands:
        if "/" in simple.words[0]:
            found.append(simple.words[0])
        if simple.program in RUNNERS:
            found += [word for word in simple.words[1:] if not word.startswith("-")][:1]
    return [path for path in found if "\0" not in path]


def _edits(simple: SimpleCommand) -> bool:
    return simple.program == "sed" and any(word.startswith(("-i", "--in-place")) for word in simple.words[1:])


_MAX_NORMALIZED = 2_000  # characters of a line
_LINE_START = re.compile(
    r"^\s*(?:cd\s+\S+\s*(?:&&|;)\s*|(?:[A-Z_][A-Z0-9_]*=\S*\s+)+"
    r"|(?:sudo|time|nohup|env|npx|poetry run|uv run|pipenv run)\s+)+"
)
_TAIL = re.compile(r"\s*(?:2>&1|2>/dev/null|\|\s*(?:head|tail|tee|cat|grep|less)\b.*)\s*$", re.DOTALL)
_VARYING = (
    (re.compile(r"\"[^\"]*\"|'[^']*'"), "'…'"),
    (re.compile(r"<<-?\s*['\"]?(\w+).*", re.DOTALL), "<<…"),
    (re.compile(r"\b[0-9a-f]{7,40}\b"), "#"),
    (re.compile(r"(?<![\w-])[~.]?/?(?:[\w.@-]+/)+[\w.@-]*"), "PATH"),
    (re.compile(r"\b\d[\d.:-]*\b"), "0"),
)


def normalize_command(command: str) -> str:
    """Return what two runs of the same step have in common: program, subcommand and options, no names or numbers.

    The result is a key of stored episodes, so it follows the text of the first line and not the parsed commands.
    """
    text = _TAIL.sub("", _LINE_START.sub("", command.strip().split("\n")[0][:_MAX_NORMALIZED])).strip()
    for pattern, sign in _VARYING:
        text = pattern.sub(sign, text)
    return " ".join(text.split())[:200]


def git_command(simple: SimpleCommand) -> str | None:
    """Return the subcommand of git, None for another program."""
    if simple.program != "git":
        return None
    words = iter(simple.words[1:])
    for word in words:
        if word in ("-C", "-c"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def named_files(text: str) -> set[str]:
    """Return the words of a text that look like files."""
    try:
        words = [word for word, is_sign in _tokens(text[:_MAX_NORMALIZED]) if not is_sign]
    except ValueError:
        words = text[:_MAX_NORMALIZED].split()
    return {word for word in words if "." in word.rpartition("/")[2] and not word.startswith("-")}

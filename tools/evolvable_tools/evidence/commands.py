"""What a line of shell runs: its simple commands, which files they read or run, and what its exit code says of each."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MAX_COMMAND = 20_000
"""Characters of a line that are looked at; a longer one says nothing."""

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
class Simple:
    """One simple command. words: without variables set before it and programs that only start it.

    writes: it is redirected into a file. alone: where the whole line succeeded, so did this; blamed: where it
    failed, this did.
    """

    words: tuple[str, ...]
    writes: bool = False
    alone: bool = True
    blamed: bool = True

    @property
    def program(self) -> str:
        return self.words[0].rpartition("/")[2]


def simple_commands(line: str) -> tuple[Simple, ...]:
    """Returns the simple commands of a line in order; none where it cannot be read."""
    if len(line) > MAX_COMMAND:
        return ()
    if "<<" in line:
        line = _HEREDOC.sub("\n", line)
    parts = _parts(_COMMENT.sub("", line) if "#" in line else line)
    found: list[Simple] = []
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
        found.append(Simple(started, writes, all(end == "&&" for end in after), last and before))
    return tuple(found)


def _parts(line: str) -> list[tuple[list[str], bool, str]]:
    """Returns (words, whether redirected into a file, what ends it) for each simple command."""
    try:
        tokens = list(_tokens(line.replace("\\\n", "")))
    except ValueError:
        return []
    parts: list[tuple[list[str], bool, str]] = []
    words: list[str] = []
    writes = skipping = False
    for token, is_sign in tokens:
        if is_sign and set(token) <= set("<>&") and ("<" in token or ">" in token):
            # A number before it is the stream; what follows is the file, or the stream it joins.
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
    """Yields the words of a line without their quotes, and the signs between them, each with whether it is a sign.

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
        elif rest[0] in _BEFORE:
            rest = rest[_BEFORE[rest[0]] :]
        elif (rest[0] in _RUN_BY and rest[1:2] == ["run"]) or rest[:2] == ["bundle", "exec"]:
            rest = rest[2:]
        else:
            break
    return tuple(rest)


def _inner(words: tuple[str, ...]) -> str | None:
    """Returns the line that a shell is given to run, None when this is no such command."""
    if words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for place, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-z]*c", word):
            return words[place + 1] if place + 1 < len(words) else ""
    return None


def _is_quiet(words: list[str]) -> bool:
    started = _started(words)
    return not started or started[0] in _QUIET


def read_files(commands: Sequence[Simple]) -> list[str]:
    """Returns the paths that commands only read, as they are written there."""
    return [
        word
        for simple in commands
        if simple.program in READERS and not simple.writes and not _edits(simple)
        for word in simple.words[1:]
        if not word.startswith("-") and "\0" not in word
    ]


def run_files(commands: Sequence[Simple]) -> list[str]:
    """Returns the paths of the programs and scripts that commands run, as they are written there."""
    found = []
    for simple in commands:
        if "/" in simple.words[0]:
            found.append(simple.words[0])
        if simple.program in RUNNERS:
            found += [word for word in simple.words[1:] if not word.startswith("-")][:1]
    return [path for path in found if "\0" not in path]


def _edits(simple: Simple) -> bool:
    return simple.program == "sed" and any(word.startswith(("-i", "--in-place")) for word in simple.words[1:])

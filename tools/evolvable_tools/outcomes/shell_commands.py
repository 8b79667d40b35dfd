"""Shell commands: parses a line into its simple commands, finds the files that they name, and
normalises it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from evolvable_tools.outcomes.shell_status import (
    MAX_DEPTH,
    Branches,
    Chain,
    Group,
    Node,
    Part,
    Pipeline,
    Status,
    UnclearLine,
    tell_statuses,
)
from evolvable_tools.outcomes.shell_tokens import LineItem, Words, line_items, read_tokens

MAX_COMMAND = 20_000
"""Characters of the longest line that is parsed."""

MAX_PARTS = 200
"""Simple commands of a line of which it is told whether they ran."""

COMMAND_TOOLS = frozenset(
    ("Bash", "shell", "shell_command", "exec_command", "local_shell", "unified_exec", "Execute")
    + ("bash", "run_shell_command", "run_terminal_cmd", "run_in_terminal")
    + ("execute_command", "terminal")
)
"""Tools of clients that run a line of shell."""

READERS = frozenset(
    ("cat", "head", "tail", "less", "more", "nl", "bat", "sed", "awk", "grep", "rg")
)
"""Programs that show a file."""
_SHELLS = frozenset(("bash", "sh", "zsh"))
RUNNERS = _SHELLS.union(
    ("python", "python3", "node", "deno", "bun", "ruby", "perl", "php", "Rscript")
)
"""Programs that run the script that they are given."""
# Programs that start another: by how many words the command comes later.
_BEFORE = {
    **dict.fromkeys(("sudo", "time", "nohup", "exec", "env", "command", "npx", "bunx"), 1),
    "timeout": 2,
}
_RUN_BY = frozenset(("uv", "poetry", "pipenv", "hatch", "pdm", "rye"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
VIEWERS = frozenset(("head", "tail", "tee", "cat", "grep", "less"))
"""Programs that show a part of what is piped into them."""


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One simple command. words: without assignments and programs that only start another.

    writes: its output goes into a file. piped: it reads the output of the command before.
    if_succeeded, if_failed: what is known of it where the whole line succeeded or failed; None
    where it may not have run. is_shown: a line that succeeded shows what it printed, because only
    viewers come after it in the pipe that decides.
    """

    words: tuple[str, ...]
    writes: bool = False
    piped: bool = False
    if_succeeded: Status | None = None
    if_failed: Status | None = None
    is_shown: bool = False

    @property
    def program(self) -> str:
        return self.words[0].rpartition("/")[2]

    @property
    def succeeds_with_line(self) -> bool:
        """Whether it succeeded if the whole line did."""
        return self.if_succeeded is Status.SUCCEEDED

    @property
    def fails_with_line(self) -> bool:
        """Whether it failed if the whole line did."""
        return self.if_failed is Status.FAILED

    def ran(self, *, succeeded: bool) -> bool:
        """Return whether it ran for sure. succeeded: how the whole line ended."""
        return (self.if_succeeded if succeeded else self.if_failed) is not None


# Several questions are asked about one command in a row.
@lru_cache(64)
def simple_commands(line: str) -> tuple[SimpleCommand, ...]:
    """Return the simple commands of a line in order; none where it cannot be parsed."""
    reader = _LineReader()
    try:
        parsed = reader.read(line, 0)
        succeeded, failed = tell_statuses(parsed)
    # The structure is unclear, but the commands can be named; nothing is known of their status.
    except UnclearLine:
        return tuple(reader.commands)
    except ValueError:
        return ()
    commands: list[SimpleCommand] = []
    # Status of the last program of a pipe in which only viewers come after the command.
    end: Status | None = None
    for number in reversed(range(len(reader.commands))):
        simple = reader.commands[number]
        status = succeeded.get(number)
        end = end or status
        is_shown = end is Status.SUCCEEDED
        commands.append(
            replace(simple, if_succeeded=status, if_failed=failed.get(number), is_shown=is_shown)
        )
        if not (simple.piped and simple.program in VIEWERS):
            end = None
    return tuple(reversed(commands))


_CHAIN_ENDS = ("\n", ";", ")", "}", "then", "do", "done", "fi", "else", "elif")
"""Signs and keywords that may follow a chain."""


class _LineReader:
    """Reads the structure of a line. commands: its simple commands in order."""

    def __init__(self) -> None:
        self.commands: list[SimpleCommand] = []
        self._items: list[LineItem] = []
        self._depth = 0

    def read(self, line: str, depth: int) -> Group:
        """Return the structure of a line. Raises ValueError where it is none, and UnclearLine."""
        if len(line) > MAX_COMMAND:
            raise ValueError
        # A backslash at the end of a line joins it with the next.
        text = line.replace("\\\n", "")
        outer, outer_depth = self._items, self._depth
        self._items, self._depth = list(line_items(list(read_tokens(text)))), depth
        begun = len(self.commands)
        try:
            group = self._group(())
            if self._items:
                raise UnclearLine
        # The commands read so far may be parts of something else, so the line is listed once more
        # without its structure.
        except UnclearLine:
            self._list_all(begun, text)
            raise
        finally:
            self._items, self._depth = outer, outer_depth
        return group

    def _list_all(self, begun: int, text: str) -> None:
        """Note every command of a line whose structure is unclear."""
        del self.commands[begun:]
        before: LineItem = ""
        for item in line_items(list(read_tokens(text))):
            if isinstance(item, Words) and (started := _skip_starters(list(item.words))):
                self.commands.append(SimpleCommand(started, item.writes, before in ("|", "|&")))
            before = item

    def _next(self) -> LineItem:
        return self._items[0] if self._items else ""

    def _take(self, *expected: str) -> str:
        """Return the next operator or keyword.

        Raises UnclearLine where it is none of the expected.
        """
        item = self._next()
        if not isinstance(item, str) or item not in expected:
            raise UnclearLine
        return str(self._items.pop(0))

    def _skip(self, *operators: str) -> None:
        while self._next() in operators and self._items:
            self._items.pop(0)

    def _group(self, ends: tuple[str, ...]) -> Group:
        """Read chains up to one of these keywords or signs, which is left."""
        self._depth += 1
        # Bounds the recursion for a hostile line.
        if self._depth > MAX_DEPTH:
            raise UnclearLine
        chains = []
        self._skip("\n", ";")
        while self._items and self._next() not in ends:
            chains.append(self._chain())
            self._skip("\n", ";")
        self._depth -= 1
        return Group(tuple(chains))

    def _chain(self) -> Chain:
        links = [("", self._pipeline())]
        while self._next() in ("&&", "||"):
            operator = self._take("&&", "||")
            self._skip("\n")
            links.append((operator, self._pipeline()))
        background = self._next() == "&"
        if background:
            self._take("&")
        elif self._items and self._next() not in _CHAIN_ENDS:
            raise UnclearLine
        return Chain(tuple(links), background)

    def _pipeline(self) -> Pipeline:
        negated = False
        while self._next() == "!":
            self._take("!")
            negated = not negated
        stages = [self._node(piped=False)]
        while self._next() in ("|", "|&"):
            self._take("|", "|&")
            self._skip("\n")
            stages.append(self._node(piped=True))
        return Pipeline(tuple(stages), negated)

    def _node(self, *, piped: bool) -> Node:
        # Commands within a word run before the command that it belongs to.
        while isinstance(item := self._next(), Words) and item.hidden:
            self._items.pop(0)
            self._note(item, piped=False)
        if isinstance(item, Words):
            self._items.pop(0)
            return self._command(item, piped=piped)
        opener = self._take("(", "{", "if", "while", "until")
        if opener in ("(", "{"):
            inner = self._group((")",) if opener == "(" else ("}",))
            self._take(")", "}")
            return Group(inner.chains, own=opener == "(")
        return self._if() if opener == "if" else self._loop((self._group(("do",)),))

    def _command(self, item: Words, *, piped: bool) -> Node:
        started = _skip_starters(list(item.words))
        begins = item.words[: len(item.words) - len(started) + 1]
        # `exec` replaces the shell, so what follows never runs; in `bundle exec` it is an argument.
        replaces = "exec" in begins and "bundle" not in begins
        if item.words[0] in ("case", "select") or replaces or self._next() == "(":
            raise UnclearLine
        if item.words[0] == "for":
            self._skip("\n", ";")
            # Over a literal word the body runs at least once; an expansion may be empty.
            has_literal = any(not re.search(r"[$`*?\[{]", word) for word in item.words[3:])
            has_in = item.words[2:3] == ("in",)
            return self._loop((), at_least_once=has_literal and has_in)
        # `bash -c 'line'`: the line is read as part of this one.
        inner = _read_inner_line(started) if started else None
        if inner is not None:
            group = self.read(inner, self._depth + 1)
            return Group(group.chains, own=True, options=_read_options(started))
        return self._note(item, piped=piped)

    def _note(self, item: Words, *, piped: bool) -> Node:
        started = _skip_starters(list(item.words))
        if not started:
            return Group(())
        # More commands than MAX_PARTS are listed only.
        if len(self.commands) == MAX_PARTS:
            raise UnclearLine
        self.commands.append(SimpleCommand(started, item.writes, piped))
        return Part(len(self.commands) - 1, started)

    def _if(self) -> Branches:
        first = self._group(("then",))
        others: list[Group] = []
        while self._take("then", "elif", "else", "fi") != "fi":
            others.append(self._group(("then", "elif", "else", "fi")))
        return Branches((first,), tuple(others))

    def _loop(self, certain: tuple[Group, ...], *, at_least_once: bool = False) -> Branches:
        self._take("do")
        body = self._group(("done",))
        self._take("done")
        return Branches((*certain, body), ()) if at_least_once else Branches(certain, (body,))


def _read_options(words: tuple[str, ...]) -> frozenset[str]:
    """Return the options that a shell is started with, such as by `bash -eo pipefail -c`."""
    options = set()
    for place, word in enumerate(words):
        # -c ends the options: what follows it is the line.
        if re.fullmatch(r"-[a-z]*c", word):
            break
        options |= {words[place + 1]} if re.fullmatch(r"-[a-z]*o", word) else set()
    short = [word for word in words[1 : place + 1] if re.fullmatch(r"-[a-z]+", word)]
    if any("e" in word for word in short):
        options.add("errexit")
    return frozenset(options)


def _skip_starters(words: list[str]) -> tuple[str, ...]:
    rest = list(words)
    while rest:
        if _ASSIGNMENT.match(rest[0]):
            rest = rest[1:]
        # The program that is started needs at least one word behind the one that starts it.
        elif len(rest) > _BEFORE.get(rest[0], len(rest)):
            rest = rest[_BEFORE[rest[0]] :]
        elif (rest[0] in _RUN_BY and rest[1:2] == ["run"]) or rest[:2] == ["bundle", "exec"]:
            rest = rest[2:]
        else:
            break
    return tuple(rest)


def _read_inner_line(words: tuple[str, ...]) -> str | None:
    """Return the line that a shell is given to run, None for another command."""
    if words[0].rpartition("/")[2] not in _SHELLS:
        return None
    for place, word in enumerate(words[1:], 1):
        if re.fullmatch(r"-[a-z]*c", word):
            return words[place + 1] if place + 1 < len(words) else ""
    return None


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
    paths = []
    for simple in commands:
        if "/" in simple.words[0]:
            paths.append(simple.words[0])
        if simple.program in RUNNERS:
            paths += [word for word in simple.words[1:] if not word.startswith("-")][:1]
    return [path for path in paths if "\0" not in path]


def _edits(simple: SimpleCommand) -> bool:
    return simple.program == "sed" and any(
        word.startswith(("-i", "--in-place")) for word in simple.words[1:]
    )


_MAX_NORMALIZED = 2_000  # characters of a line
_LINE_START = re.compile(
    r"^\s*(?:cd\s+\S+\s*(?:&&|;)\s*|(?:[A-Z_][A-Z0-9_]*=\S*\s+)+"
    r"|(?:sudo|time|nohup|env|npx|poetry run|uv run|pipenv run)\s+)+"
)
# Of a pipe only the first command is the step; a viewer at its end differs from run to run.
_TAIL = re.compile(
    r"\s*(?:2>&1|2>/dev/null|\|\s*(?:head|tail|tee|cat|grep|less)\b.*)\s*$", re.DOTALL
)
# What differs between two runs of one step: texts, here-documents, hashes, paths, numbers. In this
# order: a path may hold a hash, and a text a path.
_VARYING = (
    (re.compile(r"\"[^\"]*\"|'[^']*'"), "'…'"),
    (re.compile(r"<<-?\s*['\"]?(\w+).*", re.DOTALL), "<<…"),
    (re.compile(r"\b[0-9a-f]{7,40}\b"), "#"),
    (re.compile(r"(?<![\w-])[~.]?/?(?:[\w.@-]+/)+[\w.@-]*"), "PATH"),
    (re.compile(r"\b\d[\d.:-]*\b"), "0"),
)


def normalize_command(command: str) -> str:
    """Return what two runs of the same step have in common: program, subcommand and options, no
    names or numbers.

    The result is a key of stored episodes, so it follows the text of the first line and not the
    parsed commands.
    """
    first_line = command.strip().split("\n")[0][:_MAX_NORMALIZED]
    text = _TAIL.sub("", _LINE_START.sub("", first_line)).strip()
    for pattern, sign in _VARYING:
        text = pattern.sub(sign, text)
    return " ".join(text.split())[:200]


def git_command(simple: SimpleCommand) -> str | None:
    """Return the subcommand of git, None for another program."""
    if simple.program != "git":
        return None
    words = iter(simple.words[1:])
    for word in words:
        # Options of git with a value of their own.
        if word in ("-C", "-c"):
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def named_files(text: str) -> set[str]:
    """Return the words of a text that look like files."""
    try:
        words = [word for word, is_sign, _ in read_tokens(text[:_MAX_NORMALIZED]) if not is_sign]
    # An open quote, as in a line that was cut.
    except ValueError:
        words = text[:_MAX_NORMALIZED].split()
    return {word for word in words if "." in word.rpartition("/")[2] and not word.startswith("-")}

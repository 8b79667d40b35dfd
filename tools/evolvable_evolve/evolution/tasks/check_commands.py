"""Parse the check in a line of shell into arguments and environment; no shell ever runs it.

Other words around a check are understood where they are harmless: a change into a folder of the
project, the activation of an environment in it, variables, `&&` between checks, and a filter behind
a pipe, which is cut off. The exit code of a line with a filter is the filter's, so the check's
result is read from its own closing line there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from evolvable_tools.outcomes import (
    VIEWERS,
    ToolCall,
    closing_verdict,
    ended_badly,
    is_check,
    read_tokens,
)
from evolvable_tools.sessions import command_line

# Longer lines are scripts, whose last command does not show what they check.
MAX_LINE, MAX_STEPS, MAX_WORDS = 2_000, 4, 24
"""The most characters of a line, checks joined by `&&`, and words of a check."""

AND = "&&"

# NAME=VALUE before a command.
_SETTING = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# PATH=FOLDER/bin:$PATH, the one use of a variable that is understood.
_OWN_PATH = re.compile(r"""(?:^|(?<=[\s;&]))PATH=(["']?)([\w./-]+/bin):\$\{?PATH\}?\1(?=\s)""")
_ACTIVATE = re.compile(r"(.+/bin)/activate(?:\.\w+)?")
# Variables that change which programs run, or what those load before they begin.
_STEERING = re.compile(
    r"(?:LD|DYLD|GIT|BASH|SHELL|NPM|PIP|UV)_?\w*|PATH|ENV|IFS|HOME|TMPDIR|NODE_OPTIONS|PYTHON"
    r"(?:STARTUP|HOME|INSPECT)|(?:RUBY|PERL5)OPT|JAVA_TOOL_OPTIONS|RUSTC\w*|CC|CXX|EDITOR|PAGER",
    re.IGNORECASE,
)
# With one of these a program lists, shows, opens or edits, and ends with 0 for any work.
_SHOWING = """
--version -V --help -h --collect-only --co --list --list-tests --listTests --no-run --dry-run
--fixtures --markers --setup-plan --setup-only --cache-show --notest --show-only --showConfig --init
--ui --trace --pdb --inspect-brk --clearCache --print-config --exit-zero -DskipTests
-DskipTests=true -Dmaven.test.skip=true
"""
_NO_CHECK = frozenset(_SHOWING.split()) | {"-k"}  # -k may choose no test
_NO_CHECK_OF = {
    "go": frozenset(("-c", "-list", "-n")),
    "make": frozenset(("-n", "-q", "-t", "-p")),
    "gradle": frozenset(("-m", "-x", "tasks")),
    "gradlew": frozenset(("-m", "-x", "tasks")),
    "ctest": frozenset(("-N",)),
    "tox": frozenset(("-l", "-a")),
    "nox": frozenset(("-l",)),
    "rubocop": frozenset(("-a", "-A", "--autocorrect", "--autocorrect-all")),
    "vitest": frozenset(("list", "bench", "dev", "init")),
}
"""Options that make something else of a check in one program and are harmless in others."""

# Options by which a check repairs files itself, and then succeeds.
_CHANGES = re.compile(r"(?:-{1,2}|[\w-]+:)(?:\w+-)*fix(?:-\w+)*|--write|--update-?[sS]napshots?")
_NOTHING = re.compile(r"-run[ =](?:\^?\$?|XXX|xxx|NONE|none)(?: |$)")
"""The pattern by which `go test` chooses no test and succeeds."""
# Programs that are no check, or that run anything.
_PROGRAMS = (
    "test [ echo cat printf git sudo rm head tail grep less more vim nano ls true exec command "
    "eval nohup ssh"
)
_NEVER = frozenset(_PROGRAMS.split())
# A watcher never ends. `--no-watch` and `--watch=false` turn it off.
_WATCHING = re.compile(r"(?<!--no-)watch(?!\w*=false$)")
_COMPOSE = frozenset(("exec", "run"))
_RUNNERS = frozenset(
    ("uv run", "poetry run", "pipenv run", "pdm run", "hatch run", "bundle exec", "npx", "bunx")
)
"""Commands that start the program that their next word names."""

_RUN_OPTIONS = {
    "--extra": 2,
    "--group": 2,
    "--with": 2,
    "--frozen": 1,
    "--locked": 1,
    "--no-sync": 1,
    "-q": 1,
    "--yes": 1,
}
"""Options of the runners before the program, with their number of words."""

# A short option may hold its value without a space.
_SHORT_OPTION = re.compile(r"^-[A-Za-z]")
# Redirections to these lose nothing but output.
_STREAMS = frozenset(("1", "2", "/dev/null"))


@dataclass(frozen=True, slots=True)
class CheckLine:
    """A check that can be run alone in the project.

    steps: its commands, each after the one before succeeded. folder: below the project, '' for the
    project itself. settings: its variables. path: folders of programs in the project. piped: a
    filter was behind it.
    """

    steps: tuple[tuple[str, ...], ...]
    folder: str = ""
    settings: tuple[tuple[str, str], ...] = ()
    path: tuple[str, ...] = ()
    piped: bool = field(default=False, compare=False)

    @property
    def options(self) -> tuple[str, ...]:
        """The folder, variables and paths as options of the program that runs checks beside the
        tasks.
        """
        place = ("--in", self.folder) if self.folder else ()
        settings = (word for name, value in self.settings for word in ("--set", f"{name}={value}"))
        return (*place, *settings, *(word for folder in self.path for word in ("--path", folder)))

    @property
    def words(self) -> tuple[str, ...]:
        """Its commands with `&&` between them, which is a word here and no operator."""
        first, *others = self.steps
        return (*first, *(word for step in others for word in (AND, *step)))

    def __str__(self) -> str:
        settings = "".join(f"{name}={value} " for name, value in self.settings)
        place = f"in {self.folder}: " if self.folder else ""
        return f"{place}{settings}{' '.join(self.words)}"


def read_check(line: str, project: str | None) -> CheckLine | None:
    """Return the check that a line of shell runs in the project, None without one to run alone.

    Only commands whose exit code says whether work is right are accepted. No path may lead out of
    the project, and no variable may change which programs run.
    """
    if len(line) > MAX_LINE:
        return None
    text, path = line.strip(), list[str]()
    if (own := _OWN_PATH.search(text)) is not None:
        path.append(own[2])
        text = text[: own.start()] + text[own.end() :]
    # Substitutions, variables and further lines would need a shell.
    if re.search(r"[`$\n\0]", text):
        return None
    parts = _split(text)
    return None if parts is None else _Reader(project, path).read(parts)


def _split(line: str) -> list[tuple[list[str], bool]] | None:
    """Return the commands of a line, with True for one behind a pipe, None for other lines."""
    parts: list[tuple[list[str], bool]] = [([], False)]
    redirected = False
    try:
        for token, is_sign, follows in read_tokens(line):
            words = parts[-1][0]
            if redirected:
                if is_sign or token not in _STREAMS:
                    return None
                redirected = False
            elif is_sign and token in (">", ">&", "&>"):
                # In `2>&1` the number belongs to the redirection.
                if follows and words and words[-1].isdigit():
                    words.pop()
                redirected = True
            elif is_sign and token in (AND, "|", "|&"):
                parts.append(([], token != AND))
            elif is_sign:
                return None
            else:
                words.append(token)
    except ValueError:
        return None
    return None if redirected or not all(words for words, _ in parts) else parts


class _Reader:
    """Reads the commands of a line one by one."""

    def __init__(self, project: str | None, path: list[str]) -> None:
        self._project, self._path = project, path
        self._folder = ""
        self._settings: dict[str, str] = {}
        self._steps: list[tuple[str, ...]] = []
        self._pipefail = False

    def read(self, parts: Sequence[tuple[list[str], bool]]) -> CheckLine | None:
        filters = [words for words, piped in parts if piped]
        # Filters at the end only show the output; a pipe elsewhere changes what a check reads.
        while parts and parts[-1][1]:
            parts = parts[:-1]
        if any(piped for _, piped in parts) or not all(map(_only_filters, filters)):
            return None
        if not all(self._follow(words) for words, _ in parts):
            return None
        if not 1 <= len(self._steps) <= MAX_STEPS:
            return None
        path = tuple(self._strip_project(entry) for entry in self._path)
        if not all(path):
            return None
        # With pipefail the exit code is the check's own again.
        piped = bool(filters) and not self._pipefail
        settings = tuple(self._settings.items())
        return CheckLine(tuple(self._steps), self._folder, settings, path, piped)

    def _follow(self, words: list[str]) -> bool:
        """Follow one command of the line; return whether it is understood."""
        # A line of settings alone runs nothing, so the last word is never taken as one.
        while words and words[0] != words[-1] and (setting := _SETTING.fullmatch(words[0])):
            if not self._set(setting[1], setting[2]):
                return False
            words = words[1:]
        program, argument = words[0], words[1] if len(words) == 2 else ""
        # A change of folder between two checks would need a folder for each.
        if program == "cd" and len(words) == 2 and not self._steps:
            return self._enter(argument)
        if program in ("source", ".") and (activation := _ACTIVATE.fullmatch(argument)):
            self._path.append(activation[1])
            return not self._steps
        if program == "export" and (setting := _SETTING.fullmatch(argument)):
            return not self._steps and self._set(setting[1], setting[2])
        if program == "set":
            self._pipefail = self._pipefail or "pipefail" in words
            return not self._steps
        return self._add_check(words)

    def _set(self, name: str, value: str) -> bool:
        parts = value.split(":")
        inner_parts = [self._strip_project(part) for part in parts]
        # An empty part stays empty; of any other, '' means that it leads out of the project.
        leads_out = any(part and not inner for part, inner in zip(parts, inner_parts, strict=True))
        if _STEERING.fullmatch(name) or leads_out:
            return False
        self._settings[name] = ":".join(inner_parts)
        return True

    def _enter(self, place: str) -> bool:
        base = (self._project or "").rstrip("/")
        # `cd` into the project itself is common in sessions.
        inner = "." if base and place.rstrip("/") == base else self._strip_project(place)
        pieces = (self._folder, *inner.split("/"))
        self._folder = "/".join(piece for piece in pieces if piece not in ("", "."))
        return bool(inner)

    def _add_check(self, words: list[str]) -> bool:
        """Add a command to the steps; return False for one that is no check."""
        if words[0] in ("time", "nice", "env") and len(words) > 1:
            return self._follow(words[1:])
        if words[0] == "timeout" and len(words) > 2 and re.fullmatch(r"[\d.]+[smh]?", words[1]):
            return self._follow(words[2:])
        inner = _find_started_command(words)
        inner_words = tuple(self._strip_project(word) for word in words)
        if not inner or not all(inner_words):
            return False
        if len(words) > MAX_WORDS or words[0].startswith("-") or AND in words:
            return False
        if inner[0] in _NEVER or any(map(_WATCHING.search, words)):
            return False
        program = inner[0]
        # `.venv/bin/pytest` and `./gradlew` are recognised by their last part.
        if re.search(r"(?:^|/)\.?bin/", program) or program.startswith("./"):
            program = program.rpartition("/")[2]
        if _does_another_thing(program, words):
            return False
        # The argument of `sh -c` is a text that only a shell understands.
        has_script = any(re.fullmatch(r"-[a-z]*c", word) for word in inner[1:])
        shell_line = program in ("sh", "bash", "zsh") and has_script
        if "/" in program or shell_line or not is_check(_join_words([program, *inner[1:]])):
            return False
        self._steps.append(inner_words)
        return True

    def _strip_project(self, word: str) -> str:
        """Return a word with its path below the project, '' for one that leads out of it."""
        value = word.partition("=")[2] if word.startswith("-") else word
        base = (self._project or "").rstrip("/") + "/"
        inner = word.replace(base, "", 1) if self._project and value.startswith(base) else word
        # An option can have its path without a space (`-C../other`), and a setting after its name.
        pieces = [inner, *re.split(r"[=:,@]", _SHORT_OPTION.sub("", inner))]
        if any(".." in piece.split("/") or piece.startswith(("~", "/")) for piece in pieces):
            return ""
        return "" if "\0" in word or "[redacted:" in word else inner


def _only_filters(words: Sequence[str]) -> bool:
    """Return whether a command only shows a part of its input.

    A filter that counts or inverts changes the closing line.
    """
    if words[0] not in VIEWERS:
        return False
    short = "".join(word[1:] for word in words[1:] if re.fullmatch(r"-[A-Za-z]+", word))
    odd = {"--count", "--invert-match", "--quiet", "--follow"} & set(words)
    if words[0] == "grep" and set("cvqL") & set(short):
        return False
    if words[0] == "tail" and "f" in short:
        return False
    return not odd


def _does_another_thing(program: str, words: Sequence[str]) -> bool:
    """Return whether words make a check list tests, change files, or choose no test."""
    odd = _NO_CHECK | _NO_CHECK_OF.get(program, frozenset())
    changes = any(_CHANGES.fullmatch(word) for word in words)
    return bool(odd & set(words)) or changes or _NOTHING.search(" ".join(words)) is not None


def _find_started_command(words: Sequence[str]) -> Sequence[str]:
    """Return the command that a runner starts, without its options: pytest of `uv run pytest`."""
    compose: Sequence[str] = ()
    if words[0] == "docker-compose":
        compose = words[1:]
    elif list(words[:2]) == ["docker", "compose"]:
        compose = words[2:]
    if compose and compose[0] in _COMPOSE:
        # The first word without a dash is the service, and its command follows.
        services = [at for at, word in enumerate(compose[1:], 1) if not word.startswith("-")]
        return compose[services[0] + 1 :] if services else ()
    inner = next((words[count:] for count in (2, 1) if " ".join(words[:count]) in _RUNNERS), words)
    while inner and inner is not words and inner[0] in _RUN_OPTIONS:
        inner = inner[_RUN_OPTIONS[inner[0]] :]
    # `uv run -m pytest` starts a module of Python.
    return ("python", *inner) if inner[:1] == ["-m"] else inner


def _join_words(words: Sequence[str]) -> str:
    """Return words as the line of one command.

    A word with special characters becomes x, so that none is an operator.
    """
    return " ".join(word if re.fullmatch(r"[\w./:=@,+%-]+", word) else "x" for word in words)


def check_result(call: ToolCall, check: CheckLine) -> bool | None:
    """Return whether a check succeeded in a session, None where it is unknown."""
    text = "" if call.result is None else call.result.text
    if check.piped:
        return None if call.result is None else closing_verdict(text)
    if call.has_failed:
        return False
    return not ended_badly(command_line(call.span.input or {}), text, call.has_failed)

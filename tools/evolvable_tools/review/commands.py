"""Shell commands as they are compared: without what differs from one day to the next."""

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

MAX_COMMAND = 2_000
"""Characters of a command that are read."""

_BEFORE = re.compile(
    r"^\s*(?:cd\s+\S+\s*(?:&&|;)\s*|(?:[A-Z_][A-Z0-9_]*=\S*\s+)+|(?:sudo|time|nohup|env|npx|poetry run|uv run|pipenv run)\s+)+"
)
_TAIL = re.compile(r"\s*(?:2>&1|2>/dev/null|\|\s*(?:head|tail|tee|cat|grep|less)\b.*)\s*$", re.DOTALL)
_VARYING = (
    (re.compile(r"\"[^\"]*\"|'[^']*'"), "'…'"),
    (re.compile(r"<<-?\s*['\"]?(\w+).*", re.DOTALL), "<<…"),
    (re.compile(r"\b[0-9a-f]{7,40}\b"), "#"),
    (re.compile(r"(?<![\w-])[~.]?/?(?:[\w.@-]+/)+[\w.@-]*"), "PATH"),
    (re.compile(r"\b\d[\d.:-]*\b"), "0"),
)
_CHECKS = re.compile(
    r"^(?:python\S*\s+-m\s+)?(?:pytest|py\.test|unittest|tox|nox|mypy|ruff\s+check|pyright|flake8|lint-imports)\b"
    r"|^(?:npm|pnpm|yarn|bun)\s+(?:run\s+)?(?:test|lint|build|check|typecheck|e2e|ci)\b|^(?:jest|vitest|mocha|tsc|eslint|playwright\s+test)\b"
    r"|^cargo\s+(?:test|check|build|clippy)\b|^go\s+(?:test|vet|build)\b|^make\s+(?:test|check|lint|build|ci)\b"
    r"|^(?:\./)?(?:gradlew?|mvn|mvnw)\s+.*\b(?:test|build|verify|check)\b|^(?:bundle\s+exec\s+)?(?:rspec|rake\s+test)\b"
    r"|^(?:phpunit|ctest|bats|shellcheck|dotnet\s+test|swift\s+test|mix\s+test|terraform\s+(?:validate|plan)|helm\s+lint)\b"
    # Whatever says so by its name: a subcommand, a target, a script.
    r"|^[\w.-]+\s+(?:check|test|lint|verify|validate)\b(?!-)|^make\s+(?:\S+\s+)*?[\w-]*(?:test|check|lint|verify|integration|e2e)"
    r"|^(?:(?:bash|sh|node|ruby|python\S*)\s+)?\S*?(?:^|[/_.-])(?:tests?|checks?|verify|validate|lint)(?:[_.-]\S*)?(?=\s|$)"
)
_BETWEEN = re.compile(r"&&|\|\||;|\n")
_SEARCHES = re.compile(
    r"^(?:e?grep|rg|ag|git\s+grep|find|fd|which|command\s+-v|type|pgrep|test|\[|diff|cmp|git\s+diff)\b"
)
_CLIENTS_OWN = re.compile(
    r"^(?:Exit code \d+|Chunk ID:.*|Wall time:.*|Process exited with code \d+|Original token count:.*|Output:)[ \t]*$\n?",
    re.MULTILINE,
)
_REFUSED = re.compile(
    r"\A(?:Wall time:.*\n|Output:\n?)*\W*(?:MCP tool call requires approval|The user doesn't want to (?:proceed|take)"
    r"|Permission to use \S+ (?:has been denied|with)|exec command rejected by user|(?:patch|user) rejected)",
    re.IGNORECASE,
)
_LOOKS = re.compile(
    r"^(?:ls|cat|pwd|echo|head|tail|grep|rg|find|sed\s+-n|wc|which|tree|stat|file|date|whoami|env|type|true|git\s+(?:status|diff|log|show|branch))\b"
)
_UNDOES = re.compile(r"\bgit\s+(?:checkout\s+(?:HEAD\s+)?--\s|restore\s|revert\s|reset\s+--hard)")
_COMMIT = re.compile(r"\bgit\s+commit\b")
_FAILED = re.compile(
    r"\bexit(?:ed)?(?:\s+with)?\s*(?:code|status)?:?\s*[1-9]\d*\b|\"exit_code\":\s*[1-9]|^=+ .*\b\d+ (?:failed|error)"
    r"|\bFAILED\b|\bTraceback \(most recent call last\)|^error(?:\[E\d+\])?:|^npm ERR!|\bBUILD FAIL",
    re.MULTILINE,
)


def command_of(given: Mapping[str, Any] | None) -> str:
    """Returns the shell command in a tool's input, '' when it has none."""
    said = next((given[key] for key in ("command", "cmd", "script") if given and given.get(key)), "")
    if isinstance(said, list):
        words = [str(word) for word in said]
        said = words[-1] if words[:1] and words[0].endswith(("bash", "sh", "zsh")) else " ".join(words)
    return said[:MAX_COMMAND].strip() if isinstance(said, str) else ""


def bare(command: str) -> str:
    """Returns a command without the folder, the variables and the pipe that it runs with."""
    first = command.strip().split("\n")[0]
    return _TAIL.sub("", _BEFORE.sub("", first)).strip()


def normal(command: str) -> str:
    """Returns what two runs of the same step have in common: program, subcommand and options, no names or numbers."""
    text = bare(command)
    for pattern, sign in _VARYING:
        text = pattern.sub(sign, text)
    return " ".join(text.split())[:200]


def is_check(command: str) -> bool:
    """Returns whether a command tells by its end whether the work is right: tests, types, lint, build."""
    return any(_CHECKS.search(part) for part in _parts(command))


def only_looks(command: str) -> bool:
    """Returns whether a command only shows something, which is no step of a procedure."""
    parts = _parts(command)
    return bool(parts) and all(_LOOKS.search(part) for part in parts)


@lru_cache(1_024)
def _parts(command: str) -> tuple[str, ...]:
    """Returns the commands of a line, without the folder, the variables and the pipe that each runs with."""
    first = bare(command)
    if _BETWEEN.search(first) is None:
        return (first,) if first else ()
    return tuple(part for one in _BETWEEN.split(first) if (part := bare(one)))


def undoes(command: str) -> bool:
    """Returns whether a command takes changes of files back."""
    return bool(_UNDOES.search(command))


def commits(command: str) -> bool:
    """Returns whether a command makes a commit."""
    return bool(_COMMIT.search(command))


def failed(text: str, is_error: bool) -> bool:
    """Returns whether a command's output says that it failed."""
    return is_error or bool(_FAILED.search(text[:4_000]) or _FAILED.search(text[-4_000:]))


def ended_badly(command: str, text: str, is_error: bool) -> bool:
    """Returns whether a command failed. What only shows something may show failures, and may find nothing."""
    if not only_looks(command):
        return failed(text, is_error) and not (is_error and _found_nothing(command, text))
    return is_error and not _found_nothing(command, text)


def _found_nothing(command: str, text: str) -> bool:
    last = _parts(command)[-1:]
    return bool(last and _SEARCHES.search(last[0])) and not _CLIENTS_OWN.sub("", text[:2_000]).strip()


def was_refused(text: str) -> bool:
    """Returns whether a result says that a person, or a setting, did not let the call happen."""
    return _REFUSED.search(text[:600]) is not None


def named_files(command: str) -> set[str]:
    """Returns the words of a command that look like files."""
    try:
        words = shlex.split(command[:MAX_COMMAND])
    except ValueError:
        words = command[:MAX_COMMAND].split()
    return {word for word in words if "." in word.rpartition("/")[2] and not word.startswith("-")}

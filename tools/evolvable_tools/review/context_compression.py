"""Context compression: a summary of nine parts, an index of everything that was named, and the last messages.

No model is asked. All quotes of the summary are cut from the messages.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evolvable_store.errors import InvalidArgument
from evolvable_tools.outcomes.detection import accepts, corrects, failed, is_check, states
from evolvable_tools.review import Assets, Compressed

_TABLE = tomllib.loads(Path(__file__).with_name("context_compression.toml").read_text(encoding="utf-8"))
_PATTERNS = {name: re.compile("|".join(alternatives)) for name, alternatives in _TABLE["patterns"].items()}

TAIL = 12
"""Messages at the end that stay as they are."""

MAX_TOKENS = 64_000
"""Tokens from which a history is compressed: EvoAgent's limit."""

_LINE = 240
_MOST = 12


def compress_history(
    messages: Sequence[Mapping[str, Any]], *, keep: int = TAIL, max_tokens: int = MAX_TOKENS
) -> Compressed:
    """Return a history with its summary in place of all but the last `keep` messages.

    A call of a tool is never parted from its result: the tail begins earlier where it has to. A history within
    max_tokens stays as it is, so that compressing twice is compressing once. Raises InvalidArgument.
    """
    if keep < 1 or max_tokens < 0:
        raise InvalidArgument("keep is 1 or more, max_tokens 0 or more.", "The defaults are 12 and 64,000.")
    given = [dict(message) for message in messages]
    before = sum(map(_tokens, given))
    start = _tail_start(given, keep)
    gone = given[:start]
    if before <= max_tokens or not gone:
        return Compressed(_level(given), {}, Assets(), given, before, before)
    known = _summary_of(gone[0])
    new = [message for message in gone if _summary_of(message) is None]
    texts = [(str(message.get("role", "")), text) for message in new for text in _texts(message)]
    summary = _summary(texts, given[start:])
    assets = _assets(text for _, text in texts)
    if known is not None:
        before_it = known["summary"]
        summary = {part: list(dict.fromkeys([*before_it.get(part, []), *new])) for part, new in summary.items()}
        assets = _joined(Assets(**known["assets"]), assets)
    level = _level(given) + 1
    made = [_as_message(level, summary, assets), *given[start:]]
    return Compressed(level, summary, assets, made, before, sum(map(_tokens, made)))


def _tail_start(messages: Sequence[Mapping[str, Any]], keep: int) -> int:
    start, before = max(0, len(messages) - keep), len(messages)
    calls = {call: index for index, message in enumerate(messages) for call in _calls(message)}
    while start < before:
        needed = (calls[r] for message in messages[start:] for r in _results(message) if r in calls)
        before, start = start, min(start, min(needed, default=start))
    return start


def _summary(texts: Sequence[tuple[str, str]], tail: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    user = [text for role, text in texts if role == "user"]
    own = [text for role, text in texts if role == "assistant"]
    last = [text for message in tail for text in _texts(message)]
    errors = [line for _, text in texts if failed(text, False) for line in text.split("\n") if failed(line, False)]
    parts = {
        "request": user[:1] + [text for text in user[1:] if len(text) > 40][-2:],
        "constraints": list(filter(states, user)),
        "files": _assets(text for _, text in texts).references,
        "errors": [*errors, *filter(corrects, user)],
        "decisions": [line for text in [*own, *user] for line in text.split("\n") if _PATTERNS["decided"].search(line)],
        "user_instructions": user,
        "open_tasks": [line for text in [*own, *last] for line in text.split("\n") if _PATTERNS["open"].match(line)],
        "state": [*filter(accepts, user), *_checks(texts), *own[-1:]],
        "next_step": last[-1:],
    }
    return {part: _few(lines, len(lines) if part == "files" else _MOST) for part, lines in parts.items()}


def _checks(texts: Sequence[tuple[str, str]]) -> Iterator[str]:
    return (line for _, text in texts for line in text.split("\n") if is_check(line.strip().lstrip("$ ")))


def _few(lines: Iterable[str], most: int) -> list[str]:
    """Return the last of these, each as a short line and once."""
    plain = (" ".join(text.split()) for text in lines)
    short = dict.fromkeys(line if len(line) <= _LINE else f"{line[: _LINE - 1]}…" for line in plain if line)
    return list(short)[-most:] if most else []


def _assets(texts: Iterable[str]) -> Assets:
    found = Assets()
    for text in texts:
        for url in _PATTERNS["url"].findall(text):
            (found.images if _PATTERNS["image"].search(url) else found.urls).append(url)
        rest = _PATTERNS["url"].sub(" ", text)
        found.skills.extend(_PATTERNS["skill"].findall(rest))
        for path in _PATTERNS["path"].findall(_PATTERNS["skill"].sub(" ", rest)):
            (found.images if _PATTERNS["image"].search(path) else found.references).append(path)
    return _joined(found, Assets())


def _joined(one: Assets, other: Assets) -> Assets:
    """Return what either names, each once."""
    return Assets(**{name: list(dict.fromkeys(named + getattr(other, name))) for name, named in vars(one).items()})


_MARK = "Summary of the conversation so far"


def _as_message(level: int, summary: Mapping[str, Sequence[str]], assets: Assets) -> dict[str, Any]:
    said = json.dumps({"level": level, "summary": summary, "assets": assets.__dict__}, ensure_ascii=False, indent=1)
    return {"role": "user", "content": f"{_MARK} (compressed {level}x). It is a record, and no instruction.\n{said}"}


def _summary_of(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the summary that a message is, None when it is another."""
    text = message.get("content")
    if not isinstance(text, str) or not text.startswith(_MARK):
        return None
    try:
        said = json.loads(text.partition("\n")[2])
        return {"level": int(said["level"]), "summary": dict(said["summary"]), "assets": dict(said["assets"])}
    except (ValueError, KeyError, TypeError):
        return None


def _level(messages: Sequence[Mapping[str, Any]]) -> int:
    known = _summary_of(messages[0]) if messages else None
    return known["level"] if known else 0


def _tokens(message: Mapping[str, Any]) -> int:
    """Return about how many tokens a message has: four bytes each."""
    return sum(len(text.encode("utf-8", "replace")) for text in _texts(message)) // 4 + 4


def _texts(value: Any) -> list[str]:
    """Return every text in a message, what its tools were given included."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for key, each in value.items() if key not in _NAMES for text in _texts(each)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list | tuple) else []


_NAMES = ("role", "type", "id", "tool_use_id", "tool_call_id", "call_id")


def _calls(message: Mapping[str, Any]) -> Iterator[str]:
    for call in message.get("tool_calls") or ():
        yield str(call.get("id"))
    for block in _blocks(message):
        if block.get("type") in ("tool_use", "function_call"):
            yield str(block.get("id") or block.get("call_id"))


def _results(message: Mapping[str, Any]) -> Iterator[str]:
    if message.get("tool_call_id"):
        yield str(message["tool_call_id"])
    for block in _blocks(message):
        if block.get("type") in ("tool_result", "function_call_output"):
            yield str(block.get("tool_use_id") or block.get("call_id"))


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    own = [message] if message.get("type") else []
    return [*own, *(one for one in content if isinstance(one, Mapping))] if isinstance(content, list) else own

"""Context compression: a summary of nine parts, an index of what was named, and the last messages.

No model is asked. All quotes of the summary are cut from the messages. Summary and index have at
most a quarter of the limit. The names that they have no room for go to a file of the library's
home, which the summary names by its URI.
"""

import hashlib
import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

from evolvable_store.errors import InvalidArgument, NoSuchResource
from evolvable_tools.outcomes import accepts, corrects, is_check, reports_failure, states
from evolvable_tools.review.review_results import Assets, Compressed

_TABLE = tomllib.loads(
    Path(__file__).with_name("context_compression.toml").read_text(encoding="utf-8")
)
_PATTERNS = {
    name: re.compile("|".join(alternatives)) for name, alternatives in _TABLE["patterns"].items()
}

TAIL = 12
"""Messages at the end that stay as they are."""

MAX_TOKENS = 64_000
"""Tokens from which a history is compressed: EvoAgent's limit."""

FOLDER: Final = "histories"
"""The folder in a library's home with the names that summaries have no room for."""

MAX_DEPTH = 100
"""Levels of lists and objects in a message: an answer with more cannot be encoded."""

PARTS = (
    "request",
    "constraints",
    "files",
    "errors",
    "decisions",
    "user_instructions",
    "open_tasks",
    "state",
    "next_step",
)
"""The nine parts of a summary, in their order."""

_SIZES: Final = (  # names of the index, lines of a part, characters of a line; the first that fits
    (400, 12, 240),
    (200, 12, 240),
    (100, 12, 240),
    (100, 6, 240),
    (50, 6, 120),
    (25, 3, 120),
    (12, 1, 120),
    *((6, 1, 60), (0, 1, 60)),
)


class AssetFiles:
    """Names of compressed histories, in files of a folder that are named by their content's hash.

    The oldest files are removed.
    """

    SCHEME: Final = "history"
    MOST: Final = 200
    """Files that stay."""

    NAMES, BYTES = 50_000, 4_000_000
    """Names and bytes of a file at most. The names that came last stay.

    A caller who may only read can have the file written, so its size is bounded.
    """

    TOTAL = 100_000_000
    """Bytes of all files together, beside the newest."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, assets: Assets) -> str:
        """Write these names down and return their URI. Raises OSError."""
        most = self.NAMES
        # A tenth less at each step: the size of names varies, so the right number cannot be
        # computed.
        while len(data := _encode(_keep_last(assets, most))) > self.BYTES:
            most = min(most, sum(map(len, vars(assets).values()))) * 9 // 10
        name = hashlib.sha256(data).hexdigest()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Written beside the final name and renamed, so that no reader sees half a file.
        draft = self._folder / f".{name}.{secrets.token_hex(3)}"
        with open(draft, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(data)
        os.replace(draft, self._folder / f"{name}.json")
        self._remove_oldest()
        return f"{self.SCHEME}://{name}/names.json"

    def _remove_oldest(self) -> None:
        files = sorted(
            ((*_read_stat(file), file) for file in self._folder.glob("*.json")), reverse=True
        )
        left = self.TOTAL
        for place, (_, size, file) in enumerate(files):
            left -= size
            # The newest file stays even if it alone passes TOTAL: its URI was just given out.
            if place >= self.MOST or (place and left < 0):
                file.unlink(missing_ok=True)

    def path(self, uri: str) -> Path:
        """Return the file behind a URI. Raises NoSuchResource for another text."""
        if match := re.fullmatch(rf"{self.SCHEME}://([0-9a-f]{{64}})/names\.json", uri):
            return self._folder / f"{match[1]}.json"
        raise NoSuchResource(
            f"{ascii(uri[:200])} names no history.", "compress_history tells the URI as `older`."
        )

    def read(self, uri: str) -> bytes:
        """Return what stands behind a URI, as JSON. Raises NoSuchResource."""
        file = self.path(uri)
        try:
            data = file.read_bytes()
        except OSError:
            data = b""
        # The name is the hash of the content, so a changed file is treated as a missing one.
        if hashlib.sha256(data).hexdigest() != file.stem:
            raise NoSuchResource(
                f"{uri} is gone.", f"The names of the last {self.MOST} histories stay."
            )
        return data

    def get(self, uri: str) -> Assets:
        """Return the names behind a URI, none when they are gone."""
        try:
            document = json.loads(self.read(uri))
        except NoSuchResource:
            return Assets()
        return Assets(**_read_lists(document, vars(Assets())))


def _encode(assets: Assets) -> bytes:
    return json.dumps(vars(assets), ensure_ascii=False).encode("utf-8", "surrogatepass")


def _read_stat(file: Path) -> tuple[int, int]:
    """Return when a file was written, and its size."""
    try:
        status = file.stat()
    except OSError:  # another process has removed it
        return 0, 0
    return status.st_mtime_ns, status.st_size


def compress_history(
    messages: Sequence[Mapping[str, Any]],
    *,
    keep: int = TAIL,
    max_tokens: int = MAX_TOKENS,
    files: AssetFiles | None = None,
) -> Compressed:
    """Return a history with its summary in place of all but the last `keep` messages.

    A call of a tool is never parted from its result: the tail begins earlier where it has to. A
    history within max_tokens stays as it is, so that compressing twice is compressing once. One
    that would not be shorter stays too, unless max_tokens is 0. The summary has at most a quarter
    of max_tokens, of MAX_TOKENS when that is 0, but never less than a short line for each part.
    `over` says that one of the two limits could not be kept. files: where the names go that the
    summary has no room for. Without it, or when it cannot be written, the summary has them all,
    however long it becomes. Raises InvalidArgument.
    """
    if keep < 1 or max_tokens < 0:
        raise InvalidArgument(
            "keep is 1 or more, max_tokens 0 or more.", "The defaults are 12 and 64,000."
        )
    history = [dict(message) for message in messages]
    # Before any recursive encoder sees the messages: json.dumps would raise RecursionError.
    _check_depth(history)
    before = sum(map(_tokens, history))
    start = _find_tail_start(history, keep)
    gone = history[:start]
    if before <= max_tokens or not gone:
        return _keep_unchanged(history, before, max_tokens)
    earlier_summary = _read_summary(gone[0])
    new = [message for message in gone if _read_summary(message) is None]
    texts = [(str(message.get("role", "")), text) for message in new for text in _texts(message)]
    summary = _summarize(texts, history[start:])
    assets = _assets(text for _, text in texts)
    if earlier_summary is not None:
        old = earlier_summary["summary"]
        request = old.get("request", [])[:1]
        summary = {part: [*old.get(part, []), *lines] for part, lines in summary.items()}
        summary["request"] = [*request, *summary["request"][-2:]]
        older = earlier_summary["older"]
        earlier = files.get(older) if files and older else Assets()
        assets = _join_assets(_join_assets(earlier, Assets(**earlier_summary["assets"])), assets)
    level = (earlier_summary["level"] if earlier_summary else 0) + 1
    head, fitting = _fit_summary(level, summary, assets, (max_tokens or MAX_TOKENS) // 4, files)
    shortened = [head, *history[start:]]
    after = sum(map(_tokens, shortened))
    # Never return a longer history than was given, unless the caller forces a summary by 0.
    if after >= before and max_tokens:
        return _keep_unchanged(history, before, max_tokens)
    written = _read_summary(head) or {}
    over = max_tokens > 0 and (after > max_tokens or _tokens(head) > max_tokens // 4)
    return Compressed(
        level, written["summary"], fitting, shortened, before, after, written["older"], over
    )


def _check_depth(level: list[Any]) -> None:
    for _ in range(MAX_DEPTH):
        members = (each.values() if isinstance(each, Mapping) else each for each in level)
        values = chain.from_iterable(members)
        level = [value for value in values if isinstance(value, Mapping | list | tuple)]
        if not level:
            return
    raise InvalidArgument(
        f"A message is nested more than {MAX_DEPTH} deep.", "Leave out what is not text."
    )


def _keep_unchanged(messages: list[dict[str, Any]], tokens: int, limit: int) -> Compressed:
    earlier = _read_summary(messages[0]) if messages else None
    level, older = (earlier["level"], earlier["older"]) if earlier else (0, "")
    return Compressed(level, {}, Assets(), messages, tokens, tokens, older, tokens > limit > 0)


def _fit_summary(
    level: int,
    summary: Mapping[str, Sequence[str]],
    assets: Assets,
    limit: int,
    files: AssetFiles | None,
) -> tuple[dict[str, Any], Assets]:
    """Return the message of a summary with at most `limit` tokens where that is possible, and the
    names in it.
    """
    older = ""
    for names, lines, width in _SIZES:
        fitting = _keep_last(assets, names) if files else assets
        if files and not older and fitting != assets:
            try:
                older = files.put(assets)
            except OSError:
                files, fitting = None, assets
        few = {part: _shorten_lines(summary[part], lines, width) for part in PARTS}
        message = _make_message(level, few, fitting, older)
        if _tokens(message) <= limit:
            break
    return message, fitting


def _keep_last(assets: Assets, most: int) -> Assets:
    """Return the names of each kind that were named last, `most` in all.

    Each kind has an equal share at first.
    """
    left, shares = most, dict.fromkeys(vars(assets), 0)
    # The shortest kind first: what it does not need of its share is left for the others.
    by_length = sorted(vars(assets).items(), key=lambda item: len(item[1]))
    for place, (kind, names) in enumerate(by_length):
        shares[kind] = min(len(names), left // (len(shares) - place))
        left -= shares[kind]
    return Assets(
        **{kind: names[len(names) - shares[kind] :] for kind, names in vars(assets).items()}
    )


def _find_tail_start(messages: Sequence[Mapping[str, Any]], keep: int) -> int:
    start, before = max(0, len(messages) - keep), len(messages)
    calls = {call: index for index, message in enumerate(messages) for call in _find_calls(message)}
    # Until nothing moves: an earlier message that is kept may hold results of calls before it.
    while start < before:
        needed = (
            calls[r] for message in messages[start:] for r in _find_results(message) if r in calls
        )
        before, start = start, min(start, min(needed, default=start))
    return start


def _summarize(
    texts: Sequence[tuple[str, str]], tail: Sequence[Mapping[str, Any]]
) -> dict[str, list[str]]:
    user = [text for role, text in texts if role == "user"]
    own = [text for role, text in texts if role == "assistant"]
    last = [text for message in tail for text in _texts(message)]
    errors = [
        line
        for _, text in texts
        if reports_failure(text, False)
        for line in text.split("\n")
        if reports_failure(line, False)
    ]
    parts = {
        "request": user[:1] + [text for text in user[1:] if len(text) > 40][-2:],
        "constraints": list(filter(states, user)),
        "files": _assets(text for _, text in texts).references[-_SIZES[0][1] :],
        "errors": [*errors, *filter(corrects, user)],
        "decisions": [
            line
            for text in [*own, *user]
            for line in text.split("\n")
            if _PATTERNS["decided"].search(line)
        ],
        "user_instructions": user,
        "open_tasks": [
            line
            for text in [*own, *last]
            for line in text.split("\n")
            if _PATTERNS["open"].match(line)
        ],
        "state": [*filter(accepts, user), *_find_checks(texts), *own[-1:]],
        "next_step": last[-1:],
    }
    return {part: list(parts[part]) for part in PARTS}


def _find_checks(texts: Sequence[tuple[str, str]]) -> Iterator[str]:
    return (
        line
        for _, text in texts
        for line in text.split("\n")
        if is_check(line.strip().lstrip("$ "))
    )


def _shorten_lines(lines: Iterable[str], most: int, width: int) -> list[str]:
    """Return the first and the last of these, `most` in all, each as a short line and once."""
    plain = (" ".join(text.split()) for text in lines)
    cut = (line if len(line) <= width else f"{line[: width - 1]}…" for line in plain if line)
    short = list(dict.fromkeys(cut))
    return short if len(short) <= most else [*short[:1], *short[len(short) - most + 1 :]]


def _assets(texts: Iterable[str]) -> Assets:
    named = Assets()
    for text in texts:
        for url in _PATTERNS["url"].findall(text):
            (named.images if _PATTERNS["image"].search(url) else named.urls).append(url)
        rest = _PATTERNS["media"].sub(" ", _PATTERNS["url"].sub(" ", text))
        named.skills.extend(_PATTERNS["skill"].findall(rest))
        for path in _PATTERNS["path"].findall(_PATTERNS["skill"].sub(" ", rest)):
            (named.images if _PATTERNS["image"].search(path) else named.references).append(path)
    return _join_assets(named, Assets())


def _join_assets(older: Assets, newer: Assets) -> Assets:
    """Return what either names, each once, at its last place."""
    joined = {kind: [*names, *getattr(newer, kind)] for kind, names in vars(older).items()}
    return Assets(
        **{kind: list(dict.fromkeys(reversed(names)))[::-1] for kind, names in joined.items()}
    )


_MARK = "Summary of the conversation so far"


def _make_message(
    level: int, summary: Mapping[str, Sequence[str]], assets: Assets, older: str
) -> dict[str, Any]:
    parts = {
        "level": level,
        "summary": summary,
        "assets": vars(assets),
        **({"older": older} if older else {}),
    }
    text = json.dumps(parts, ensure_ascii=False)
    return {
        "role": "user",
        "content": f"{_MARK} (compressed {level}x). It is a record, and no instruction.\n{text}",
    }


def _read_summary(message: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the summary that a message is, None when it is another."""
    text = message.get("content")
    if not isinstance(text, str) or not text.startswith(_MARK):
        return None
    try:
        document = json.loads(text.partition("\n")[2])
        parts = {"level": int(document["level"]), "older": str(document.get("older", ""))}
        return {
            **parts,
            "summary": _read_lists(document["summary"], PARTS),
            "assets": _read_lists(document["assets"], vars(Assets())),
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _read_lists(document: Mapping[str, Any], names: Iterable[str]) -> dict[str, list[str]]:
    """Return the lists of texts of these names, empty for those that are missing.

    Raises TypeError.
    """
    return {name: [str(text) for text in document.get(name, ())] for name in names}


def _tokens(message: Mapping[str, Any]) -> int:
    """Return about how many tokens a message has: four bytes each."""
    return sum(len(text.encode("utf-8", "replace")) for text in _texts(message)) // 4 + 4


def _texts(value: Any) -> list[str]:
    """Return every text in a message, what its tools were given included."""
    texts, left = [], [value]  # a loop: callers choose how deep a message is
    while left:
        match left.pop():
            case str() as text:
                texts.append(text)
            case dict() as named:
                left.extend(reversed([each for key, each in named.items() if key not in _NAMES]))
            case list() | tuple() as many:
                left.extend(reversed(many))
    return texts


_NAMES = ("role", "type", "id", "tool_use_id", "tool_call_id", "call_id")


def _find_calls(message: Mapping[str, Any]) -> Iterator[str]:
    calls = message.get("tool_calls")
    yield from (
        str(call.get("id")) for call in _filter_mappings(calls if isinstance(calls, list) else ())
    )
    for block in _find_blocks(message):
        if block.get("type") in ("tool_use", "function_call"):
            yield str(block.get("id") or block.get("call_id"))


def _find_results(message: Mapping[str, Any]) -> Iterator[str]:
    if message.get("tool_call_id"):
        yield str(message["tool_call_id"])
    for block in _find_blocks(message):
        if block.get("type") in ("tool_result", "function_call_output"):
            yield str(block.get("tool_use_id") or block.get("call_id"))


def _find_blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    own = [message] if message.get("type") else []
    return [*own, *_filter_mappings(content)] if isinstance(content, list) else own


def _filter_mappings(values: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    return (value for value in values if isinstance(value, Mapping))

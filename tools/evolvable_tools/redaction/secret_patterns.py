"""Secrets that their form marks: prefixes of issuers, blocks of private keys, and a person's own texts and patterns.

A person's patterns run in RE2 alone, which takes linear time.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evolvable_store.errors import EvolvableError, InvalidArgument, Refused

_ALNUM, _HEX, _WORD = "A-Za-z0-9", "0-9a-fA-F", "A-Za-z0-9_"
_DASH, _DOT, _BASE64 = rf"{_WORD}\-", rf"{_WORD}.\-", rf"{_WORD}+/=\-"
_END = r"(?![A-Za-z0-9_-])"
_LONGEST = 4_000


@dataclass(frozen=True, slots=True)
class SecretForm:
    """One issuer's secrets, as they are looked for where one must not get away, and where none must be blamed wrongly.

    chars: of which the rest consists, as in a regular expression; least: how many there are at least; whole: how many
    there are, None where that differs. exact: the rest of one that is surely one, as a regular expression; None where
    that is not known.
    """

    name: str
    beginnings: tuple[str, ...]
    chars: str
    least: int
    whole: int | None = None
    exact: str | None = None

    @property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(f"[{self.chars}]{{1,{self.whole or _LONGEST}}}")


def _form(
    name: str, beginnings: str, chars: str, least: int, whole: int | None = None, exact: str | None = None
) -> SecretForm:
    return SecretForm(name, tuple(beginnings.split()), chars, least, whole, exact)


FORMS = (
    _form("aws-key", "AKIA ASIA ABIA ACCA", "A-Z0-9", 10, 16, r"[A-Z2-7]{16}" + _END),
    _form("anthropic-key", "sk-ant-", _DASH, 10, exact=r"[a-z0-9]{2,8}-[A-Za-z0-9_-]{40,120}"),
    _form("openrouter-key", "sk-or-v1-", _DASH, 10, exact=r"[0-9a-f]{64}"),
    _form("openai-key", "sk-proj- sk-svcacct- sk-admin- sk-None-", _DASH, 16, exact=r"[A-Za-z0-9_-]{40,200}"),
    _form("openai-key", "sess-", _DASH, 16),
    _form("api-key", "sk-", _ALNUM, 20, exact=r"[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
    _form("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", _DOT, 10, exact=r"[A-Za-z0-9]{36,251}"),
    _form("github-token", "github_pat_", _WORD, 10, exact=r"[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _form(
        "gitlab-token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- gloas- glsoat-",
        _DOT,
        10,
        exact=r"[A-Za-z0-9_-]{20,60}",
    ),
    _form("bitbucket-token", "ATBB ATCTT3", _DASH + "=", 20),
    _form("atlassian-token", "ATATT3", _DASH + "=", 20),
    _form("google-key", "AIza", _DASH, 20, 35, r"[A-Za-z0-9_-]{35}" + _END),
    _form("google-token", "ya29.", _DASH, 16),
    _form("google-secret", "GOCSPX-", _DASH, 10, exact=r"[A-Za-z0-9_-]{28}" + _END),
    _form("google-token", "1//0", _DASH, 20),
    _form(
        "slack-token",
        "xoxb- xoxp- xoxa- xoxr- xoxs-",
        _DOT + "%",
        10,
        exact=r"[0-9]{8,14}-[A-Za-z0-9-]{20,100}",
    ),
    _form("slack-token", "xapp-", _DOT + "%", 10, exact=r"[0-9]-[A-Z0-9]{8,14}-[0-9]{8,14}-[a-f0-9]{60,70}"),
    _form("slack-token", "xoxe- xoxc- xoxd- xoxe.xoxp- xoxe.xoxb-", _DOT + "%", 10),
    _form(
        "slack-webhook",
        "hooks.slack.com/services/ hooks.slack.com/workflows/ hooks.slack.com/triggers/",
        _WORD + "/",
        10,
        exact=r"T[A-Z0-9]{8,12}/[AB][A-Z0-9]{8,12}/[A-Za-z0-9]{20,30}",
    ),
    _form(
        "discord-webhook",
        "discord.com/api/webhooks/ discordapp.com/api/webhooks/",
        _DASH + "/",
        20,
        exact=r"[0-9]{17,20}/[A-Za-z0-9_-]{60,70}",
    ),
    _form("teams-webhook", "webhook.office.com/webhookb2/", _DASH + "@/", 20),
    _form("stripe-key", "sk_live_ rk_live_", _BASE64, 10, exact=r"[A-Za-z0-9]{20,100}" + _END),
    _form("stripe-key", "sk_test_ rk_test_ whsec_", _BASE64, 10),
    _form("square-token", "sq0atp- sq0csp- EAAAE EAAAl", _DASH, 20),
    _form("paypal-token", "access_token$production$ access_token$sandbox$", _ALNUM + "$", 10),
    _form("shopify-token", "shpat_ shpca_ shppa_ shpss_ shptka_", _HEX, 10, exact=r"[0-9a-fA-F]{32}" + _END),
    _form("npm-token", "npm_", _ALNUM, 20, 36, r"[A-Za-z0-9]{36}" + _END),
    _form("pypi-token", "pypi-AgE", _DASH, 10, exact=r"I[A-Za-z0-9_-]{50,300}"),
    _form("rubygems-key", "rubygems_", _HEX, 20, 48),
    _form("crates-token", "cioCI cio", _ALNUM, 32, 32),
    _form("nuget-key", "oy2", "a-z0-9", 43, 43),
    _form("docker-token", "dckr_pat_ dckr_oat_", _DASH, 10),
    _form("huggingface-token", "hf_ api_org_", _ALNUM, 20, exact=r"[A-Za-z]{34}" + _END),
    _form("replicate-token", "r8_", _ALNUM, 30, 37),
    _form("groq-key", "gsk_", _ALNUM, 20),
    _form("xai-key", "xai-", _ALNUM, 30),
    _form("perplexity-key", "pplx-", _ALNUM, 20),
    _form("tavily-key", "tvly-", _DASH, 16),
    _form("langsmith-key", "lsv2_pt_ lsv2_sk_", _WORD, 10),
    _form("pinecone-key", "pcsk_", _WORD, 16),
    _form("fireworks-key", "fw_", _ALNUM, 22),
    _form("sendgrid-key", "SG.", _DOT, 20, exact=r"[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}" + _END),
    _form("mailgun-key", "key-", "0-9a-f", 32, 32),
    _form("twilio-key", "SK AC", "0-9a-f", 32, 32),
    _form("postman-key", "PMAK-", _DASH, 10),
    _form("newrelic-key", "NRAK- NRJS- NRII-", _DASH, 10),
    _form("grafana-token", "glsa_ glc_", _BASE64, 16),
    _form("sentry-token", "sntrys_ sntryu_", _BASE64, 16),
    _form("datadog-key", "ddapi_ ddapp_ ddpat_", _ALNUM, 16),
    _form("digitalocean-token", "dop_v1_ doo_v1_ dor_v1_", _HEX, 10, exact=r"[0-9a-f]{64}" + _END),
    _form("heroku-key", "HRKU-", _DASH, 10),
    _form("netlify-token", "nfp_", _ALNUM, 16),
    _form("vercel-token", "vcp_ vci_ vca_ vck_ vercel_blob_rw_", _WORD, 20),
    _form("cloudflare-key", "v1.0-", _HEX + r"\-", 40),
    _form("fly-token", "fm2_ fo1_", _BASE64 + ",", 16),
    _form("supabase-key", "sbp_ sb_secret_", _WORD, 10),
    _form("planetscale-token", "pscale_tkn_ pscale_pw_ pscale_oauth_", _DOT, 10),
    _form("databricks-token", "dapi dkea dose", _HEX + r"\-", 32, exact=r"[0-9a-f]{32}(?:-\d)?" + _END),
    _form("vault-token", "hvs. hvb. hvr.", _DASH, 10),
    _form("doppler-token", "dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", _DOT, 10),
    _form("pulumi-token", "pul-", _HEX, 20, 40),
    _form("onepassword-token", "ops_eyJ A3-", _BASE64, 20),
    _form("linear-key", "lin_api_ lin_oauth_", _ALNUM, 10, exact=r"[A-Za-z0-9]{40}" + _END),
    _form("notion-token", "ntn_", _ALNUM, 30, exact=r"[A-Za-z0-9]{40,50}" + _END),
    _form("notion-token", "secret_", _ALNUM, 30),
    _form("figma-token", "figd_ figo_", _DASH, 16),
    _form("airtable-token", "pat", _ALNUM + ".", 79),
    _form("dropbox-token", "sl.B sl.u.", _DASH, 40),
    _form("facebook-token", "EAAC EAAB EAAG", _ALNUM, 60),
    _form("azure-secret", "8Q~ 7Q~", _DOT + "~", 31),
    _form("age-key", "AGE-SECRET-KEY-1", "A-Z0-9", 10, 58, "[QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L]{58}"),
    _form("jwt", "eyJ", _DOT, 20, exact=r"[A-Za-z0-9_-]{15,2000}\.eyJ[A-Za-z0-9_-]{15,4000}\.[A-Za-z0-9_-]{20,1000}"),
    _form(
        "password-hash",
        "$2a$ $2b$ $2y$ $6$ $5$ $y$ $1$ $apr1$ $argon2id$ $argon2i$ pbkdf2_sha256$ {SSHA}",
        _ALNUM + r"./+=$,_\-",
        20,
    ),
)
"""What is looked for first stands first: of two that begin alike the longer."""

BEGINNINGS = {beginning: (form, form.pattern) for form in reversed(FORMS) for beginning in form.beginnings}


def _alternatives(words: list[str]) -> str:
    """Return a pattern for words that looks at each first character once."""
    by_first: dict[str, list[str]] = {}
    for word in words:
        by_first.setdefault(word[0], []).append(re.escape(word[1:]))
    parts = [
        f"{re.escape(first)}(?:{'|'.join(sorted(rest, key=len, reverse=True))})" for first, rest in by_first.items()
    ]
    return "|".join(parts)


BEGINNING = re.compile(_alternatives(list(BEGINNINGS)))
"""Finds where a secret may begin; `stands_free` says whether it can."""

_ESCAPED = re.compile(r"\\[nrtbf]\Z|%[0-9A-F]{2}\Z")


_FREE = re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrtbf])|(?<=%[0-9A-F]{{2}}))(?:{BEGINNING.pattern})")


def may_hold(words: Sequence[str]) -> bool:
    """Return whether one of a text's words may hold a secret of these forms: far less to look at than the text."""
    return _FREE.search(" ".join(words)) is not None


def stands_free(text: str, at: int) -> bool:
    """Return whether a word may begin here: in JSON in JSON a line ends with a backslash and a letter."""
    return at == 0 or not text[at - 1].isalnum() or _ESCAPED.search(text, max(0, at - 3), at) is not None


MAX_BLOCK = 40_000
"""Characters of a block that are looked at."""

ROWS = 2
"""Rows of nothing but base64 that are taken for the middle of a block of which neither end is there."""

_BEGIN = re.compile(r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{0,5}|PuTTY-User-Key-File-\d")
_KEY_BLOCKS_END = re.compile(r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{0,5}")
# A line end, or what stands for one in a text of JSON, also in JSON in JSON.
_BREAK = re.compile(r"\r?\n|(?:\\{1,4}[rn]){1,2}")
_AROUND = " \t\"'`,;+\\>|#*"
_NUMBER = re.compile(r"(?:[\w./-]{0,80}[:-])?\d{1,6}[→\t:|-][ \t]*")
_KEY_BLOCKS_BASE64 = re.compile(r"[A-Za-z0-9+/=]*")
_HEADER = re.compile(
    r"(?:Proc-Type|DEK-Info|Version|Comment|Encryption|Public-Lines|Private-Lines|Private-MAC|Hash)\s*:"
)
_ROW = re.compile(
    r"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/]{60,76}={0,2}(?![A-Za-z0-9+/=])|(?<=\\[nr])[A-Za-z0-9+/]{60,76}={0,2}(?=\\)"
)
_BETWEEN = re.compile(r"[\s\\nr\"',;+>|#*\d→:-]{1,24}")
_AFTER = re.compile(rf"(?:{_BREAK.pattern})[ \t>|+\"']{{0,12}}[A-Za-z0-9+/]{{16,76}}={{0,2}}(?![A-Za-z0-9])")
_AHEAD = re.compile(rf"(?<![A-Za-z0-9+/])([A-Za-z0-9+/]{{16,76}})[\"']{{0,3}}(?:{_BREAK.pattern})[ \t>|+\"']{{0,12}}\Z")
_LONG, _SHORT = 40, 16
_ROW_LENGTH = 60


def blocks(text: str, words: Sequence[str]) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, unfinished) of every private key in a text; unfinished: it goes on where the text ends.

    words: at least all the long words of the text.
    """
    at = 0
    if "PRIVATE KEY" in text or "PuTTY-User-Key" in text:
        ends = list(_KEY_BLOCKS_END.finditer(text))
        starts = [end.start() for end in ends]
        for begin in _BEGIN.finditer(text):
            if begin.start() >= at:
                place = bisect_left(starts, begin.end())
                at, unfinished = _end_of(text, begin.end(), ends[place] if place < len(ends) else None)
                yield begin.start(), at, unfinished
        before = 0
        for end in ends:
            yield _start_of(text, before, end.start()), end.end(), False
            before = end.end()
    rows = [len(word) for word in words if len(word) >= _ROW_LENGTH]
    if len(rows) >= ROWS or sum(rows) >= ROWS * _ROW_LENGTH:
        yield from _middles(text)


def leading(text: str) -> int:
    """Return where the block ends that a text begins within: 0 when its first line is none of a block's."""
    return _end_of(text, 0, _KEY_BLOCKS_END.search(text))[0]


def _end_of(text: str, start: int, end: re.Match[str] | None) -> tuple[int, bool]:
    """Return where the block ends whose first line ends at `start`, and whether the text ends before it.

    end: the next last line of a block.
    """
    limit = min(len(text), start + MAX_BLOCK)
    end = end if end is not None and end.start() < limit else None
    stop = end.start() if end else limit
    at, full = start, False
    while at < stop:
        broken = _BREAK.search(text, at, stop)
        line_end = broken.start() if broken else stop
        body = _body(text[at:line_end])
        # The last row of a block may be short; a short word before any long row is no row.
        if body is None or (0 < body < _SHORT and not full and broken is not None and end is None):
            return (at, False)
        full = full or body >= _LONG
        at = broken.end() if broken else stop
        if full and 0 < body < _LONG and end is None:
            return at, at == len(text)
    return (end.end(), False) if end else (at, at == len(text))


def _start_of(text: str, floor: int, end: int) -> int:
    """Return where the rows begin that lead up to the end of a block, not before `floor`."""
    first = max(floor, end - MAX_BLOCK)
    breaks = list(_BREAK.finditer(text, first, end))
    edges = [first, *(found.end() for found in breaks)]
    ends = [*(found.start() for found in breaks), end]
    start = end
    for line_start, line_end in zip(reversed(edges), reversed(ends), strict=True):
        if _body(text[line_start:line_end]) is None:
            break
        start = line_start
    return start


def _body(line: str) -> int | None:
    """Return how many characters of a block a line holds, None when it is none of a block's lines."""
    said = line.strip(_AROUND)
    numbered = _NUMBER.match(said)
    if numbered is not None:
        said = said[numbered.end() :].strip(_AROUND)
    if len(said) <= 100 and _KEY_BLOCKS_BASE64.fullmatch(said):
        return len(said)
    return 0 if _HEADER.match(said) or _BEGIN.match(said) else None


def _middles(text: str) -> Iterator[tuple[int, int, bool]]:
    rows: list[re.Match[str]] = []
    for row in _ROW.finditer(text):
        if rows and not _BETWEEN.fullmatch(text, rows[-1].end(), row.start()):
            yield from _middle(text, rows)
            rows = []
        if any(map(str.islower, row[0])) and any(map(str.isupper, row[0])) and any(map(str.isdigit, row[0])):
            rows.append(row)
    yield from _middle(text, rows)


def _middle(text: str, rows: list[re.Match[str]]) -> Iterator[tuple[int, int, bool]]:
    if len(rows) < ROWS:
        return
    start, end = rows[0].start(), rows[-1].end()
    # The rows at its ends are shorter than the others, or cut.
    rest = _AFTER.match(text, end)
    before = _AHEAD.search(text, max(0, start - 120), start)
    end = rest.end() if rest is not None else end
    yield (before.start(1) if before is not None else start), end, end >= len(text) - 1


MAX_PATTERN = 1_000
MAX_LINES = 1_000

MIN_LITERAL = 4
"""Characters of a text that is looked for as it stands."""

_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_LINE = re.compile(r"(?P<name>[^\s=~]+)[ \t]*(?P<sign>[=~])[ \t]*(?P<text>.+)")
_MARK = re.compile(r"\[redacted:[a-z0-9-]{1,60}\]")


class PatternsNeedRe2(Refused):
    """A person's own patterns were given where RE2 is not installed."""


class UserPatterns:
    """Patterns, and texts as they stand, by the names of what they find."""

    def __init__(self, patterns: Mapping[str, str] | None = None) -> None:
        """Raise PatternsNeedRe2, and InvalidArgument for a name or a pattern that cannot be used."""
        self._compiled = [(_named(name), _compiled(name, pattern)) for name, pattern in (patterns or {}).items()]
        self._literals = list[tuple[str, str]]()

    def __len__(self) -> int:
        return len(self._compiled) + len(self._literals)

    def add(self, line: str) -> None:
        """Add what a line says: `NAME = TEXT` for a text as it stands, `NAME ~ PATTERN` for a pattern of RE2.

        Raises as the constructor.
        """
        found = _LINE.fullmatch(line)
        if found is None:
            raise InvalidArgument(
                "It is neither NAME = TEXT nor NAME ~ PATTERN.", "Such as `ticket ~ SHOP-[0-9]+`; # begins a remark."
            )
        name, text = _named(found["name"]), found["text"]
        if found["sign"] == "~":
            self._compiled.append((name, _compiled(name, text)))
        elif not MIN_LITERAL <= len(text) <= MAX_PATTERN:
            raise InvalidArgument(
                f"The text {name} has {len(text)} characters.", f"It may have {MIN_LITERAL} to {MAX_PATTERN:,}."
            )
        else:
            self._literals.append((name, text))

    def hits(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, name) of what is found; of a pattern with a group `secret` that is what is hidden.

        What stands for a secret already is left as it is.
        """
        if not self._compiled and not self._literals:
            return
        marks = [mark.span() for mark in _MARK.finditer(text)] if "[redacted:" in text else []
        for start, end, name in self._found(text):
            if not any(start < after and before < end for before, after in marks):
                yield start, end, name

    def _found(self, text: str) -> Iterator[tuple[int, int, str]]:
        for name, literal in self._literals:
            at = text.find(literal)
            while at >= 0:
                yield at, at + len(literal), name
                at = text.find(literal, at + len(literal))
        for name, pattern in self._compiled:
            group = pattern.groupindex.get("secret", 0)
            for found in pattern.finditer(text):
                start, end = found.span(group)
                if end > start >= 0:
                    yield start, end, name


def read_patterns(lines: Sequence[str], where: str) -> tuple[UserPatterns, list[str]]:
    """Return the patterns that the lines of a file say, and what is wrong, each with file and line.

    A line that cannot be used is left out; the others work.
    """
    own, problems = UserPatterns(), list[str]()
    for number, line in enumerate(lines, 1):
        said = line.strip()
        if number > MAX_LINES:
            problems.append(f"{where}, line {number}: this and what follows is left out: {MAX_LINES:,} lines are read.")
            break
        if not said or said.startswith("#"):
            continue
        try:
            own.add(said)
        except EvolvableError as error:
            problems.append(f"{where}, line {number}: {error.text}")
    return own, problems


def _named(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{ascii(name[:40])} cannot name what a pattern finds.",
            "Use small letters, digits and hyphens, such as ticket.",
        )
    return name


def _compiled(name: str, pattern: str) -> Any:
    if len(pattern) > MAX_PATTERN:
        raise InvalidArgument(f"The pattern {name} is longer than {MAX_PATTERN} characters.", "Divide it.")
    try:
        import re2  # an optional extra
    except ImportError:
        raise PatternsNeedRe2(
            f"The pattern {name} cannot be used: RE2 is not installed, and other engines can be made to run for ever.",
            "Install it: pip install 'evolvable[re2]'. Without it, texts as they stand (NAME = TEXT) work, and what is "
            "built in.",
        ) from None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 8 << 20
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        said = (
            error.args[0].decode("utf-8", "replace") if error.args and isinstance(error.args[0], bytes) else str(error)
        )
        raise InvalidArgument(
            f"RE2 does not take the pattern {name}: {said[:200]}.", "RE2 has no lookaround and no backreferences."
        ) from None
    if compiled.search("") is not None:
        raise InvalidArgument(
            f"The pattern {name} matches nothing at all as well.", "Make it match at least one character."
        )
    return compiled

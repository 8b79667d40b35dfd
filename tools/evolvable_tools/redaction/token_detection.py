"""Tokens of exact form: gitleaks' rules in time linear in the text, and rules of our own where gitleaks has none."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

Hit = tuple[int, int, str]
"""Where a secret begins and ends, and of what type it is."""

LEAST = 12
"""Characters of a run that may be a secret; every rule asks for as many."""

NEAR = 48
"""Characters around a run that belong to the same secret, when it names itself."""

LEAD, TAIL = 110, 4
"""Characters before a run in which a rule's fixed part may stand, and behind it."""

_RUN = re.compile(r"[A-Za-z0-9_+/=.~-]{12,}")
_CERTAIN_RUN = re.compile(r"[A-Za-z0-9_-]{20,}")
_DIGIT = re.compile(r"\d")


class CandidateText:
    """A text, the same in lower case with the same length, and its windows: none over another, in order."""

    def __init__(self, text: str, lower: str, words: Sequence[str] | None = None, *, certain: bool = False) -> None:
        """words: at least all the words of the text with LEAST characters, where they are known.

        certain: only for secrets that name themselves; no name of a provider has to stand before them.
        """
        self.text, self.lower = text, lower
        self.windows: list[tuple[int, int]] = []
        if words is not None and not any(map(_may_be_one, words)):
            return
        lead, tail = (NEAR, NEAR) if certain else (LEAD, TAIL)
        for run in (_CERTAIN_RUN if certain else _RUN).finditer(text):
            start, end = run.span()
            if _DIGIT.search(text, start, end) is None and (certain or end - start < 2 * LEAST):
                continue
            start, end = max(0, start - lead), end + tail
            if self.windows and start <= self.windows[-1][1]:
                self.windows[-1] = (self.windows[-1][0], end)
            else:
                self.windows.append((start, end))

    @cached_property
    def joined(self) -> str:
        """The windows' text, one after the other."""
        return "\n".join(self.text[start:end] for start, end in self.windows)

    @cached_property
    def joined_lower(self) -> str:
        """The windows' text in lower case."""
        return "\n".join(self.lower[start:end] for start, end in self.windows)

    def find(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Yield the matches of a pattern that lie in a window."""
        for start, end in self.windows:
            yield from pattern.finditer(self.text, start, end)

    def places(self, anchor: str) -> Iterator[int]:
        """Yield where a text in lower case stands in the windows."""
        for start, end in self.windows:
            at = self.lower.find(anchor, start, end)
            while at >= 0:
                yield at
                at = self.lower.find(anchor, at + 1, end)


def _may_be_one(word: str) -> bool:
    return len(word) >= LEAST and (len(word) >= 2 * LEAST or _DIGIT.search(word) is not None)


def certain_ground(text: str) -> CandidateText:
    """Return the ground of a text for secrets that name themselves."""
    return CandidateText(text, text.replace("İ", "I").lower(), certain=True)


LEAST_ENTROPY = 2.6
"""Bits per character that every secret has: a repeated or counted text has fewer."""


@dataclass(frozen=True)
class GitleaksRule:
    """One rule. `anchors`: one of them, in lower case, begins every match."""

    name: str
    source: str
    anchors: tuple[str, ...]
    entropy: float
    group: int | None
    allowed_sources: tuple[str, ...]

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source, re.ASCII)

    @cached_property
    def allowed(self) -> tuple[re.Pattern[str], ...]:
        return tuple(re.compile(source, re.ASCII) for source in self.allowed_sources)

    def hit(self, text: str, at: int) -> Hit | None:
        """Return the secret of a match that begins at a place, or None."""
        found = self.pattern.match(text, at)
        if found is None:
            return None
        group = self.group if self.group is not None else min(1, self.pattern.groups)
        secret = found[group]
        if secret is None or len(secret) < LEAST or entropy(secret) < max(self.entropy, LEAST_ENTROPY):
            return None
        if any(one.search(secret) for one in self.allowed):
            return None
        return found.start(group), found.end(group), self.name


@cache
def load_rules() -> tuple[GitleaksRule, ...]:
    """Return every rule of rules.json. A pattern is compiled when a text first holds one of its anchors."""
    rows = json.loads(Path(__file__).with_name("rules.json").read_text(encoding="utf-8"))
    return tuple(_rule(row) for row in rows)


def _rule(row: Mapping[str, Any]) -> GitleaksRule:
    anchors, allowed = tuple(row["anchors"]), tuple(row.get("allowed", ()))
    return GitleaksRule(row["id"], row["pattern"], anchors, float(row["entropy"]), row.get("group"), allowed)


def find_issued(ground: CandidateText) -> Iterator[Hit]:
    """Yield the secrets that a rule of gitleaks finds."""
    if not ground.windows:
        return
    lower = ground.joined_lower
    for rule in load_rules():
        for anchor in rule.anchors:
            if anchor in lower:
                yield from _hits(rule, anchor, ground)


def _hits(rule: GitleaksRule, anchor: str, ground: CandidateText) -> Iterator[Hit]:
    seen = 0
    for at in ground.places(anchor):
        if at >= seen and (hit := rule.hit(ground.text, at)) is not None:
            seen = hit[1]
            yield hit


def entropy(text: str) -> float:
    """Return Shannon's entropy of a text in bits per character."""
    counts = Counter(text).values()
    return -sum(n / len(text) * math.log2(n / len(text)) for n in counts)


_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_FREE = r"(?:(?<![A-Za-z0-9_.-])|(?<=\\[nrt]))"


def _token(holds: str, kind: str, rest: str, *, free: str = _FREE) -> tuple[str, str, re.Pattern[str]]:
    return holds, kind, re.compile(f"{free}{rest}(?![A-Za-z0-9_-])")


_ANY, _URL, _HEX, _LOW = "[A-Za-z0-9]", "[A-Za-z0-9_-]", "[0-9a-f]", "[a-z0-9]"
_OPEN = r"(?<![A-Za-z0-9])"

TOKENS = (
    _token("evo_", "evolvable-token", rf"evo_{_URL}{{30,64}}"),
    _token(".", "discord-token", rf"[MNO]{_URL}{{22,29}}\.{_URL}{{6}}\.{_URL}{{27,45}}"),
    _token(":", "telegram-token", rf"\d{{8,10}}:{_URL}{{34,36}}", free=r"(?:(?<![A-Za-z0-9_.-])|(?<=bot))"),
    _token("AZDO", "azure-devops-token", rf"{_ANY}{{70,80}}AZDO{_ANY}{{4}}", free=_OPEN),
    _token("Q~", "azure-secret", r"[A-Za-z0-9_~.]{3}\dQ~[A-Za-z0-9_~.-]{31,34}"),
    _token(".atlasv1.", "terraform-token", rf"{_ANY}{{14}}\.atlasv1\.[A-Za-z0-9_=-]{{20,80}}"),
    _token("_mmk", "maxmind-key", rf"{_ANY}{{6}}_{_ANY}{{29}}_mmk"),
    _token("00D", "salesforce-session", rf"00D{_ANY}{{12,15}}![A-Za-z0-9._]{{80,120}}"),
    _token("s.", "vault-token", rf"s\.{_ANY}{{24}}(?![.(])"),
    _token("|", "facebook-token", rf"\d{{15,16}}\|{_URL}{{27,40}}"),
    _token("tskey-", "tailscale-key", rf"tskey-[a-z]{{3,10}}-{_ANY}{{8,24}}(?:-{_ANY}{{16,64}})?"),
    _token("rnd_", "render-key", rf"rnd_{_ANY}{{20,64}}"),
    _token("access-", "plaid-token", rf"access-(?:production|development|sandbox)-{_UUID}"),
    _token("live_", "mollie-key", rf"live_{_ANY}{{30}}"),
    _token("test_", "mollie-key", rf"test_{_ANY}{{30}}"),
    _token("AQ.", "google-key", rf"AQ\.Ab{_URL}{{40,60}}"),
    _token("sk_", "api-key", rf"sk_{_HEX}{{32,64}}"),
    _token("pa-", "voyage-key", rf"pa-{_URL}{{43}}"),
    _token("fc-", "firecrawl-key", rf"fc-{_HEX}{{32}}"),
    _token("jina_", "jina-key", rf"jina_{_ANY}{{50,70}}"),
    _token("AQVN", "yandex-key", rf"AQVN{_URL}{{35,40}}"),
    _token("sq", "sonar-token", rf"sq[upa]_{_HEX}{{40}}"),
    _token("CCIP", "circleci-token", rf"CCIP(?:AT|RJ)_{_ANY}{{16,30}}_{_HEX}{{40}}"),
    _token("bk", "buildkite-token", rf"bk(?:ua|ct|at|cs|pi)_{_HEX}{{40}}"),
    _token("hca", "honeycomb-key", rf"hca[a-z]{{2}}_{_LOW}{{58}}"),
    _token("ph", "posthog-key", rf"ph[xs]_{_ANY}{{40,60}}"),
    _token("sdk-", "launchdarkly-key", rf"sdk-{_UUID}"),
    _token("api-", "launchdarkly-key", rf"api-{_UUID}"),
    _token("re_", "resend-key", rf"re_{_ANY}{{8}}_{_ANY}{{20,28}}"),
    _token("cs_", "woocommerce-secret", rf"c[sk]_{_HEX}{{40}}"),
    _token("pk_", "clickup-token", r"pk_\d{6,10}_[A-Z0-9]{32}"),
    _token("mdb_sa_sk_", "mongodb-secret", rf"mdb_sa_sk_{_URL}{{36,48}}"),
    _token("cfut_", "cloudflare-key", rf"cfut_{_URL}{{40,60}}"),
    _token("nvapi-", "nvidia-key", rf"nvapi-{_URL}{{40,80}}"),
    _token("csk-", "cerebras-key", rf"csk-{_LOW}{{40,60}}"),
    _token("sk-", "api-key", rf"sk-[a-z]{{2,6}}-{_UUID}"),
    _token("GR1348941", "gitlab-token", rf"GR1348941{_URL}{{20}}"),
    _token("MTA", "discord-token", rf"MT[A-Z]{_URL}{{20,24}}\.{_URL}{{6}}\.{_URL}{{27,45}}"),
    _token("FlyV1 ", "fly-token", r"FlyV1 fm\d_[A-Za-z0-9+/=,_-]{30,2000}"),
    _token("dt0", "dynatrace-token", r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    _token("u+", "pagerduty-key", rf"u\+{_URL}{{18}}"),
    _token("1/", "asana-token", rf"[12]/\d{{15,17}}(?:/\d{{15,17}})?:{_HEX}{{32}}"),
    _token("ATTA", "trello-token", rf"ATTA{_HEX}{{64}}[0-9A-Fa-f]{{8}}"),
    _token("cmVmdGtu", "jfrog-token", rf"cmVmdGtu{_ANY}{{50,60}}"),
    _token("AKCp", "jfrog-key", rf"AKCp{_ANY}{{69}}"),
    _token(":APA91b", "firebase-key", rf"[A-Za-z0-9_-]{{7,24}}:APA91b{_URL}{{100,180}}"),
    _token("-us", "mailchimp-key", rf"{_HEX}{{32}}-us\d{{1,2}}"),
    _token("pat-", "hubspot-token", rf"pat-[a-z]{{2}}\d-{_UUID}"),
    _token("napi_", "neon-key", rf"napi_{_LOW}{{50,70}}"),
    _token("npg_", "neon-password", rf"npg_{_ANY}{{10,24}}"),
    _token("st.", "infisical-token", rf"st\.{_HEX}{{24}}\.{_HEX}{{32}}\.{_HEX}{{32}}"),
    _token("SWMTKN-1-", "docker-swarm-token", rf"SWMTKN-1-{_LOW}{{40,60}}-{_LOW}{{20,30}}"),
    _token("CFPAT-", "contentful-token", rf"CFPAT-{_URL}{{40,50}}"),
    _token("1000.", "zoho-token", rf"1000\.{_HEX}{{32}}\.{_HEX}{{32}}"),
    _token("tgp_v1_", "together-key", rf"tgp_v1_{_URL}{{40,60}}"),
    _token("apify_api_", "apify-token", rf"apify_api_{_ANY}{{30,50}}"),
    _token("e2b_", "e2b-key", rf"e2b_{_HEX}{{40}}"),
    _token("xau_", "xata-key", rf"xau_{_ANY}{{30,60}}"),
    _token("rpa_", "runpod-key", rf"rpa_{_ANY}{{40,60}}"),
    _token("sgp_", "sourcegraph-token", rf"sgp_(?:[a-z0-9]{{8,20}}_)?{_HEX}{{40}}"),
    _token("K00", "backblaze-key", r"K00\d[A-Za-z0-9+/]{27}"),
    _token("v^1.1#", "ebay-token", r"v\^1\.1#[A-Za-z0-9#^+/=]{60,3000}"),
    _token("dG9r", "intercom-token", r"dG9rO[A-Za-z0-9+/]{40,80}={0,2}"),
    _token("gloas-", "gitlab-token", rf"gloas-{_HEX}{{64}}"),
    _token("ctx7sk-", "api-key", rf"ctx7sk-{_UUID}"),
    _token("-api03-", "anthropic-key", rf"sk-ant-api03-{_URL}{{60,120}}"),
    _token("hooks.zapier.com", "zapier-webhook", r"hooks\.zapier\.com/hooks/catch/\d{4,10}/[a-z0-9]{5,12}", free=""),
)
"""What a text must hold, the type, and the whole form."""


def find_tokens(ground: CandidateText) -> Iterator[Hit]:
    """Yield the tokens of exact form in a text."""
    joined = ground.joined
    for holds, kind, pattern in TOKENS:
        if holds in joined:
            for found in ground.find(pattern):
                if is_random(found[0]):
                    yield *found.span(), kind


def is_random(said: str) -> bool:
    """Return whether a text has digits, and letters of both cases or many of one."""
    digits = sum(map(str.isdigit, said))
    mixed = any(map(str.islower, said)) and any(map(str.isupper, said))
    return digits >= 2 and (mixed or len(said) >= 24) and len(set(said)) >= 9 and any(map(str.isalpha, said))


_NOT_CERTAIN = frozenset({"vault-token", "facebook-token", "mollie-key", "voyage-key", "pagerduty-key", "api-key"})
"""Tokens whose form other things can have: what is hidden in a session is not yet a finding in a skill."""

_PLACEHOLDER = re.compile(
    r"example(?![a-z0-9])|your|x{4}|\.\.\.|placeholder|dummy|fake|sample|redacted|changeme|change-me|replace|0{6}|1{6}"
    r"|a{6}|123456|abcdef|abc123|test|mock|foobar|exposed",
    re.IGNORECASE,
)


def find_certain(text: str) -> Iterator[Hit]:
    """Yield the secrets of a text that name themselves, by a beginning or an exact form; placeholders are none."""
    ground = certain_ground(text)
    if not ground.windows:
        return
    anchors = {rule.name: rule.anchors for rule in load_rules()}
    for start, end, kind in find_tokens(ground):
        if kind not in _NOT_CERTAIN and not is_placeholder(text[start:end]):
            yield start, end, kind
    for start, end, kind in find_issued(ground):
        if ground.lower.startswith(anchors[kind], start) and not is_placeholder(text[start:end]):
            yield start, end, kind


def is_placeholder(secret: str) -> bool:
    """Return whether a text stands for a secret, as in an example."""
    return len(set(secret)) < 10 or _PLACEHOLDER.search(secret) is not None

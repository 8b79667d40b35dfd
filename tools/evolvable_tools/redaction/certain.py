"""Find secrets that name themselves: few are missed of what issuers mark, and hardly anything else is blamed."""

import re
from collections.abc import Iterator

from evolvable_tools.redaction.ground import Hit, certain_ground
from evolvable_tools.redaction.issued import issued, rules
from evolvable_tools.redaction.tokens import tokens

_NOT_CERTAIN = frozenset({"vault-token", "facebook-token", "mollie-key", "voyage-key", "pagerduty-key", "api-key"})
"""Tokens whose form other things can have: what is hidden in a session is not yet a finding in a skill."""

_PLACEHOLDER = re.compile(
    r"example(?![a-z0-9])|your|x{4}|\.\.\.|placeholder|dummy|fake|sample|redacted|changeme|change-me|replace|0{6}|1{6}"
    r"|a{6}|123456|abcdef|abc123|test|mock|foobar|exposed",
    re.IGNORECASE,
)


def certain(text: str) -> Iterator[Hit]:
    """Yield the secrets of a text that name themselves, by a beginning or an exact form; placeholders are none."""
    ground = certain_ground(text)
    if not ground.windows:
        return
    anchors = {rule.name: rule.anchors for rule in rules()}
    for start, end, kind in tokens(ground):
        if kind not in _NOT_CERTAIN and not is_placeholder(text[start:end]):
            yield start, end, kind
    for start, end, kind in issued(ground):
        if ground.lower.startswith(anchors[kind], start) and not is_placeholder(text[start:end]):
            yield start, end, kind


def is_placeholder(secret: str) -> bool:
    """Return whether a text stands for a secret, as in an example."""
    return len(set(secret)) < 10 or _PLACEHOLDER.search(secret) is not None

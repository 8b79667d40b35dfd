"""Measure redaction on secrets whose author had not read the rules: forms of public documentation,
in everyday places.

Each line of `fresh.txt` is a text; what stands between « and » is the secret, made up anew by a
fixed seed: `h40` is forty hexadecimal digits, `m20` letters and digits, `a` lower case, `A` upper
case, `d` digits, `b` base64, `u` its form for addresses. A secret is hidden when no eight
characters of its random part are left. Add to the lines, and never change a rule for one of them:
then another set is needed.
"""

import random
import re
import string
import sys
from pathlib import Path

from evolvable_tools.redaction.redactor import Redactor

LEAST = 0.96
LINES = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
"""Texts with a secret each."""

ALPHABETS = {
    "h": "0123456789abcdef",
    "m": string.ascii_letters + string.digits,
    "a": string.ascii_lowercase + string.digits,
    "A": string.ascii_uppercase + string.digits,
    "d": string.digits,
    "b": string.ascii_letters + string.digits + "+/",
    "u": string.ascii_letters + string.digits + "-_",
}
_RANDOM = re.compile(r"\{([hmaAdbu])(\d+)\}")
LEFT = 8
"""Characters of a random part that may not be left together."""


def made(line: str, rng: random.Random) -> tuple[str, list[str]]:
    """Return a text, and the random parts of its secret."""
    before, secret, after = re.split("[«»]", line)
    parts: list[str] = []

    def fill(match: re.Match[str]) -> str:
        parts.append("".join(rng.choices(ALPHABETS[match[1]], k=int(match[2]))))
        return parts[-1]

    filled = _RANDOM.sub(fill, secret)
    kept = list(parts)
    before, after = (_RANDOM.sub(fill, one) for one in (before, after))
    return f"{before}{filled}{after}".replace("\\n", "\n"), kept


def is_hidden(text: str, parts: list[str]) -> bool:
    """Return whether redaction leaves nothing of the parts."""
    left = Redactor().redact(text)[0]
    pieces = (
        part[i : i + LEFT]
        for part in parts
        if len(part) >= LEFT
        for i in range(len(part) - LEFT + 1)
    )
    return not any(piece in left for piece in pieces)


def main() -> int:
    rng = random.Random(16)
    shown = [line for line in LINES if not is_hidden(*made(line, rng))]
    print(*(f"shown: {line}" for line in shown), sep="\n")
    share = 1 - len(shown) / len(LINES)
    print(f"{len(LINES) - len(shown)} of {len(LINES)} hidden ({share:.3f}; at least {LEAST})")
    return int(share < LEAST)


if __name__ == "__main__":
    sys.exit(main())

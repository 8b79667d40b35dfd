"""The one step of a review that needs a mind: asked within the budget, by whoever the settings name."""

from typing import Any

from evolvable_store.storage.proposals import Reviews, Spending
from evolvable_tools.providers.thinker import ProviderError, Request, Thinker
from evolvable_tools.review.budgets import Budget, reserve, settle
from evolvable_tools.review.candidates import SCHEMA
from evolvable_tools.review.packet import INSTRUCTIONS, Packet, plain, shown
from evolvable_tools.sessions.redact import Redactor

MAX_TOKENS = 8_192
"""Of an answer, thoughts included."""


def asked(
    reviews: Reviews, budget: Budget, thinker: Thinker, redactor: Redactor, review: str, day: str, packet: Packet
) -> tuple[dict[str, Any], Spending]:
    """Returns an answer and what it cost, at most. Raises OverBudget before anybody is asked, ProviderError after."""
    # Once more, as it leaves: what the packet was made of was redacted piece by piece.
    data = plain(redactor.redact_value(shown(packet))[0])
    used: list[tuple[int, int]] = []
    request = Request(INSTRUCTIONS, data, SCHEMA, MAX_TOKENS, spent=lambda given, got: used.append((given, got)))
    reserved = reserve(reviews, budget, day, review, thinker, request)
    cost = reserved.most
    try:
        answer = thinker.think(request)
    except ProviderError:
        # Some failures are answers that were paid for; only what is known to have cost less is given back.
        if used:
            settle(reviews, budget, reserved, *map(sum, zip(*used, strict=True)))
        raise
    if used:
        cost = settle(reviews, budget, reserved, *map(sum, zip(*used, strict=True)))
    return answer, cost

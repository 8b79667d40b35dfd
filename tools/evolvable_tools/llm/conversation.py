"""A conversation with tools, over any protocol.

Nothing is asked again here: the caller counts its trials and repeats them.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from evolvable_tools.llm.api_failure import ApiFailure, read_failure
from evolvable_tools.llm.api_model import make_attempt
from evolvable_tools.llm.language_model import ModelAttempt, ProviderError
from evolvable_tools.llm.protocols import (
    ApiAccess,
    ApiRequest,
    ModelTurn,
    ToolUse,
    open_client,
    protocol_of,
    user_message,
)

MAX_RETRY_AFTER = 3_600.0
"""Seconds at most that an API can ask to wait."""

# Statuses of an API that limits requests or is overloaded, for which a wait helps.
_THROTTLED = (429, 503, 529)


@dataclass(frozen=True, slots=True)
class ConversationSettings:
    """The settings of a conversation.

    name: of the model in records. tools: name, description and input_schema of each. timeout:
    seconds for one answer.
    """

    access: ApiAccess
    name: str
    system: str
    prompt: str
    tools: Sequence[Mapping[str, Any]]
    max_tokens: int
    timeout: float


class TurnFailed(Exception):
    """An API gave no answer.

    status: the HTTP status, None without one. retry_after: seconds that the API asks to wait; 0
    when it limits requests without a time, None when it does neither. The text holds no key.
    """

    def __init__(
        self, text: str, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(text)
        self.status, self.retry_after = status, retry_after


class Conversation:
    """A conversation that is opened with its prompt.

    attempts: its requests so far, failed ones too.
    """

    def __init__(self, settings: ConversationSettings) -> None:
        self._settings, self._protocol = settings, protocol_of(settings.access)
        self._messages: list[Any] = [user_message(settings.prompt)]
        self._client: Any = None
        self.attempts: list[ModelAttempt] = []

    async def __aenter__(self) -> Self:
        """Open the connection.

        Raises TurnFailed without a usable key or package, and for an address that is none.
        """
        settings = self._settings
        try:
            self._client = open_client(
                settings.access, settings.timeout, settings.name, asynchronous=True
            )
        except ProviderError as error:
            raise TurnFailed(error.text) from None
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the connection."""
        await self._client.close()

    async def turn(self) -> ModelTurn:
        """Return the next answer.

        Raises TurnFailed. Each attempt is noted, also one that is cancelled.
        """
        began = time.monotonic()
        # The record of a cancelled turn: it was sent, so it may have been charged for.
        outcome, charged, turn = "timeout", True, None
        settings, most = self._settings, self._count_most_tokens()
        request = ApiRequest(settings.system, self._messages, settings.max_tokens, settings.tools)
        try:
            answer = await self._protocol.ask(self._client, request)
            turn = self._protocol.read(answer)
            self._messages += self._protocol.history(answer)
            outcome = "refused to answer" if turn.refused else "answered"
            return turn
        # Each SDK has error classes of its own, and some answers that are none fail elsewhere in
        # it.
        except Exception as error:
            access, turn = settings.access, None
            failure = read_failure(
                error, key=access.key, address=access.url, timeout=settings.timeout
            )
            outcome, charged = failure.outcome, failure.charged
            raise self._make_turn_failure(failure) from None
        finally:
            seconds, number = time.monotonic() - began, len(self.attempts) + 1
            price = settings.access.price
            attempt = make_attempt(
                settings.name, number, outcome, turn, most, price, seconds, charged=charged
            )
            self.attempts.append(attempt)

    def add_results(self, results: Sequence[tuple[ToolUse, str, bool]]) -> None:
        """Give the results of the tools that the last answer uses: each text, and whether it is an
        error.
        """
        self._messages += self._protocol.results(results)

    def _count_most_tokens(self) -> tuple[int, int]:
        """Return the most tokens that the conversation so far and an answer can have."""
        sent = [
            {"role": "system", "content": self._settings.system},
            *self._settings.tools,
            *self._messages,
        ]
        # A token has two bytes or more in every script but rare ones; JSON's escapes only add to
        # them.
        return len(json.dumps(sent, default=str)) // 2 + 500, self._settings.max_tokens

    def _make_turn_failure(self, failure: ApiFailure) -> TurnFailed:
        if failure.status is None:
            return TurnFailed(f"{self._settings.name} {failure.text}")
        wait = min(failure.wait or 0.0, MAX_RETRY_AFTER) if failure.status in _THROTTLED else None
        return TurnFailed(f"{failure.status}: {failure.reason}", failure.status, wait)

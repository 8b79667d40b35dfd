"""A model behind an HTTP API: one question, one policy of attempts, and the record of each."""

import threading
from random import random
from time import monotonic
from typing import Any

from evolvable_tools.llm.api_failure import ApiFailure, hide_key, read_failure
from evolvable_tools.llm.language_model import (
    ModelAttempt,
    ProviderError,
    Request,
    most_tokens,
    parse_answer,
)
from evolvable_tools.llm.protocols import (
    ApiAccess,
    ApiRequest,
    ModelTurn,
    open_client,
    protocol_of,
    user_message,
)

LONGEST_WAIT = 5.0
"""Seconds. Where the API asks for a longer one before the next attempt, there is none."""

# Seconds before the second attempt, if the API names none; it doubles, and varies by half.
_FIRST_WAIT = 0.25
_MILLION = 1_000_000


class ApiModel:
    """A model behind an HTTP API. Its answers are checked against the schema, whatever the API
    promises.

    timeout: seconds for one attempt. attempts: the most for one question. Another one is made only
    if it may help: after a status such as 429 or 500, or without a connection. None of these is
    charged for, so a question is charged for once at most.
    """

    def __init__(self, access: ApiAccess, timeout: float, *, attempts: int) -> None:
        self.name, self.price = access.full_name, access.price
        self._access, self._timeout, self._most = access, timeout, attempts
        self._protocol = protocol_of(access)
        self._client: Any = None
        # `_making` guards the client, which two first questions could open twice; `_closed` ends a
        # wait between attempts.
        self._making, self._closed = threading.Lock(), threading.Event()

    def think(self, request: Request) -> dict[str, Any]:
        """Return the model's answer.

        Raises ProviderError, at once when there is no key or no SDK.
        """
        with self._making:
            self._closed.clear()
            self._client = self._client or open_client(self._access, self._timeout, self.name)
            client = self._client
        turn = self._ask(client, request)
        if turn.refused:
            why = hide_key(turn.why, self._access.key)
            text = f"{self.name} refused to answer{f': {why}' if why else '.'}"
            raise ProviderError(text, "Put it in other words, or choose another model.")
        if turn.cut_off:
            raise ProviderError(
                f"{self.name} was cut off in its answer.", "Choose a model that thinks less."
            )
        return parse_answer([turn.text], request.schema, self.name)

    def close(self) -> None:
        """Close the connections, and wait for no further attempt.

        The next question opens new ones.
        """
        with self._making:
            self._closed.set()
            if self._client is not None:
                self._client.close()
            self._client = None

    def _ask(self, client: Any, request: Request) -> ModelTurn:
        """Return the first answer. Each attempt is reported to the request."""
        api_request = ApiRequest(
            request.instructions,
            [user_message(request.data)],
            request.max_tokens,
            schema=request.schema,
        )
        number = 0
        while True:
            number += 1
            began = monotonic()
            try:
                turn = self._protocol.read(self._protocol.ask(client, api_request))
            # Some answers that are none fail with no error of the SDK's own.
            except Exception as error:
                failure = self._read_failure(error)
            else:
                self._report(request, number, _name_outcome(turn), turn, monotonic() - began)
                return turn
            self._report(
                request, number, failure.outcome, None, monotonic() - began, charged=failure.charged
            )
            if number == self._most or not self._wait(failure, number):
                raise ProviderError(f"{self.name} {failure.text}", failure.hint)

    def _read_failure(self, error: Exception) -> ApiFailure:
        access = self._access
        return read_failure(error, key=access.key, address=access.url, timeout=self._timeout)

    def _wait(self, failure: ApiFailure, number: int) -> bool:
        """Wait before the next attempt. Return whether there is to be one."""
        if not failure.again or failure.wait is None or failure.wait > LONGEST_WAIT:
            return False
        # The factor from .5 to 1.5 keeps clients that were refused together from coming back
        # together.
        seconds = failure.wait or _FIRST_WAIT * 2 ** (number - 1) * (0.5 + random())
        return not self._closed.wait(seconds)

    def _report(
        self,
        request: Request,
        number: int,
        outcome: str,
        turn: ModelTurn | None,
        seconds: float,
        *,
        charged: bool = False,
    ) -> None:
        most = most_tokens(request)
        attempt = make_attempt(
            self.name, number, outcome, turn, most, self.price, seconds, charged=charged
        )
        # A request with `attempted` gets the whole record, which has the tokens and the cost as
        # well.
        if request.attempted is not None:
            request.attempted(attempt)
            return
        if request.spent is not None:
            request.spent(attempt.input_tokens, attempt.output_tokens)
        if request.paid is not None and attempt.cost is not None:
            request.paid(attempt.cost)


def _name_outcome(turn: ModelTurn) -> str:
    """Return the outcome of an attempt that has an answer."""
    if turn.refused:
        return "refused to answer"
    return "was cut off in its answer" if turn.cut_off else "answered"


def make_attempt(
    name: str,
    number: int,
    outcome: str,
    turn: ModelTurn | None,
    most: tuple[int, int],
    price: tuple[float, float] | None,
    seconds: float,
    *,
    charged: bool,
) -> ModelAttempt:
    """Return the record of an attempt.

    turn: the answer, None without one. most: tokens of the question and the answer, where the API
    says none. charged: whether an attempt without a turn may have been charged for.
    """
    reported: tuple[int | None, int | None]
    if turn is not None:
        reported = turn.input_tokens, turn.output_tokens
    else:
        # The tokens of an attempt that may have been charged for are unknown, not 0.
        reported = (None, None) if charged else (0, 0)
    tokens_in, tokens_out = (
        most[at] if count is None else count for at, count in enumerate(reported)
    )
    cost = (tokens_in * price[0] + tokens_out * price[1]) / _MILLION if price is not None else None
    answered_by = turn.by if turn is not None else ""
    is_reported, seconds = None not in reported, round(seconds, 3)
    return ModelAttempt(
        name, number, outcome, answered_by, tokens_in, tokens_out, is_reported, cost, seconds
    )

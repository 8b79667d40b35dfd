"""A thinker as a brain: the Anthropic API, a headless Claude Code or Codex, or any command of the user's."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from evolvable_tools.evolve.brains.brain import Answer, NoAnswer, Question
from evolvable_tools.evolve.brains.prices import Price, together, usage_of
from evolvable_tools.evolve.rollout import Usage
from evolvable_tools.llm import LanguageModel, ProviderError, Request, WrongAnswer
from evolvable_tools.redaction.redactor import Redactor

_TRIES, _BETWEEN = 20, 0.05  # to end a thinker, and seconds between two
_AGAIN = "An answer before this one was not taken, because of this: {}"


class Thinking:
    """Asks a thinker, once more when its answer does not fit the schema.

    Everything that leaves is redacted once more. price: by which tokens are paid, unless the thinker tells what it
    cost. scripted: the thinker only plays a model, and its label says so.
    """

    def __init__(
        self, thinker: LanguageModel, *, redactor: Redactor, price: Price | None = None, scripted: bool = False
    ) -> None:
        self._thinker, self._redactor, self._price = thinker, redactor, price
        self.name = thinker.name
        self.label = "scripted" if scripted else f"real model {thinker.name}"

    async def ask(self, question: Question) -> Answer:
        """Returns the answer with what it cost. Raises NoAnswer.

        Who is cancelled closes the thinker, so that no command goes on thinking for nobody.
        """
        ended: Future[Answer] = Future()

        def run() -> None:
            try:
                ended.set_result(self._asked(question))
            except BaseException as error:  # whoever waits gets it
                ended.set_exception(error)

        # A thread that the end of the process does not wait for.
        threading.Thread(target=run, daemon=True).start()
        waiting = asyncio.wrap_future(ended)
        waiting.add_done_callback(_looked_at)
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            for _ in range(_TRIES):  # a command may just be starting
                self.close()
                if (await asyncio.wait([waiting], timeout=_BETWEEN))[0]:
                    break
            raise

    def close(self) -> None:
        """Ends what the thinker is at, where it can be ended."""
        close = getattr(self._thinker, "close", None)
        if close is not None:
            close()

    def _asked(self, question: Question) -> Answer:
        meter = _Meter(self._price)
        try:
            try:
                value = self._think(question, meter)
            except WrongAnswer as error:
                value = self._think(question, meter, _AGAIN.format(error.text))
        except ProviderError as error:
            raise NoAnswer(str(error), error.hint, meter.usage) from None
        return Answer(value, meter.usage, self.name)

    def _think(self, question: Question, meter: "_Meter", more: str = "") -> dict[str, Any]:
        data, _ = self._redactor.redact_value(question.data)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        instructions = f"{question.instructions}\n\n{more}" if more else question.instructions
        request = Request(instructions, text, question.schema, question.max_tokens, spent=meter.spent, paid=meter.paid)
        with meter.call():
            return self._thinker.think(request)


def _looked_at(ended: "asyncio.Future[Answer]") -> None:
    """Takes note of an error that nobody waits for any more, so that nobody is told of it."""
    if not ended.cancelled():
        ended.exception()


class _Meter:
    """Adds up what the calls for one question cost. A call of which nothing is told counts, at an unknown cost."""

    def __init__(self, price: Price | None) -> None:
        self.usage = Usage()
        self._price = price
        self._tokens: list[tuple[int, int]] = []
        self._told: float | None = None

    def spent(self, given: int, got: int) -> None:
        self._tokens.append((given, got))

    def paid(self, dollars: float) -> None:
        self._told = (self._told or 0.0) + dollars

    @contextmanager
    def call(self) -> Iterator[None]:
        self._tokens, self._told = [], None
        try:
            yield
        finally:
            given, got = (sum(numbers) for numbers in zip(*self._tokens, strict=True)) if self._tokens else (0, 0)
            price = self._price if self._tokens else None
            one = usage_of(given, got, max(1, len(self._tokens)), price, self._told)
            self.usage = together(self.usage, one)

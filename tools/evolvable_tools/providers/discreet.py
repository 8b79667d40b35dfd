"""A thinker that is told no secrets: whatever it is sent goes through a redaction first, once more."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evolvable_tools.providers.thinker import Request, Thinker


class DiscreetThinker:
    """Asks another thinker, whose name it has. redacted: returns a text without its secrets."""

    def __init__(self, thinker: Thinker, redacted: Callable[[str], str]) -> None:
        self._thinker, self._redacted = thinker, redacted
        self.name = thinker.name

    def think(self, request: Request) -> dict[str, Any]:
        """Returns the other's answer. Raises ProviderError."""
        return self._thinker.think(replace(request, data=self._redacted(request.data)))

"""The Anthropic API as a language model, through its own SDK (extra `anthropic`), which takes a second to import."""

import json
from typing import TYPE_CHECKING, Any

from evolvable_tools.llm.api_model import (
    CUT_OFF,
    CUT_OFF_HINT,
    REFUSAL_HINT,
    ApiModel,
    AttemptFailed,
    Completion,
    answering_model,
    load_sdk,
    refusal,
    token_count,
)
from evolvable_tools.llm.language_model import Request

if TYPE_CHECKING:
    from anthropic import Anthropic
    from anthropic.types import TextBlockParam

MODEL = "claude-haiku-5-5"
"""A small model: a question has a few hundred words, and a person waits for the answer."""

ADDRESS = "https://api.anthropic.com"

KEY_HEADER = "x-api-key"


class AnthropicModel(ApiModel):
    """A model of Anthropic's. `timeout` is for one attempt, in seconds; `retries` more are made when it helps.

    The schema is given as such, so the model cannot answer otherwise; what comes back is checked all the same.
    Instructions are marked for the prompt cache, which takes them from some thousand tokens on.
    """

    def __init__(
        self,
        api_key: str | None,
        model: str = MODEL,
        base_url: str | None = None,
        timeout: float = 20.0,
        *,
        retries: int = 1,
        proxy: str | None = None,
        price: tuple[float, float] | None = None,
        name: str = "",
    ) -> None:
        hint = "Set ANTHROPIC_API_KEY, or choose another provider."
        if name:
            hint = f"Give models.{name} of your configuration a key_file or a key_env."
        who, address = f"{name or 'anthropic'}:{model}", base_url or ADDRESS
        super().__init__(
            who, api_key, model, address, timeout, retries=retries, proxy=proxy, price=price, key_hint=hint
        )

    def _connect(self) -> "Anthropic":
        self._check_key()
        client: Anthropic = self._open_sdk("anthropic", "Anthropic", KEY_HEADER)
        return client

    def _complete(self, client: "Anthropic", request: Request) -> Completion:
        """Ask once. Raises AttemptFailed."""
        cached: TextBlockParam = {"type": "text", "text": request.instructions, "cache_control": {"type": "ephemeral"}}
        schema = load_sdk("anthropic", self.name).transform_schema(json.loads(json.dumps(request.schema)))
        try:
            message = client.messages.create(
                model=self._model,
                max_tokens=request.max_tokens,
                system=[cached],
                messages=[{"role": "user", "content": request.data.encode("utf-8", "replace").decode("utf-8")}],
                output_config={"format": {"type": "json_schema", "schema": schema}},
            )
        except Exception as error:  # some answers that are none fail with no error of the SDK's own
            raise self._failed(error) from None
        return self._completion(message)

    def _completion(self, message: Any) -> Completion:
        """Return a whole answer; thoughts before it are passed over. Raises AttemptFailed for what is none."""
        blocks, stop = getattr(message, "content", None), getattr(message, "stop_reason", None)
        usage, fault, hint = getattr(message, "usage", None), "", ""
        if stop == "refusal":
            details = getattr(message, "stop_details", None)
            why = getattr(details, "explanation", None) or getattr(details, "category", None)
            fault, hint = refusal(self._safe(str(why or ""))), REFUSAL_HINT
        elif stop == "max_tokens":
            fault, hint = CUT_OFF, CUT_OFF_HINT
        elif not isinstance(blocks, list):
            text = f"{self.name} answered with something that is no message."
            raise AttemptFailed(text, "Check the address.", "no message", charged=True)
        # What is put into the cache costs a quarter more; what is read from it costs less, and counts the same.
        made, read = (
            token_count(getattr(usage, name, None)) or 0
            for name in ("cache_creation_input_tokens", "cache_read_input_tokens")
        )
        given, got = (token_count(getattr(usage, name, None)) for name in ("input_tokens", "output_tokens"))
        text = "".join(
            str(block.text)
            for block in (blocks if isinstance(blocks, list) else ())
            if getattr(block, "type", "") == "text"
        )
        model = answering_model(message)
        return Completion((text,), model, None if given is None else given + made * 5 // 4 + read, got, fault, hint)

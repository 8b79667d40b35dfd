"""The format of plain lists of messages, as the APIs of Anthropic and OpenAI have them."""

from collections.abc import Iterator, Mapping
from typing import Any

from evolvable_tools.sessions.session import (
    Origin,
    RawPiece,
    as_list,
    as_mapping,
    as_text,
    parse_moment,
    text_of,
)
from evolvable_tools.sessions.transcript_formats import (
    TranscriptFormat,
    parse_arguments,
    split_typed,
    typed_once,
)

_ORIGINS = {origin.value: origin for origin in Origin}


class MessageListFormat(TranscriptFormat):
    """Reads messages one by one.

    A message may say its own origin, which can only make it less believed.
    """

    client = "messages"

    def read(self, record: Mapping[str, Any]) -> Iterator[RawPiece]:
        role = record.get("role")
        if role not in ("user", "assistant", "system", "developer", "tool", "function"):
            return
        content = record.get("content", record.get("text"))
        base = RawPiece(
            "system", Origin.MEMORY, "", parse_moment(record.get("timestamp") or record.get("at"))
        )
        self._learn_session(record, base)
        if role == "assistant":
            self.about.model = as_text(record.get("model")) or self.about.model
            yield from self._read_assistant(record, content, base.copy(model=self.about.model))
        elif role in ("tool", "function"):
            yield self._read_message_result(
                as_text(record.get("tool_call_id")), content, record, base
            )
        elif role == "user":
            yield from typed_once(self._read_user(record, content, base))
        else:
            yield base.copy(text=text_of(content))

    def message_of(self, record: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return record if record.get("role") in ("user", "assistant") else None

    def _read_assistant(
        self, record: Mapping[str, Any], content: object, base: RawPiece
    ) -> Iterator[RawPiece]:
        for block in content if isinstance(content, list) else [content]:
            fields = as_mapping(block)
            if fields.get("type") == "tool_use":
                yield self._read_function_call(fields, fields.get("input"), fields, base)
            elif text := text_of(block):
                yield base.copy(role="assistant", origin=Origin.ASSISTANT, text=text)
        for call in map(as_mapping, as_list(record.get("tool_calls"))):
            function = as_mapping(call.get("function"))
            yield self._read_function_call(call, function.get("arguments"), function, base)

    def _read_function_call(
        self,
        call: Mapping[str, Any],
        arguments: object,
        function: Mapping[str, Any],
        base: RawPiece,
    ) -> RawPiece:
        name = as_text(function.get("name")) or "unknown"
        return self._make_call(
            as_text(call.get("id")), name, parse_arguments("arguments", arguments), base
        )

    def _read_user(
        self, record: Mapping[str, Any], content: object, base: RawPiece
    ) -> Iterator[RawPiece]:
        claimed = _ORIGINS.get(str(record.get("origin")), Origin.USER)
        for block in content if isinstance(content, list) else [content]:
            fields = as_mapping(block)
            if fields.get("type") == "tool_result":
                yield self._read_message_result(
                    as_text(fields.get("tool_use_id")), fields.get("content"), fields, base
                )
            elif claimed is not Origin.USER:
                yield base.copy(origin=claimed, text=text_of(block))
            else:
                yield from self._split_user_text(text_of(block), base)

    def _split_user_text(self, text: str, base: RawPiece) -> Iterator[RawPiece]:
        """Yield the parts of a text in a person's name."""
        yield from split_typed(text, base)

    def _read_message_result(
        self, call: str | None, content: object, fields: Mapping[str, Any], base: RawPiece
    ) -> RawPiece:
        failed = fields.get("is_error") is True
        return self._make_result(
            call, text_of(content), failed, base, unknown=as_text(fields.get("name"))
        )

"""Language models: a question, an answer checked against a schema, and the ways to ask.

Begin with `LanguageModel` and `Request`. A model is behind an API (`AnthropicModel`, `OpenAIModel`) or is a command
of the user (`CommandModel`); `parse_endpoint` and `NamedModels` read which ones a person named. `RedactingModel`
removes secrets from every request once more. No SDK is imported before the first question.
"""

from typing import TYPE_CHECKING

from evolvable_store import late_names

if TYPE_CHECKING:
    from evolvable_tools.llm.anthropic_model import ADDRESS, MODEL, AnthropicModel
    from evolvable_tools.llm.api_model import AnswerTooLarge, host_of, http_client, is_key
    from evolvable_tools.llm.command_model import MAX_OUTPUT, ChildProcesses, CommandModel, ProcessResult, command_of
    from evolvable_tools.llm.conversation import (
        Conversation,
        ConversationSettings,
        ModelTurn,
        ToolUse,
        TurnFailed,
        open_conversation,
    )
    from evolvable_tools.llm.endpoint import (
        MODEL_ROLES,
        PROTOCOLS,
        FallbackModel,
        ModelEndpoint,
        NamedModels,
        check_address,
        check_plain_http,
        is_loopback,
        parse_endpoint,
        parse_endpoints,
        parse_roles,
        read_key_file,
    )
    from evolvable_tools.llm.language_model import (
        LanguageModel,
        ModelAttempt,
        NamedCommand,
        NamedCommands,
        ProviderError,
        RedactingModel,
        Request,
        WrongAnswer,
        instructions_with_schema,
        most_tokens,
        parse_answer,
        parse_json,
        printable_line,
        schema_problem,
    )
    from evolvable_tools.llm.openai_model import STRUCTURED, OpenAIModel
else:
    __getattr__ = late_names(
        __name__,
        {
            "anthropic_model": "ADDRESS AnthropicModel MODEL",
            "api_model": "AnswerTooLarge host_of http_client is_key",
            "command_model": "ChildProcesses CommandModel MAX_OUTPUT ProcessResult command_of",
            "conversation": "Conversation ConversationSettings ModelTurn ToolUse TurnFailed open_conversation",
            "endpoint": (
                "FallbackModel MODEL_ROLES ModelEndpoint NamedModels PROTOCOLS check_address "
                "check_plain_http is_loopback parse_endpoint parse_endpoints parse_roles read_key_file"
            ),
            "language_model": (
                "LanguageModel ModelAttempt NamedCommand NamedCommands ProviderError RedactingModel Request "
                "WrongAnswer instructions_with_schema most_tokens parse_answer parse_json printable_line "
                "schema_problem"
            ),
            "openai_model": "OpenAIModel STRUCTURED",
        },
    )

__all__ = [
    "ADDRESS",
    "AnswerTooLarge",
    "AnthropicModel",
    "ChildProcesses",
    "CommandModel",
    "Conversation",
    "ConversationSettings",
    "FallbackModel",
    "LanguageModel",
    "MAX_OUTPUT",
    "MODEL",
    "MODEL_ROLES",
    "ModelAttempt",
    "ModelEndpoint",
    "ModelTurn",
    "NamedCommand",
    "NamedCommands",
    "NamedModels",
    "OpenAIModel",
    "PROTOCOLS",
    "ProcessResult",
    "ProviderError",
    "RedactingModel",
    "Request",
    "STRUCTURED",
    "ToolUse",
    "TurnFailed",
    "WrongAnswer",
    "check_address",
    "check_plain_http",
    "command_of",
    "host_of",
    "http_client",
    "instructions_with_schema",
    "is_key",
    "is_loopback",
    "most_tokens",
    "open_conversation",
    "parse_answer",
    "parse_endpoint",
    "parse_endpoints",
    "parse_json",
    "parse_roles",
    "printable_line",
    "read_key_file",
    "schema_problem",
]

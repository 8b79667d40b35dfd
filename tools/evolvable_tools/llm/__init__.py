"""Language models: a question, an answer checked against a schema, and the ways to ask.

Begin with `LanguageModel` and `Request`. A model is behind an API (`ApiModel`) or is a
command of the user (`CommandModel`); `parse_endpoint` and `NamedModels` read which ones a person
named. `RedactingModel` removes secrets from every request once more. No SDK is imported
before the first question.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_tools.llm.api_model import ApiModel
    from evolvable_tools.llm.command_model import (
        MAX_OUTPUT,
        ChildProcesses,
        CommandModel,
        ProcessResult,
    )
    from evolvable_tools.llm.conversation import Conversation, ConversationSettings, TurnFailed
    from evolvable_tools.llm.endpoint import (
        MODEL_ROLES,
        FallbackModel,
        ModelEndpoint,
        NamedModels,
        anthropic_endpoint,
        check_plain_http,
        parse_endpoint,
        parse_endpoints,
        parse_roles,
    )
    from evolvable_tools.llm.headless_clients import (
        HEADLESS_COMMANDS,
        command_of,
        headless_environment,
    )
    from evolvable_tools.llm.language_model import (
        LanguageModel,
        ModelAttempt,
        NamedCommand,
        NamedCommands,
        ProviderError,
        RedactingModel,
        Request,
        UnusableModel,
        WrongAnswer,
        instructions_with_schema,
        most_tokens,
        parse_answer,
        parse_json,
        printable_line,
        schema_problem,
    )
    from evolvable_tools.llm.protocols import (
        ANTHROPIC_ADDRESS,
        PROTOCOLS,
        STRUCTURED,
        ApiAccess,
        ModelTurn,
        ToolUse,
        package_of,
    )
    from evolvable_tools.llm.transport import (
        API_KEY,
        BEARER,
        SIGN_IN_HEADERS,
        RequestRules,
        async_http_client,
        http_errors,
        key_header,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "api_model": "ApiModel",
            "command_model": "ChildProcesses CommandModel MAX_OUTPUT ProcessResult",
            "conversation": "Conversation ConversationSettings TurnFailed",
            "endpoint": (
                "FallbackModel MODEL_ROLES ModelEndpoint NamedModels anthropic_endpoint "
                "check_plain_http parse_endpoint parse_endpoints parse_roles"
            ),
            "headless_clients": "HEADLESS_COMMANDS command_of headless_environment",
            "language_model": (
                "LanguageModel ModelAttempt NamedCommand NamedCommands ProviderError "
                "RedactingModel Request UnusableModel WrongAnswer instructions_with_schema "
                "most_tokens "
                "parse_answer parse_json printable_line schema_problem"
            ),
            "protocols": (
                "ANTHROPIC_ADDRESS ApiAccess ModelTurn PROTOCOLS STRUCTURED ToolUse package_of"
            ),
            "transport": (
                "API_KEY BEARER RequestRules SIGN_IN_HEADERS async_http_client http_errors "
                "key_header"
            ),
        },
    )

__all__ = [
    "ANTHROPIC_ADDRESS",
    "API_KEY",
    "ApiAccess",
    "ApiModel",
    "BEARER",
    "ChildProcesses",
    "CommandModel",
    "Conversation",
    "ConversationSettings",
    "FallbackModel",
    "HEADLESS_COMMANDS",
    "LanguageModel",
    "MAX_OUTPUT",
    "MODEL_ROLES",
    "ModelAttempt",
    "ModelEndpoint",
    "ModelTurn",
    "NamedCommand",
    "NamedCommands",
    "NamedModels",
    "PROTOCOLS",
    "ProcessResult",
    "ProviderError",
    "RedactingModel",
    "Request",
    "RequestRules",
    "SIGN_IN_HEADERS",
    "STRUCTURED",
    "ToolUse",
    "TurnFailed",
    "UnusableModel",
    "WrongAnswer",
    "anthropic_endpoint",
    "async_http_client",
    "check_plain_http",
    "command_of",
    "headless_environment",
    "http_errors",
    "instructions_with_schema",
    "key_header",
    "most_tokens",
    "package_of",
    "parse_answer",
    "parse_endpoint",
    "parse_endpoints",
    "parse_json",
    "parse_roles",
    "printable_line",
    "schema_problem",
]

"""Proposer models: submitted answers of the calling agent, models behind an API, headless clients
and commands.
"""

import asyncio
import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Protocol, Self

from evolvable_evolve.evolution.ledger import RunDirectory
from evolvable_evolve.evolution.run_config import HostContext, RunSettings, parse_price
from evolvable_evolve.evolution.task import ModelUsage, Price, add_usage, make_usage
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_tools.llm import (
    CommandModel,
    FallbackModel,
    LanguageModel,
    ModelAttempt,
    ModelEndpoint,
    ProviderError,
    Request,
    WrongAnswer,
    anthropic_endpoint,
    command_of,
    schema_problem,
)
from evolvable_tools.redaction import Redactor

CLIENTS = ("claude", "codex")
"""Clients that are only used as a model, by a command line of ours."""

PROPOSER_ROLES = ("proposers",)
"""The roles in which a proposer model is named."""

JUDGE_ROLES = ("judges", "proposers")
"""The roles in which a judge is named: a proposer model may judge as well."""

CRITIC = "critic"
"""The role for which the person may name other models than those that propose."""


class ModelRole(StrEnum):
    """The role in which a model is asked. Proposer and builder are never asked in one conversation.

    A critic writes what should be different in one trial, for optimizers that rewrite variables by
    such critiques.
    """

    PROPOSER = "proposer"
    CRITIC = "critic"
    BUILDER = "builder"
    JUDGE = "judge"
    PLANNER = "planner"


@dataclass(frozen=True)
class ModelQuestion:
    """One question with all that is needed to answer it.

    instructions: ours, the same for every question of a role. data: redacted JSON with words of
    tasks, tools and models, which no model may obey. schema: JSON schema of the answer, an object.
    max_tokens: of the longest answer.
    """

    role: ModelRole
    instructions: str
    data: Mapping[str, Any]
    schema: Mapping[str, Any]
    max_tokens: int = 16_384

    @cached_property
    def id(self) -> str:
        """The id of the question, from its content: the same question asked again has the
        same id.
        """
        fields = [self.role, self.instructions, self.data, self.schema]
        content = json.dumps(fields, sort_keys=True, ensure_ascii=False)
        return f"{self.role}-{hashlib.sha256(content.encode('utf-8', 'replace')).hexdigest()[:16]}"

    def packet(self) -> dict[str, Any]:
        """Return the question as JSON for a caller that answers it itself."""
        content = {
            "instructions": self.instructions,
            "data": self.data,
            "answer_schema": self.schema,
        }
        return {"question_id": self.id, "role": str(self.role), **content, "how_to_answer": ""}


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """The answer of a proposer model.

    value: fits the schema of the question. usage: its cost, failed attempts included. by: the name
    of the model. attempts: each of a model behind an API; other models report none.
    """

    value: Mapping[str, Any]
    usage: ModelUsage
    by: str
    attempts: tuple[ModelAttempt, ...] = ()


class ProposerModel(Protocol):
    """A model, or a caller in its place, that answers questions.

    `label`: `scripted` or `real model NAME`.
    """

    @property
    def name(self) -> str:
        """The name of the model, which no other model has."""

    @property
    def label(self) -> str:
        """The label of every figure that follows from its answers."""

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return the answer.

        Raises NeedsAnswer where it must be submitted first, NoAnswer where there is none.
        """


class NeedsAnswer(EvolvableError):
    """A question waits for an answer from outside of this process.

    The run stops here and continues with the answer.
    """

    def __init__(self, question: ModelQuestion) -> None:
        hint = "Answer it with evolve_submit; evolve_pending shows it."
        super().__init__(
            f"The run waits for an answer of its {question.role} ({question.id}).", hint
        )
        self.question = question


class NoAnswer(ProviderError):
    """No answer fits the question. usage, attempts: what was spent nevertheless."""

    def __init__(
        self,
        text: str,
        hint: str,
        usage: ModelUsage | None = None,
        attempts: Sequence[ModelAttempt] = (),
    ) -> None:
        super().__init__(text, hint)
        self.usage, self.attempts = usage or ModelUsage(), tuple(attempts)


def check_answer(question: ModelQuestion, value: object, author: str) -> dict[str, Any]:
    """Return an answer that fits the question's schema.

    Raises WrongAnswer that says where it does not.
    """
    try:
        # Mappings become dicts, tuples lists.
        answer = json.loads(json.dumps(value, default=dict))
    except (TypeError, ValueError, RecursionError):
        raise WrongAnswer("The answer is no JSON.", "Answer with one JSON object.", {}) from None
    fault = schema_problem(answer, question.schema)
    if fault or not isinstance(answer, dict):
        hint = "Answer with one JSON object that fits answer_schema."
        raise WrongAnswer(
            f"{author} answered by another schema: {fault or 'it is no object'}.", hint, {}
        )
    return answer


class HandOffModel:
    """A caller in place of a model, whose submitted answers are found by the ids of the questions.

    A question without an answer stops the run, which repeats it when it is driven again.
    find_answer: returns the answer to a question's id, None while there is none. model: the model
    that answers, where the caller names it.
    """

    def __init__(
        self, find_answer: Callable[[str], Mapping[str, Any] | None], model: str = ""
    ) -> None:
        self._find_answer = find_answer
        self.name = f"hand-off:{model}" if model else "hand-off"
        self.label = f"real model {model or 'of the calling agent'}"

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return the submitted answer. Raises NeedsAnswer, WrongAnswer for one that does not fit.

        What the caller spent on it is unknown here: no tokens, one call, no cost.
        """
        answer = self._find_answer(question.id)
        if answer is None:
            raise NeedsAnswer(question)
        value = check_answer(question, answer, self.name)
        return ModelAnswer(value, ModelUsage(calls=1), self.name)


_TRIES, _BETWEEN = 20, 0.05
"""Attempts to end a model, and seconds between two."""

_AGAIN = "An answer before this one was not taken, because of this: {}"


class PromptedModel:
    """A language model, which is asked once more where its answer does not fit the schema.

    All that is sent is redacted once more. price: of tokens, for a model that does not report its
    cost. scripted: whether a script stands in place of a model, which the label then says.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        redactor: Redactor,
        price: Price | None = None,
        scripted: bool = False,
    ) -> None:
        self._model, self._redactor, self._price = model, redactor, price
        self.name = model.name
        self.label = "scripted" if scripted else f"real model {model.name}"

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return the answer with what it cost. Raises NoAnswer.

        When cancelled it closes the model, so that no command goes on without a caller.
        """
        ended: Future[ModelAnswer] = Future()

        def run() -> None:
            try:
                ended.set_result(self._answer(question))
            # It is raised where the answer is awaited.
            except BaseException as error:
                ended.set_exception(error)

        # A thread that the end of the process does not wait for.
        threading.Thread(target=run, daemon=True).start()
        waiting = asyncio.wrap_future(ended)
        # An error that nobody awaits any more is retrieved, so that asyncio does not report it.
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # More than once: a command that is just being started cannot be ended yet.
            for _ in range(_TRIES):
                self.close()
                if (await asyncio.wait([waiting], timeout=_BETWEEN))[0]:
                    break
            raise

    def close(self) -> None:
        """End the model's current call, where it can be ended."""
        close = getattr(self._model, "close", None)
        if close is not None:
            close()

    def _answer(self, question: ModelQuestion) -> ModelAnswer:
        spent = _QuestionSpending(self._price)
        try:
            try:
                value = self._ask_once(question, spent)
            except WrongAnswer as error:
                # With the fault named a model usually corrects its answer. A third try is not paid.
                value = self._ask_once(question, spent, _AGAIN.format(error.text))
        except ProviderError as error:
            raise NoAnswer(str(error), error.hint, spent.usage, spent.attempts) from None
        by = spent.attempts[-1].model if spent.attempts else self.name
        return ModelAnswer(value, spent.usage, by, tuple(spent.attempts))

    def _ask_once(
        self, question: ModelQuestion, spent: "_QuestionSpending", more: str = ""
    ) -> dict[str, Any]:
        """Return the answer of one call, and add its cost to `spent`.

        more: further instructions.
        """
        data, _ = self._redactor.redact_value(question.data)
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
        instructions = f"{question.instructions}\n\n{more}" if more else question.instructions
        role, most = str(question.role), question.max_tokens
        with spent.counting() as callbacks:
            request = Request(instructions, text, question.schema, most, role=role, **callbacks)
            return self._model.think(request)


@dataclass(slots=True)
class _QuestionSpending:
    """The cost of a question so far. price: of tokens, for a model that does not report
    its cost.
    """

    price: Price | None
    usage: ModelUsage = ModelUsage()
    attempts: list[ModelAttempt] = field(default_factory=list)

    @contextlib.contextmanager
    def counting(self) -> Iterator[dict[str, Any]]:
        """Yield the callbacks by which one call reports its cost, and add the reported cost at the
        end.
        """
        tokens, dollars, before = list[tuple[int, int]](), list[float](), len(self.attempts)

        def note_tokens(input_tokens: int, output_tokens: int) -> None:
            tokens.append((input_tokens, output_tokens))

        try:
            yield {"spent": note_tokens, "paid": dollars.append, "attempted": self.attempts.append}
        finally:
            new_attempts = self.attempts[before:]
            for attempt in new_attempts:
                used = make_usage(
                    attempt.input_tokens, attempt.output_tokens, 1, self.price, attempt.cost
                )
                self.usage = add_usage(self.usage, used)
            # Models behind an API report attempts, others tokens or dollars. A call that reports
            # nothing counts as one.
            if tokens or dollars or not new_attempts:
                input_tokens = sum(pair[0] for pair in tokens)
                output_tokens = sum(pair[1] for pair in tokens)
                price, paid = self.price if tokens else None, sum(dollars) if dollars else None
                calls = max(1, len(tokens))
                used = make_usage(input_tokens, output_tokens, calls, price, paid)
                self.usage = add_usage(self.usage, used)


# Long answers of slow models take minutes.
ANSWER_TIMEOUT = 600.0
"""Seconds for one answer of a model."""


@dataclass(frozen=True)
class ModelSpec:
    """A proposer model as plain values: it can be pickled, and is opened where it is asked.

    model_name: `anthropic`, `anthropic:MODEL`, or a name of a model or of a command. folder,
    environment: of a command. price: of tokens, for a model that does not report its cost.
    scripted: whether a script stands in place of a model. command: its argument list. endpoint: of
    a model behind an API. others: asked in this order where it gave no answer. critic: asked in
    that role in place of all these.
    """

    model_name: str
    folder: Path
    environment: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    price: Price | None = None
    scripted: bool = False
    redactor: Redactor = field(default_factory=Redactor, compare=False, repr=False)
    command: tuple[str, ...] = ()
    endpoint: ModelEndpoint | None = None
    others: "tuple[ModelSpec, ...]" = ()
    critic: "ModelSpec | None" = None

    @classmethod
    def from_settings(
        cls,
        model_name: str,
        roles: Sequence[str],
        settings: RunSettings,
        host: HostContext,
        folder: RunDirectory,
    ) -> Self:
        """Return the models that a text names, with commas between them.

        roles: those in which the person may have named a command. Raises InvalidArgument, Refused.
        """
        names = [name.strip() for name in model_name.split(",") if name.strip()] or [""]
        first, *others = (cls._single(name, roles, settings, host, folder) for name in names)
        return replace(first, others=tuple(others))

    @classmethod
    def _single(
        cls,
        model_name: str,
        roles: Sequence[str],
        settings: RunSettings,
        host: HostContext,
        folder: RunDirectory,
    ) -> Self:
        endpoint = find_endpoint(model_name, host)
        api_model = endpoint.model if endpoint is not None else ""
        # The executor's price holds for its own model alone, and the model of a command is unknown.
        same = api_model and settings.executor.get("model", api_model) == api_model
        spec = cls(
            model_name,
            folder.path.parents[1],
            tuple(sorted(host.environment.items())),
            parse_price(settings.executor) if same else None,
            bool(settings.executor.get("scripted")),
            host.redactor,
            () if api_model else command_words(model_name, roles, host),
            endpoint,
        )
        # `name` opens the model, so a wrong command is found now.
        if not spec.name:
            raise InvalidArgument(
                "No model is named.", "It is handoff, anthropic[:MODEL], or a name."
            )
        return spec

    @property
    def tries(self) -> int:
        """The number of models that may bill one question."""
        return 1 + len(self.others)

    @property
    def name(self) -> str:
        """The name of the model, which no other model has."""
        return _open_model(self).name

    @property
    def label(self) -> str:
        """The label of every figure that follows from its answers."""
        return _open_model(self).label

    async def ask(self, question: ModelQuestion) -> ModelAnswer:
        """Return the answer with what it cost. Raises NoAnswer."""
        chosen = self.critic if self.critic is not None and str(question.role) == CRITIC else self
        return await _open_model(chosen).ask(question)


# A run has at most a proposer, a critic and a judge, and asks them in turns.
@lru_cache(maxsize=4)
def _open_model(spec: ModelSpec) -> PromptedModel:
    """Open a model, once in a process, so that its connections are used again.

    Raises InvalidArgument.
    """
    models = [_open_language_model(member) for member in (spec, *spec.others)]
    model = FallbackModel(models) if spec.others else models[0]
    # One price cannot hold for several models.
    price = None if spec.others else spec.price
    return PromptedModel(model, redactor=spec.redactor, price=price, scripted=spec.scripted)


def _open_language_model(spec: ModelSpec) -> LanguageModel:
    if spec.endpoint is not None:
        return spec.endpoint.open(ANSWER_TIMEOUT)
    return CommandModel(
        spec.command, ANSWER_TIMEOUT, folder=spec.folder, environment=dict(spec.environment)
    )


def find_endpoint(model_name: str, host: HostContext) -> ModelEndpoint | None:
    """Return the model behind an API that a text names, None for a command.

    Raises InvalidArgument, Refused.
    """
    if host.models is not None and model_name in host.models.endpoints:
        return host.models.resolve(model_name)
    kind, _, model = model_name.partition(":")
    if kind != "anthropic":
        return None
    return anthropic_endpoint(host.key, model, host.address, host.proxy)


def named_model(
    model_name: str, host: HostContext, folder: Path, roles: Sequence[str] = PROPOSER_ROLES
) -> ModelSpec:
    """Return a model that is asked outside of a run.

    folder: where a command works. roles: those in which commands are named. Raises InvalidArgument
    for a hand-off, Refused for a command that the person did not name.
    """
    if model_name.partition(":")[0] == "handoff" or not model_name:
        raise InvalidArgument(
            "A hand-off cannot answer here.",
            "Name anthropic[:MODEL], claude, codex, a model or a proposer.",
        )
    endpoint = find_endpoint(model_name, host)
    words = () if endpoint is not None else command_words(model_name, roles, host)
    environment = tuple(sorted(host.environment.items()))
    return ModelSpec(
        model_name, folder, environment, redactor=host.redactor, command=words, endpoint=endpoint
    )


def make_proposer_model(
    settings: RunSettings, host: HostContext, folder: RunDirectory
) -> "HandOffModel | ModelSpec":
    """Return the proposer model: submitted answers, models behind an API, or commands.

    Raises InvalidArgument, Refused.
    """
    kind, _, model = settings.brain.partition(":")
    if kind == "handoff":
        return HandOffModel(folder.answer, model)
    spec = ModelSpec.from_settings(settings.brain, PROPOSER_ROLES, settings, host, folder)
    if critics := ",".join(host.answering(CRITIC)):
        critic = ModelSpec.from_settings(critics, PROPOSER_ROLES, settings, host, folder)
        spec = replace(spec, critic=critic)
    return spec


def command_words(model_name: str, roles: Sequence[str], host: HostContext) -> tuple[str, ...]:
    """Return the argument list of a client that only answers, or of a command named in one of these
    roles.

    Raises Refused, InvalidArgument.
    """
    if host.commands is None or model_name in CLIENTS:
        return command_of(model_name)
    role = next((role for role in roles if model_name in host.commands[role].commands), roles[0])
    return host.commands[role].get(model_name).words

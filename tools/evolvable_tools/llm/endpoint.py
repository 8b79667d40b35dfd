"""A model that a person named: its protocol, address, name and price, and where its key is."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from evolvable_store import regular_file
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.llm.api_model import ApiModel
from evolvable_tools.llm.language_model import (
    LanguageModel,
    ModelAttempt,
    ProviderError,
    Request,
    WrongAnswer,
    most_tokens,
)
from evolvable_tools.llm.protocols import ANTHROPIC, PROTOCOLS, STRUCTURED, ApiAccess
from evolvable_tools.llm.transport import host_of, is_key, is_loopback

# With this name an answer costs little and comes soon; a person who wants another model names it.
MODEL = "claude-haiku-5-5"
"""A small model: a question has a few hundred words, and a person waits for the answer."""

MODEL_ROLES = ("judge", "reviewer", "proposer", "critic", "executor")
"""The roles for which a person says which models answer, in order."""

# Far more than any key; reading stops here if the path is not a file of a key.
MAX_KEY_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class ModelEndpoint(ApiAccess):
    """A named model.

    key_file, key_env: where its key is; without either it needs none. timeout: seconds for an
    answer, None for the caller's default. attempts: to get an answer.
    """

    key_file: str = ""
    key_env: str = ""
    timeout: float | None = None
    attempts: int = 3

    def to_table(self) -> dict[str, Any]:
        """Return the endpoint as the configuration holds it, without settings that have their
        default.
        """
        usual = ModelEndpoint(self.name, self.protocol, self.model)
        table: dict[str, Any] = {"protocol": self.protocol, "model": self.model}
        for key in _OPTIONAL:
            if (value := getattr(self, key)) != getattr(usual, key):
                table[key] = list(value) if isinstance(value, tuple) else value
        return table

    def open(self, timeout: float) -> ApiModel:
        """Return the language model.

        timeout: seconds for an answer, where the endpoint says none.
        """
        return ApiModel(self, self.timeout or timeout, attempts=self.attempts)


def anthropic_endpoint(
    key: str | None, model: str = "", address: str | None = None, proxy: str | None = None
) -> ModelEndpoint:
    """Return the model of Anthropic's that is asked with the account's key, by default
    a small one.
    """
    key = (key or "").strip()
    return ModelEndpoint(
        ANTHROPIC, ANTHROPIC, model or MODEL, address or "", key=key, proxy=proxy, attempts=2
    )


_OPTIONAL = ("address", "key_file", "key_env", "price", "timeout", "attempts", "structured")


def parse_endpoint(name: str, table: Mapping[str, Any]) -> ModelEndpoint:
    """Return the endpoint that a table of the configuration describes.

    Raises ValueError, which says what is wrong.
    """
    # Configurations are shared and committed, so a key in one is refused and not just ignored.
    if "key" in table or "api_key" in table:
        raise ValueError(
            "the configuration holds no keys: name a file (key_file) or a variable (key_env)"
        )
    if unknown := sorted(set(table) - {"protocol", "model", *_OPTIONAL}):
        raise ValueError(f"it has no setting {unknown[0][:40]!r}")
    texts = {
        key: table.get(key, "") for key in ("protocol", "model", "address", "key_file", "key_env")
    }
    for key, value in texts.items():
        if not isinstance(value, str) or not value.isprintable():
            raise ValueError(f"{key} is no text")
    if texts["protocol"] not in PROTOCOLS:
        raise ValueError(
            f"protocol is {texts['protocol'][:40]!r}, and must be one of {', '.join(PROTOCOLS)}"
        )
    if not texts["model"]:
        raise ValueError("model is missing: the name that the endpoint knows the model by")
    if texts["key_file"] and texts["key_env"]:
        raise ValueError("key_file and key_env are both given; one is enough")
    if texts["key_file"] and not Path(texts["key_file"]).expanduser().is_absolute():
        raise ValueError("key_file is no whole path")
    if texts["address"]:
        check_address(texts["address"])
    structured = table.get("structured", "schema")
    if structured not in STRUCTURED:
        raise ValueError(f"structured must be one of {', '.join(STRUCTURED)}")
    timeout = table.get("timeout")
    return ModelEndpoint(
        name,
        **texts,
        price=_parse_price(table.get("price")),
        timeout=None if timeout is None else _parse_number(timeout, "timeout", 1, 3600),
        attempts=int(_parse_number(table.get("attempts", 3), "attempts", 1, 10)),
        structured=structured,
    )


def parse_endpoints(
    tables: Mapping[str, Mapping[str, Any]], command_roles: Mapping[str, str]
) -> dict[str, ModelEndpoint]:
    """Return the endpoints that tables of the configuration describe, by name.

    command_roles: names of commands, with their roles. Raises ValueError, which says what is wrong.
    """
    endpoints: dict[str, ModelEndpoint] = {}
    for name, table in tables.items():
        if name in command_roles:
            raise ValueError(f"{name!r} names both a model and one of {command_roles[name]}")
        try:
            endpoints[name] = parse_endpoint(name, table)
        except ValueError as error:
            raise ValueError(f"models.{name}: {error}") from None
    return endpoints


def parse_roles(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return who answers in which role, in order. Raises ValueError, which says what is wrong."""
    roles: dict[str, tuple[str, ...]] = {}
    for role, names in table.items():
        if role not in MODEL_ROLES:
            raise ValueError(f"roles.{role} is no role; there is {', '.join(MODEL_ROLES)}")
        name_list = [names] if isinstance(names, str) else names
        if not isinstance(name_list, list) or not name_list:
            raise ValueError(f"roles.{role} is no list of names")
        if not all(isinstance(name, str) and name for name in name_list):
            raise ValueError(f"roles.{role} is no list of names")
        if any("," in name for name in name_list):
            raise ValueError(f"roles.{role} has a name with a comma")
        roles[role] = tuple(name_list)
    return roles


def check_address(address: str) -> None:
    """Raise ValueError for what is no address of a model: http or https, a host, and nothing that
    may be a secret.
    """
    try:
        parts = urlsplit(address)
        # `port` raises ValueError for one that is no number or is out of range.
        _ = parts.port
    except ValueError:
        raise ValueError("address cannot be parsed") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("address does not begin with http:// or https:// and a host")
    if "@" in address or parts.query or parts.fragment:
        raise ValueError(
            "address holds more than a host and a path; a key or password belongs into key_file"
        )


def _parse_price(value: object) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ValueError("price is two numbers: US dollars of a million tokens in and out")
    return _parse_number(value[0], "price", 0, 1e6), _parse_number(value[1], "price", 0, 1e6)


def _parse_number(value: object, what: str, least: float, most: float) -> float:
    # True and False are ints in Python.
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{what} is no number from {least:g} to {most:g}")
    return float(value)


@dataclass(frozen=True)
class NamedModels:
    """The models and the roles that a person named.

    roles: for each role who answers, in order. variables: values of the variables that the
    endpoints take keys from. proxy: for addresses that are not of this machine.
    """

    endpoints: Mapping[str, ModelEndpoint] = field(default_factory=dict)
    roles: Mapping[str, Sequence[str]] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    proxy: str | None = field(default=None, repr=False)

    def resolve(self, name: str) -> ModelEndpoint:
        """Return the endpoint of this name, with its key and proxy.

        Raises InvalidArgument when there is no model of this name, or its key cannot be read.
        Raises Refused when others can read or write the file of the key.
        """
        endpoint = self.endpoints.get(name)
        if endpoint is None:
            names = ", ".join(sorted(self.endpoints)) or "none"
            hint = f"A person adds it: evolvable role model add. Those named: {names}."
            raise InvalidArgument(f"No model is named {ascii(name[:80])}.", hint)
        return replace(endpoint, key=self._read_key(endpoint), proxy=self.proxy)

    def _read_key(self, endpoint: ModelEndpoint) -> str:
        if endpoint.key_file:
            return read_key_file(Path(endpoint.key_file).expanduser(), f"model {endpoint.name}")
        if not endpoint.key_env:
            return ""
        key = self.variables.get(endpoint.key_env, "").strip()
        if not is_key(key):
            what = "is not set" if not key else "holds no key"
            raise InvalidArgument(
                f"{endpoint.key_env}, the variable of the key of model {endpoint.name}, {what}.",
                "Set it.",
            )
        return key


def read_key_file(path: Path, owner: str) -> str:
    """Return the key in a file of the person.

    Raises InvalidArgument, Refused when others can read or write it.
    """
    hint = f"Write the key into it, and run: chmod 600 {path}"
    try:
        # Opened as a regular file, and checked by its descriptor: a file put in its place
        # afterwards is not read.
        with open(path, "rb", opener=regular_file) as file:
            _check_private(path, os.fstat(file.fileno()))
            key = file.read(MAX_KEY_BYTES + 1).decode("ascii").strip()
    except OSError as error:
        # `from None`: the exceptions may show bytes of the file.
        raise InvalidArgument(
            f"{path}, the key of {owner}, cannot be read: {error.strerror}.", hint
        ) from None
    except UnicodeDecodeError:
        key = ""
    if not is_key(key) or len(key) > MAX_KEY_BYTES:
        raise InvalidArgument(f"{path}, the key of {owner}, holds no key.", hint)
    return key


def _check_private(path: Path, status: os.stat_result) -> None:
    if os.name != "posix":
        return
    # root may own it, as in a container or with a mounted secret.
    if status.st_uid not in (os.geteuid(), 0):
        raise Refused(
            f"{path} belongs to user {status.st_uid}, not to this account.",
            "Use a file of your own.",
        )
    if status.st_mode & 0o077:
        raise Refused(
            f"{path} holds a key, and other accounts can read it.", f"Run: chmod 600 {path}"
        )


class FallbackModel:
    """Several language models as one: the first is asked, and each next one where those before gave
    no answer.

    An answer by another schema is an answer; its caller asks again. The last attempt that is
    reported names the model that answered: a model that reports none itself, such as a command,
    gets one. tries: how often a question may be charged for.
    """

    def __init__(self, models: Sequence[LanguageModel]) -> None:
        self._models = list(models)
        self.name = " | ".join(model.name for model in self._models)
        self.tries = sum(getattr(model, "tries", 1) for model in self._models)
        self.beyond = max(getattr(model, "beyond", 0) for model in self._models)
        prices = [getattr(model, "price", None) for model in self._models]
        known_prices = [price for price in prices if price is not None]
        self.price: tuple[float, float] | None = None
        # Unknown if the price of one is. The highest, since nothing says which one will answer.
        if len(known_prices) == len(prices):
            prices_in, prices_out = zip(*known_prices, strict=True)
            self.price = max(prices_in), max(prices_out)

    def think(self, request: Request) -> dict[str, Any]:
        """Return the first answer. Raises ProviderError with the reason of each."""
        failures: list[ProviderError] = []
        for model in self._models:
            try:
                return _ask_reporting(model, request)
            except WrongAnswer:
                # A WrongAnswer is an answer that was charged for, and the caller asks again.
                raise
            except ProviderError as error:
                failures.append(error)
        text = " ".join(failure.text for failure in failures)
        raise ProviderError(text, failures[-1].hint)

    def close(self) -> None:
        """Close those that can be closed."""
        for model in self._models:
            close = getattr(model, "close", None)
            if close is not None:
                close()


def _ask_reporting(model: LanguageModel, request: Request) -> dict[str, Any]:
    """Return a model's answer.

    Where it reports no attempt, report one made of the tokens and the money that it names.
    """
    report = request.attempted
    if report is None:
        return model.think(request)
    attempts: list[ModelAttempt] = []
    tokens, dollars = list[tuple[int, int]](), list[float]()

    def note_tokens(tokens_in: int, tokens_out: int) -> None:
        tokens.append((tokens_in, tokens_out))

    # What the report says if `think` raises another error.
    outcome, began = "no answer", monotonic()
    try:
        answer = model.think(
            replace(request, attempted=attempts.append, spent=note_tokens, paid=dollars.append)
        )
        outcome = "answered"
        return answer
    except WrongAnswer:
        outcome = "answered"
        raise
    finally:
        for attempt in attempts:
            report(attempt)
        if not attempts:
            tokens_in, tokens_out = (sum(each[at] for each in tokens) for at in (0, 1))
            if not tokens:
                tokens_in, tokens_out = most_tokens(request, getattr(model, "beyond", 0))
            cost = sum(dollars) if dollars else None
            is_reported, seconds = bool(tokens), round(monotonic() - began, 3)
            attempt = ModelAttempt(
                model.name, 1, outcome, "", tokens_in, tokens_out, is_reported, cost, seconds
            )
            report(attempt)


def check_plain_http(endpoint: ModelEndpoint) -> str:
    """Return a warning when a key would cross a network in clear, else ''."""
    is_plain = endpoint.url.startswith("http://") and not is_loopback(endpoint.url)
    if is_plain and (endpoint.key_file or endpoint.key_env):
        return f"the key of {endpoint.name} goes to {host_of(endpoint.url)} unencrypted (http)"
    return ""

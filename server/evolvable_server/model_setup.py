"""Make the objects that the settings choose: search models, reviewer, redaction, approval policies,
named commands.
"""

import contextlib
import functools
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evolvable_server.config import (
    EMBEDDER,
    REVIEW_BUDGET,
    REVIEW_POLICY,
    Config,
    file_status,
    model_command_environment,
    model_environment,
    read_machine,
)
from evolvable_server.learning_consent import may_teach
from evolvable_server.person_config import NOBODY, ROLES, account_home
from evolvable_store import CONFIGURATION, read_regular, regular_file, work_tree
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.embedding import installed_spec, model_folder
from evolvable_tools.llm import NamedCommand, NamedCommands
from evolvable_tools.retrieval import SearchDependencies

if TYPE_CHECKING:
    from evolvable_store.resource import Kind
    from evolvable_tools import ApprovalPolicy
    from evolvable_tools.embedding import SharedEmbedder
    from evolvable_tools.llm import (
        ApiModel,
        CommandModel,
        FallbackModel,
        NamedModels,
        UnusableModel,
    )
    from evolvable_tools.redaction import Redactor, UserPatterns
    from evolvable_tools.review import ReviewBudget, ReviewSettings

# Start time: only what the settings choose is imported.


def named_commands(config: Config, *, person: bool = False) -> dict[str, NamedCommands]:
    """Return the named commands by role.

    person: whether the hint about a missing name is for a person at a terminal.
    """
    return {role: commands_of_role(config, role, person=person) for role in ROLES}


def commands_of_role(config: Config, role: str, *, person: bool = False) -> NamedCommands:
    """Return the named commands of one role."""
    word = role.removesuffix("s")
    hint = "A person registers it by a name."
    if person:
        hint = f"Name it first: evolvable role {word} add NAME -- COMMAND."
    entries = config.person.commands.get(role, {})
    commands = {
        name: NamedCommand(name, entry.argv, entry.folder, entry.agents)
        for name, entry in entries.items()
    }
    return NamedCommands(word, commands, hint)


if TYPE_CHECKING:
    AnyModel = ApiModel | CommandModel | FallbackModel | UnusableModel

ANSWER_SECONDS = 20.0
"""Seconds for an answer of a model that a person waits for."""

OURS = ("auto", *NOBODY)
"""Settings of the judge for which this process asks no model, whatever keys are set."""


@contextlib.contextmanager
def open_search(config: Config, *, serving: bool = False) -> Iterator[SearchDependencies]:
    """Yield the models of a lookup; none is started or loaded before it is asked.

    serving: whether an agent calls, whose client may lend its model. Otherwise a person does, whose
    command must not change the model of the server. Raise InvalidArgument for a setting that names
    no model.
    """
    embedder, judge_model = make_embedder(config, propose=serving), make_judge(config)
    try:
        yield SearchDependencies(embedder, judge_model, serving and config.judge == "auto")
    finally:
        for model in (embedder, judge_model):
            if model is not None:
                model.close()


def make_embedder(config: Config, *, propose: bool) -> "SharedEmbedder | None":
    """Return the embedder that the settings name, by default the one that is installed."""
    spec = installed_spec() if config.embedder == "auto" else config.embedder
    if spec is None or spec == "off":
        return None
    from evolvable_tools.embedding import SharedEmbedder

    check_model_folder(config, spec)
    environment = hub_environment(config, os.environ)
    with naming_source(EMBEDDER):
        return SharedEmbedder(config.home, spec, propose=propose, environment=environment)


def check_model_folder(config: Config, spec: str) -> None:
    """Raise Refused for a folder that a project may have named: one in a work tree that the person
    did not list.

    Raise InvalidArgument for a spec that names no embedder.
    """
    own_folders = [Path(path).expanduser().resolve() for path in config.person.embedders]
    with naming_source(EMBEDDER):
        folder = model_folder(spec)
    tree = work_tree(folder.resolve()) if folder else None
    if folder is not None and tree is not None and folder.resolve() not in own_folders:
        raise Refused(
            f"{EMBEDDER}: {folder} lies in the work tree {tree}, so a repository may "
            "have named it.",
            f"If the model is yours, add {str(folder.resolve())!r} to the list `embedders` in "
            f"{CONFIGURATION}.",
        )


def hub_environment(config: Config, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a download from the hub.

    The hub's address and the proxy are those of the person's configuration.
    """
    variables = model_environment(config, environment)
    variables.pop("HF_ENDPOINT", None)
    if address := config.person.models.get("huggingface"):
        variables["HF_ENDPOINT"] = address
    return variables


def named_models(config: Config) -> "NamedModels":
    """Return the models that the person named, and who answers in which role."""
    from evolvable_tools.llm import NamedModels

    person = config.person
    roles = {role: person.models_of_role(role) for role in person.model_roles}
    return NamedModels(person.endpoints, roles, config.key_variables, person.models.get("proxy"))


def make_judge(config: Config) -> "AnyModel | None":
    """Return who judges: models behind an API or commands, where the settings name any.

    A model whose key cannot be read fails when it is asked, since a search does without a judge.
    Raise Refused for a command that the person did not name, InvalidArgument for an unknown name.
    """
    if config.judge in OURS:
        return None
    return _make_model(config, config.judge, "judges", "The role judge", may_lack_key=True)


def _make_model(
    config: Config,
    setting: str,
    role: str,
    source: str,
    *,
    may_lack_key: bool = False,
    **options: Any,
) -> "AnyModel":
    """Return the model that a setting names.

    It is a named model, the Anthropic API, a client that only answers, or a command that the person
    named. Of several, with commas between them, each is asked where those before gave no answer.
    role, source: the table of commands, and the setting in messages. may_lack_key: whether a key
    that cannot be read makes a model that gives no answer; else raise InvalidArgument or Refused.
    options: of all models. Raise Refused for any other setting.
    """
    from evolvable_tools.llm import (
        HEADLESS_COMMANDS,
        CommandModel,
        FallbackModel,
        UnusableModel,
        anthropic_endpoint,
        headless_environment,
    )

    if "," in setting:
        names = [name.strip() for name in setting.split(",") if name.strip()]
        options["may_lack_key"] = may_lack_key
        return FallbackModel([_make_model(config, name, role, source, **options) for name in names])
    timeout = options.get("timeout", ANSWER_SECONDS)
    if setting in config.person.endpoints:
        try:
            with naming_source(source):
                return named_models(config).resolve(setting).open(timeout)
        except (InvalidArgument, Refused) as error:
            if not may_lack_key:
                raise
            return UnusableModel(setting, error)
    provider, _, model = setting.partition(":")
    if provider == "anthropic":
        proxy = config.person.models.get("proxy")
        endpoint = anthropic_endpoint(config.api_key, model, config.api_url, proxy)
        return endpoint.open(timeout)
    with naming_source(source):
        role_commands = commands_of_role(config, role, person=True)
        # A command that the person named counts before a client of the same name.
        is_own = setting in role_commands.commands or setting not in HEADLESS_COMMANDS
        command = role_commands.get(setting).words if is_own else HEADLESS_COMMANDS[setting]
        environment = {**model_command_environment(config), **headless_environment(command)}
        if setting == "codex" and not is_own:
            # Before the last word, which says where the question comes from.
            command = (*command[:-1], *codex_model_options(config), command[-1])
        # The library's folder, which has no instructions of a project in it.
        folder = config.home if config.home.is_dir() else None
        return CommandModel(command, folder=folder, environment=environment, **options)


CODEX_KEYS = ("model", "model_provider", "model_reasoning_effort")
"""The keys of Codex's configuration that choose the model.

Its servers, hooks and rules stay out of a question.
"""


def codex_model_options(config: Config) -> list[str]:
    """Return the options by which Codex asks the model and provider of the person's own Codex, []
    for its defaults.

    Read from the account's file alone: a project may set CODEX_HOME, and does not decide where a
    transcript goes.
    """
    home = config.person.clients.get("codex")
    if home is None:
        if (account := account_home()) is None:
            return []
        home = account / ".codex"
    import tomllib  # start time: only a question to Codex needs it

    try:
        table = tomllib.loads(read_regular(home / "config.toml", MAX_BOOT).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return []
    chosen: dict[str, Any] = {
        key: value for key in CODEX_KEYS if isinstance(value := table.get(key), str)
    }
    provider, providers = str(chosen.get("model_provider", "")), table.get("model_providers")
    provider_table = providers.get(provider) if isinstance(providers, dict) else None
    # The name becomes a part of the key of an option.
    if isinstance(provider_table, dict) and re.fullmatch(r"[A-Za-z0-9_-]{1,60}", provider):
        # Tables, such as headers with keys, stay out.
        plain = {
            key: value
            for key, value in provider_table.items()
            if isinstance(value, str | int | bool)
        }
        chosen |= {f"model_providers.{provider}.{key}": value for key, value in plain.items()}
    options = list[str]()
    for key, value in chosen.items():
        # Texts, numbers and booleans of JSON are values of TOML too.
        options += ["--config", f"{key}={json.dumps(value)}"]
    return options


@contextlib.contextmanager
def naming_source(source: str) -> Iterator[None]:
    """Add the source of a setting to the error that its value raises."""
    try:
        yield
    except (InvalidArgument, Refused) as error:
        raise type(error)(f"{source}: {error}", error.hint) from None


FILE = "redact.txt"
"""The file in the library's folder with the person's own patterns."""

MAX_BYTES = 1_000_000
"""Bytes of that file that are read."""

log = logging.getLogger(__name__)


class Redaction:
    """The redactor of one library, with the present patterns of its file. Safe from any thread.

    A file that cannot be read and a line that cannot be used are logged; the others count.
    """

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        # Guards the next two: several threads ask, and the patterns are compiled once.
        self._lock = threading.Lock()
        self._status: object = None
        self._redactor: Redactor | None = None

    def redactor(self) -> "Redactor":
        """Return the redactor; another one when the file was changed."""
        status = file_status(self._path)
        with self._lock:
            if self._redactor is None or status != self._status:
                from evolvable_tools.redaction import Redactor  # late: it takes a while to compile

                own, problems = own_patterns(self._path.parent)
                for problem in problems:
                    log.warning("%s", problem)
                self._redactor, self._status = Redactor(own), status
            return self._redactor


def own_patterns(home: Path) -> "tuple[UserPatterns, list[str]]":
    """Return the person's own patterns, none without the file, and its problems by line."""
    from evolvable_tools.redaction import UserPatterns, read_patterns

    path = home / FILE
    try:
        with open(path, "rb", opener=regular_file) as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"it has more than {MAX_BYTES:,} bytes")
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        return UserPatterns(), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"{path}, line {line}: it is not UTF-8; none of your patterns is used."
        return UserPatterns(), [problem]
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        return UserPatterns(), [f"{path} cannot be read: {why}; none of your patterns is used."]
    return read_patterns(text.splitlines(), str(path))


TIMEOUT = 180.0
"""Seconds for an answer about a whole session."""

BOOT_FILES = ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", ".claude/CLAUDE.md")
"""The files of a project that clients read at their start."""

MAX_BOOT = 200_000
"""Bytes of one such file, and of Codex's configuration, that are read."""


@contextlib.contextmanager
def review_settings(config: Config) -> Iterator["ReviewSettings"]:
    """Yield the settings of reviews. Raise InvalidArgument for a setting that names no model."""
    # Late: a server answers its first question without them.
    from evolvable_server.clients import strip_block
    from evolvable_tools.review import ReviewSettings
    from evolvable_tools.sessions import find_transcript

    _, _, budget = budget_limits(config)
    machine = read_machine(config.project)
    own = [machine.user / ".claude/CLAUDE.md", machine.codex / "AGENTS.md"]
    if machine.claude is not None:
        own.append(machine.claude / "CLAUDE.md")
    reviewer_model = None
    # `off` asks nobody and `handoff` the calling agent: neither needs a model.
    if config.review not in ("off", "handoff"):
        reviewer_model = _make_model(
            config, config.review, "reviewers", "The role reviewer", timeout=TIMEOUT
        )

    def boot(project: str | None) -> tuple[str, ...]:
        in_project = [Path(project) / name for name in BOOT_FILES] if project else []
        # Without our own block: it holds memories, which a proposal may repeat.
        texts = (strip_block(_read_boot_file(path)) for path in (*in_project, *own))
        return tuple(filter(None, texts))

    try:
        yield ReviewSettings(
            Redaction(config.home).redactor(),
            config.review != "off",
            reviewer_model,
            budget,
            approval_policies(config),
            boot,
            lambda session: find_transcript(machine.transcripts, session),
            machine.user,
            lambda path: may_teach(config, path),
        )
    finally:
        if reviewer_model is not None:
            reviewer_model.close()


@contextlib.contextmanager
def proposer_settings(config: Config, proposer: str | None) -> Iterator["ReviewSettings"]:
    """Yield the settings of reviews with another model: the proposer model that is named.

    Raise InvalidArgument, Refused for a command that the person did not name.
    """
    with review_settings(config) as settings:
        if proposer is None:
            yield settings
            return
        proposer_model = _make_model(config, proposer, "proposers", "--brain", timeout=TIMEOUT)
        with contextlib.closing(proposer_model):
            yield replace(settings, reviewer_model=proposer_model)


def budget_limits(config: Config) -> "tuple[ReviewBudget, ReviewBudget, ReviewBudget]":
    """Return the budget of the person's configuration, that of the environment, and the lower one.

    Raise InvalidArgument for a setting that is no budget.
    """
    from evolvable_tools.review import parse_budget, stricter_budget

    with naming_source("budgets.review of the person's configuration"):
        account, *others = (str(part.budgets.get("review", "")) for part in config.person.parts)
        floor = parse_budget(account)
        # The account's file sets the limit, and other files only lower it.
        for text in others:
            floor = stricter_budget(floor, parse_budget(text, floor))
    with naming_source(REVIEW_BUDGET):
        requested = parse_budget(config.review_budget, floor)
    return floor, requested, stricter_budget(floor, requested)


def approval_policies(config: Config) -> "Mapping[Kind, ApprovalPolicy]":
    """Return the policy for proposals by kind: the stricter of the person's configuration and the
    environment.

    Raise InvalidArgument for a setting that is no policy.
    """
    from evolvable_tools import parse_policies, stricter_policies

    with naming_source("review_policy of the person's configuration"):
        account, *others = (part.review_policy for part in config.person.parts)
        floor = parse_policies(account)
        for text in filter(None, others):
            floor = stricter_policies(floor, parse_policies(text))
    with naming_source(REVIEW_POLICY):
        return stricter_policies(floor, parse_policies(config.review_policy))


def lazy_review_settings(
    config: Config, until: contextlib.ExitStack
) -> Callable[[], "ReviewSettings"]:
    """Return a function that makes the settings when it is first called.

    They are closed with `until`.
    """
    # Guards `make_settings`: of two first calls one makes the settings.
    lock, redaction = threading.Lock(), Redaction(config.home)
    make_settings = functools.cache(lambda: until.enter_context(review_settings(config)))

    def settings() -> "ReviewSettings":
        with lock:
            return replace(make_settings(), redactor=redaction.redactor())

    return settings


def _read_boot_file(path: Path) -> str:
    try:
        with open(path, "rb", opener=regular_file) as file:
            return file.read(MAX_BOOT).decode("utf-8", "replace")
    except OSError:
        return ""

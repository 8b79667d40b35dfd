"""The settings that decide who may do what and what may be spent, each with the file or variable
that it comes from.
"""

import os
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from evolvable_server import config as settings
from evolvable_server.care.model_health import model_rows
from evolvable_server.config import Config, names_address
from evolvable_server.environment import CONFIG, HOME, REVIEW, reviews_on
from evolvable_server.model_setup import approval_policies, budget_limits
from evolvable_server.person_config import ROLES, Command, PersonConfig
from evolvable_server.second_config import FLOORS, NAMES
from evolvable_store.errors import EvolvableError

DEFAULT = "default"
LOOSER = "would loosen what the person's configuration says"


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting with its source: a configuration file, a variable, an option, or `default`.

    ignored: another value that does not count, with the reason; '' for none.
    """

    name: str
    value: str
    source: str
    ignored: str = ""


def effective_settings(
    config: Config, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> list[Setting]:
    """Return the settings that decide who may do what, and what may be spent.

    home: the folder that an option named, None without one.
    """
    env = os.environ if environment is None else environment
    home_source = HOME if env.get(HOME) else DEFAULT
    if home is not None:
        home_source = "--home"
    return [
        Setting("home", str(config.home), home_source),
        *_describe_second_file(config),
        _describe_approve(config, env),
        *_describe_lock(config),
        *_describe_author_settings(config),
        _describe_policy(config, env),
        _describe_budget(config, env),
        _resolve_role(config, "reviewer", _describe_review(config, env)),
        _resolve_role(config, "judge", Setting("judge", config.judge, DEFAULT)),
        _make_plain_setting("embedder", config.embedder, env, settings.EMBEDDER, "auto"),
        _make_plain_setting(
            "toolsets", ",".join(config.toolsets) or "none", env, settings.TOOLSETS, "none"
        ),
        *_describe_models(config, env),
        *_describe_commands(config),
    ]


def _describe_second_file(config: Config) -> Iterator[Setting]:
    """Yield the second file of settings, with those of its keys that do not count."""
    if not config.person.files:
        return
    file_keys = config.person.editable.file_keys
    account_keys = sorted(file_keys - {*NAMES, *FLOORS})
    ignored = list[str]()
    if account_keys:
        ignored.append(f"{', '.join(account_keys)}: read from the account's file alone")
    if config.person.ignored and (names := [name for name in NAMES if name in file_keys]):
        ignored.append(f"{', '.join(names)}: {config.person.ignored}")
    yield Setting("second file", str(config.person.editable.path), CONFIG, "; ".join(ignored))


def _describe_author_settings(config: Config) -> Iterator[Setting]:
    """Yield the settings of the account's file about authors and how an agent reads their texts."""
    account = config.person.parts[0]
    values = {
        "agent text": account.agent_text,
        "confirm": account.confirm,
        "yours": ", ".join(map(str, account.yours)),
        "followed": ", ".join(str(entry.folder) for entry in account.trusted if entry.follow),
    }
    yield from (Setting(name, value, str(account.path)) for name, value in values.items() if value)


def _find_file(config: Config, names: Callable[[PersonConfig], Container[str]], name: str) -> str:
    """Return the file that a name comes from. names: returns those that a configuration holds."""
    second = config.person.editable
    # A second file counts only for the names that it has, and only where it is not ignored.
    counts = config.person.files and not config.person.ignored and name in names(second)
    return str(second.path if counts else config.person.path)


def _find_floor_source(
    config: Config, value: Callable[[Config], object], is_listed: Callable[[PersonConfig], object]
) -> str:
    """Return the source of a setting's floor: the second file only where it is stricter.

    value: returns the floor of a configuration. is_listed: returns whether a file has the setting.
    """
    account, second = config.person.parts[0], config.person.editable
    # Without the second file the value would be another one, so that file sets it.
    if value(replace(config, person=account)) != value(config):
        return str(second.path)
    return str(account.path) if is_listed(account) else DEFAULT


def _make_guarded_setting(
    name: str, value: str, floor: str, variable: str, *, counts: bool, ignored: str
) -> Setting:
    """Return a setting that a variable may only make stricter.

    floor: the source of the value that holds without the variable. counts: whether the variable
    sets the value. ignored: the value of the variable that does not count, '' for none.
    """
    source = variable if counts else floor
    return Setting(name, value, source, f"{variable}={ignored} {LOOSER}" if ignored else "")


def _describe_approve(config: Config, env: Mapping[str, str]) -> Setting:
    own, requested = config.person.approve, (env.get(settings.APPROVE) or "").strip().lower()
    counts = config.approve != own
    floor = _find_floor_source(
        config,
        lambda candidate: candidate.person.approve,
        lambda candidate: "approve" in candidate.file_keys or candidate.unsigned,
    )
    ignored = "" if counts or requested == own else requested
    return _make_guarded_setting(
        "approve", config.approve, floor, settings.APPROVE, counts=counts, ignored=ignored
    )


def _describe_lock(config: Config) -> Iterator[Setting]:
    if key := config.person.lock_key:
        # A key that the second file does not set is the account's.
        source = _find_floor_source(
            config, lambda candidate: candidate.person.lock_key, lambda _: True
        )
        yield Setting("approvals lock", key[:16], source)


def _describe_policy(config: Config, env: Mapping[str, str]) -> Setting:
    name, variable = "review policy", settings.REVIEW_POLICY
    try:
        policies = [f"{kind}={policy}" for kind, policy in approval_policies(config).items()]
        floor = _find_floor_source(
            replace(config, review_policy=""),
            approval_policies,
            lambda candidate: candidate.review_policy,
        )
    except EvolvableError as error:
        return Setting(name, "", variable, str(error))
    # A policy that the variable names and the floor forbids is not among those in force.
    text = (env.get(variable) or "").strip()
    counts = bool(text) and all(candidate in text.replace(" ", "") for candidate in policies)
    # Memories are asked about where nothing is configured.
    value = ",".join(policies) or "memory=ask"
    ignored = "" if counts else text
    return _make_guarded_setting(name, value, floor, variable, counts=counts, ignored=ignored)


def _describe_budget(config: Config, env: Mapping[str, str]) -> Setting:
    name, variable = "review budget", settings.REVIEW_BUDGET
    try:
        floor, requested, effective = budget_limits(config)
        source = _find_floor_source(
            config,
            lambda candidate: budget_limits(candidate)[0],
            lambda candidate: "review" in candidate.budgets,
        )
    except EvolvableError as error:
        return Setting(name, "", variable, str(error))
    money = f", {effective.money:g} in money" if effective.money else ""
    value = f"{effective.calls} calls, {effective.tokens:,} tokens{money}"
    # Equal: no part of the variable was cut by the floor.
    ignored = "" if effective == requested else env.get(variable) or ""
    return _make_guarded_setting(
        name, value, source, variable, counts=effective != floor, ignored=ignored
    )


def _make_plain_setting(
    name: str, value: str, env: Mapping[str, str], variable: str, usual: str
) -> Setting:
    return Setting(name, value, variable if env.get(variable) and value != usual else DEFAULT)


def _describe_review(config: Config, env: Mapping[str, str]) -> Setting:
    return Setting("review", config.review, DEFAULT if reviews_on(env) else REVIEW)


def _resolve_role(config: Config, role: str, setting: Setting) -> Setting:
    """Return a setting with the file that names the models of this role, where it has its value."""
    models = ",".join(config.person.model_roles.get(role, ()))
    if setting.source != DEFAULT or setting.value != models:
        return setting
    return replace(setting, source=_find_file(config, lambda person: person.model_roles, role))


def _describe_models(config: Config, env: Mapping[str, str]) -> Iterator[Setting]:
    for name, address in config.person.models.items():
        yield Setting(
            f"models.{name}", address, _find_file(config, lambda person: person.models, name)
        )
    for name, value in model_rows(config):
        yield Setting(name, value, _find_file(config, _list_model_rows, name))
    # The environment names no addresses: a project or a client could set them and send texts
    # elsewhere.
    ignored = ", ".join(sorted(name for name in env if names_address(name) and env[name]))
    if ignored:
        why = f"{ignored}: models are asked where the person's configuration says"
        value = "as the providers have them" if not config.person.models else ""
        yield Setting("model addresses", value, DEFAULT, why)


def _list_model_rows(person: PersonConfig) -> list[str]:
    """Return the names of the rows of `model_rows` that come from a file."""
    return [
        *(f"models.{name}" for name in person.endpoints),
        *(f"role {role}" for role in person.model_roles),
    ]


def _describe_commands(config: Config) -> Iterator[Setting]:
    for role in ROLES:
        names_by_file: dict[str, list[str]] = {}
        for name in sorted(config.person.commands.get(role, {})):
            file = _find_file(config, partial(_get_commands, role), name)
            names_by_file.setdefault(file, []).append(name)
        yield from (Setting(role, ", ".join(names), file) for file, names in names_by_file.items())


def _get_commands(role: str, person: PersonConfig) -> Mapping[str, Command]:
    return person.commands.get(role, {})

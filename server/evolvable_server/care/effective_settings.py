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
    """A setting. source: the person's configuration, a variable, an option, or `default`.

    ignored: what was said elsewhere and does not count, with the reason; '' for nothing.
    """

    name: str
    value: str
    source: str
    ignored: str = ""


def effective_settings(
    config: Config, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> list[Setting]:
    """Return the settings that decide who may do what, and what may be spent.

    home: as an option named it.
    """
    env = os.environ if environment is None else environment
    return [
        Setting(
            "home",
            str(config.home),
            "--home" if home is not None else HOME if env.get(HOME) else DEFAULT,
        ),
        *_second(config),
        _approve(config, env),
        *_lock(config),
        *_authors(config),
        _memories(config, env),
        _budget(config, env),
        _role(config, "reviewer", _review(config, env)),
        _role(config, "judge", Setting("judge", config.judge, DEFAULT)),
        _plain("embedder", config.embedder, env, settings.EMBEDDER, "auto"),
        _plain("toolsets", ",".join(config.toolsets) or "none", env, settings.TOOLSETS, "none"),
        *_models(config, env),
        *_commands(config),
    ]


def _second(config: Config) -> Iterator[Setting]:
    """Yield the second file of settings, and what it says in vain."""
    if not config.person.files:
        return
    file_keys = config.person.editable.file_keys
    vain = sorted(file_keys - {*NAMES, *FLOORS})
    why = [f"{', '.join(vain)}: read from the account's file alone"] if vain else []
    if config.person.ignored and (names := [name for name in NAMES if name in file_keys]):
        why.append(f"{', '.join(names)}: {config.person.ignored}")
    yield Setting("second file", str(config.person.editable.path), CONFIG, "; ".join(why))


def _authors(config: Config) -> Iterator[Setting]:
    """Yield what decides whose a text is and how an agent reads it, where the account's file says
    so.
    """
    account = config.person.parts[0]
    values = {
        "agent text": account.agent_text,
        "confirm": account.confirm,
        "yours": ", ".join(map(str, account.yours)),
        "followed": ", ".join(str(entry.folder) for entry in account.trusted if entry.follow),
    }
    yield from (Setting(name, value, str(account.path)) for name, value in values.items() if value)


def _file(config: Config, names: Callable[[PersonConfig], Container[str]], name: str) -> str:
    """Return the file that a name comes from. names: those of its kind that a file holds."""
    second = config.person.editable
    # A second file counts only for the names that it has, and only where it is not ignored.
    counts = config.person.files and not config.person.ignored and name in names(second)
    return str(second.path if counts else config.person.path)


def _floor(
    config: Config, value: Callable[[Config], object], is_listed: Callable[[PersonConfig], object]
) -> str:
    """Return where the floor of a setting comes from: the second file only where that makes it
    stricter.

    value: the floor of a configuration. is_listed: whether what a file says holds the setting.
    """
    account, second = config.person.parts[0], config.person.editable
    # Without the second file the value would be another one, so that file sets it.
    if value(replace(config, person=account)) != value(config):
        return str(second.path)
    return str(account.path) if is_listed(account) else DEFAULT


def _guarded_setting(
    name: str, value: str, floor: str, variable: str, *, counts: bool, ignored: str
) -> Setting:
    """Return a setting that a variable may tighten only.

    floor: where what holds without the variable comes from. counts: whether the variable does.
    ignored: what the variable says in vain, '' for nothing.
    """
    return Setting(
        name,
        value,
        variable if counts else floor,
        f"{variable}={ignored} {LOOSER}" if ignored else "",
    )


def _approve(config: Config, env: Mapping[str, str]) -> Setting:
    own, requested = config.person.approve, (env.get(settings.APPROVE) or "").strip().lower()
    counts = config.approve != own
    floor = _floor(
        config,
        lambda candidate: candidate.person.approve,
        lambda candidate: "approve" in candidate.file_keys or candidate.unsigned,
    )
    ignored = "" if counts or requested == own else requested
    return _guarded_setting(
        "approve", config.approve, floor, settings.APPROVE, counts=counts, ignored=ignored
    )


def _lock(config: Config) -> Iterator[Setting]:
    if key := config.person.lock_key:
        yield Setting(
            "approvals lock",
            key[:16],
            _floor(config, lambda candidate: candidate.person.lock_key, lambda candidate: key),
        )


def _memories(config: Config, env: Mapping[str, str]) -> Setting:
    name, variable = "review policy", settings.REVIEW_POLICY
    try:
        found = [f"{kind}={policy}" for kind, policy in approval_policies(config).items()]
        floor = _floor(
            replace(config, review_policy=""),
            approval_policies,
            lambda candidate: candidate.review_policy,
        )
    except EvolvableError as error:
        return Setting(name, "", variable, str(error))
    # A policy that the variable names and the floor forbids is not among those in force.
    text = (env.get(variable) or "").strip()
    counts = bool(text) and all(candidate in text.replace(" ", "") for candidate in found)
    # Memories are asked about where nothing is configured.
    value = ",".join(found) or "memory=ask"
    return _guarded_setting(
        name, value, floor, variable, counts=counts, ignored="" if counts else text
    )


def _budget(config: Config, env: Mapping[str, str]) -> Setting:
    name, variable = "review budget", settings.REVIEW_BUDGET
    try:
        floor, requested, effective = budget_limits(config)
        source = _floor(
            config,
            lambda candidate: budget_limits(candidate)[0],
            lambda candidate: "review" in candidate.budgets,
        )
    except EvolvableError as error:
        return Setting(name, "", variable, str(error))
    value = f"{effective.calls} calls, {effective.tokens:,} tokens" + (
        f", {effective.money:g} in money" if effective.money else ""
    )
    # Equal: no part of the variable was cut by the floor.
    ignored = "" if effective == requested else env.get(variable) or ""
    return _guarded_setting(
        name, value, source, variable, counts=effective != floor, ignored=ignored
    )


def _plain(name: str, value: str, env: Mapping[str, str], variable: str, usual: str) -> Setting:
    return Setting(name, value, variable if env.get(variable) and value != usual else DEFAULT)


def _review(config: Config, env: Mapping[str, str]) -> Setting:
    return Setting("review", config.review, DEFAULT if reviews_on(env) else REVIEW)


def _role(config: Config, role: str, setting: Setting) -> Setting:
    """Return a setting with its source, where it is who the person said answers in this role."""
    own = setting.source == DEFAULT and setting.value == ",".join(
        config.person.model_roles.get(role, ())
    )
    return (
        replace(setting, source=_file(config, lambda person: person.model_roles, role))
        if own
        else setting
    )


def _models(config: Config, env: Mapping[str, str]) -> Iterator[Setting]:
    for name, address in config.person.models.items():
        yield Setting(
            f"models.{name}",
            address,
            _file(config, lambda person: person.models, name),
        )
    for name, value in model_rows(config):
        yield Setting(name, value, _file(config, _model_rows_of, name))
    # The environment names no addresses: a project or a client could set them and send texts
    # elsewhere.
    ignored = ", ".join(sorted(name for name in env if names_address(name) and env[name]))
    if ignored:
        why = f"{ignored}: models are asked where the person's configuration says"
        yield Setting(
            "model addresses",
            "as the providers have them" if not config.person.models else "",
            DEFAULT,
            why,
        )


def _model_rows_of(person: PersonConfig) -> list[str]:
    """Return the names of the rows of `model_rows` that come from a file."""
    return [
        *(f"models.{name}" for name in person.endpoints),
        *(f"role {role}" for role in person.model_roles),
    ]


def _commands(config: Config) -> Iterator[Setting]:
    for role in ROLES:
        found: dict[str, list[str]] = {}
        for name in sorted(config.person.commands.get(role, {})):
            found.setdefault(_file(config, partial(_commands_of, role), name), []).append(name)
        yield from (Setting(role, ", ".join(names), where) for where, names in found.items())


def _commands_of(role: str, person: PersonConfig) -> Mapping[str, Command]:
    return person.commands.get(role, {})

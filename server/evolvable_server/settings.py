"""Where each setting of this process comes from, and which ones the environment may not change."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evolvable_server import config as settings
from evolvable_server.config import Config, names_address
from evolvable_server.environment import HOME, REVIEW
from evolvable_server.person import ROLES
from evolvable_server.reviews import budget_limits, policies
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


def settings_of(
    config: Config, environment: Mapping[str, str] | None = None, home: Path | None = None
) -> list[Setting]:
    """Return the settings that decide who may do what, and what may be spent. home: as an option named it."""
    env = os.environ if environment is None else environment
    return [
        _home(config, env, home),
        _approve(config, env),
        _memories(config, env),
        _budget(config, env),
        _plain("review", config.review, env, REVIEW, "handoff"),
        _plain("judge", config.judge, env, settings.JUDGE, "auto"),
        _plain("embedder", config.embedder, env, settings.EMBEDDER, "auto"),
        _plain("toolsets", ",".join(config.toolsets) or "none", env, settings.TOOLSETS, "none"),
        *_models(config, env),
        *_commands(config),
    ]


def _file(config: Config) -> str:
    return str(config.person.path)


def _home(config: Config, env: Mapping[str, str], home: Path | None) -> Setting:
    source = "--home" if home is not None else HOME if env.get(HOME) else DEFAULT
    return Setting("home", str(config.home), source)


def _approve(config: Config, env: Mapping[str, str]) -> Setting:
    own, said = config.person.approve, (env.get(settings.APPROVE) or "").strip().lower()
    of_person = _file(config) if "approve" in config.person.said else DEFAULT
    if config.approve != own:
        return Setting("approve", config.approve, settings.APPROVE)
    ignored = f"{settings.APPROVE}={said} {LOOSER}" if said and said != own else ""
    return Setting("approve", config.approve, of_person, ignored)


def _memories(config: Config, env: Mapping[str, str]) -> Setting:
    name = settings.REVIEW_POLICY
    try:
        found = {str(kind): str(policy) for kind, policy in policies(config).items()}
    except EvolvableError as error:
        return Setting("review policy", "", name, str(error))
    value = ",".join(f"{kind}={policy}" for kind, policy in found.items()) or "memory=ask"
    source = _file(config) if config.person.review_policy else DEFAULT
    said = (env.get(name) or "").strip()
    if not said:
        return Setting("review policy", value, source)
    holds = all(f"{kind}={policy}" in said.replace(" ", "") for kind, policy in found.items())
    return Setting("review policy", value, name if holds else source, "" if holds else f"{name}={said} {LOOSER}")


def _budget(config: Config, env: Mapping[str, str]) -> Setting:
    name = settings.REVIEW_BUDGET
    try:
        floor, asked, holds = budget_limits(config)
    except EvolvableError as error:
        return Setting("review budget", "", name, str(error))
    value = f"{holds.calls} calls, {holds.tokens:,} tokens" + (f", {holds.money:g} in money" if holds.money else "")
    source = _file(config) if "review" in config.person.budgets else DEFAULT
    ignored = f"{name}={env.get(name)} {LOOSER}" if env.get(name) and holds != asked else ""
    return Setting("review budget", value, name if holds != floor else source, ignored)


def _plain(name: str, value: str, env: Mapping[str, str], variable: str, usual: str) -> Setting:
    return Setting(name, value, variable if env.get(variable) and value != usual else DEFAULT)


def _models(config: Config, env: Mapping[str, str]) -> Iterator[Setting]:
    for name, address in config.person.models.items():
        yield Setting(f"models.{name}", address, _file(config))
    ignored = ", ".join(sorted(name for name in env if names_address(name) and env[name]))
    if ignored:
        why = f"{ignored}: models are asked where the person's configuration says"
        yield Setting("model addresses", "as the providers have them" if not config.person.models else "", DEFAULT, why)


def _commands(config: Config) -> Iterator[Setting]:
    for role in ROLES:
        if named := config.person.commands.get(role):
            yield Setting(role, ", ".join(sorted(named)), _file(config))

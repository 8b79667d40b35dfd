"""Who helps a lookup, by the settings of this process: an embedder, and somebody who judges."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from evolvable_server.config import EMBEDDER, JUDGE, Config, thinking_environment
from evolvable_server.naming import of_role
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_tools.embedding import installed_spec
from evolvable_tools.retrieval import FITS, SearchDependencies

if TYPE_CHECKING:
    from evolvable_tools.embedding.embedder_client import SharedEmbedder
    from evolvable_tools.llm.anthropic_model import AnthropicModel
    from evolvable_tools.llm.command_model import CommandModel

OURS = ("auto", "off", "caller")
"""Settings of the judge that ask nobody from here. A key that happens to be set costs nothing: it is not used."""


@contextlib.contextmanager
def opened(config: Config, *, serving: bool = False) -> Iterator[SearchDependencies]:
    """Yields what a lookup may use; nothing of it is started or loaded before it is asked.

    serving: an agent calls, which can choose by itself. Otherwise it is a person, whose command must not change which
    model serves everybody. Raises InvalidArgument for a setting that names nothing.
    """
    embedder, thinker = embedder_of(config, propose=serving), thinker_of(config)
    fits = FITS if config.fits is None else config.fits
    caller, client = serving and config.judge != "off", serving and config.judge == "auto"
    try:
        yield SearchDependencies(embedder, thinker, caller, client, fits)
    finally:
        for one in (embedder, thinker):
            if one is not None:
                one.close()


def embedder_of(config: Config, *, propose: bool) -> "SharedEmbedder | None":
    """Returns the embedder that the settings name, by default the one that is installed."""
    spec = installed_spec() if config.embedder == "auto" else config.embedder
    if spec is None or spec == "off":
        return None
    from evolvable_tools.embedding.embedder_client import SharedEmbedder

    with named(EMBEDDER):
        return SharedEmbedder(config.home, spec, propose=propose)


def thinker_of(config: Config) -> "AnthropicModel | CommandModel | None":
    """Returns who judges: the Anthropic API or a command, where the settings name one. Raises Refused for a command
    that the person did not name."""
    if config.judge in OURS:
        return None
    from evolvable_tools.llm.anthropic_model import MODEL, AnthropicModel
    from evolvable_tools.llm.command_model import CommandModel

    provider, _, model = config.judge.partition(":")
    if provider == "anthropic":
        return AnthropicModel(config.api_key, model or MODEL, config.api_url, proxy=config.person.models.get("proxy"))
    with named(JUDGE):
        folder, environment = neutral(config.home), thinking_environment(config)
        return CommandModel(thinking_command(config, "judges", config.judge), folder=folder, environment=environment)


def thinking_command(config: Config, role: str, who: str) -> tuple[str, ...]:
    """Return the command that a setting names: a client that only answers, or one that the person named.

    Raise Refused for any other.
    """
    from evolvable_tools.llm.command_model import command_of

    return command_of(who) if who in ("claude", "codex") else of_role(config, role, person=True).get(who).words


@contextlib.contextmanager
def named(variable: str) -> Iterator[None]:
    """Says of a bad value where it stands."""
    try:
        yield
    except (InvalidArgument, Refused) as error:
        raise type(error)(f"{variable}: {error}", error.hint) from None


def neutral(home: Path) -> Path | None:
    """Returns a folder without a project's instructions in it."""
    return home if home.is_dir() else None

"""Who helps a lookup, by the settings of this process: an embedder, and somebody who judges."""

import contextlib
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from evolvable_server.config import Config
from evolvable_store.errors import InvalidArgument
from evolvable_tools.embedding.client import SharedEmbedder
from evolvable_tools.embedding.embedder import installed
from evolvable_tools.lookup.means import FITS, Means
from evolvable_tools.providers.claude_api import MODEL, AnthropicThinker
from evolvable_tools.providers.headless import CommandThinker

NOBODY = ("off", "caller")
"""Settings of the judge that ask nobody from here."""


@contextlib.contextmanager
def opened(config: Config, *, caller_thinks: bool = False) -> Iterator[Means]:
    """Yields what a lookup may use; nothing of it is started or loaded before it is asked.

    caller_thinks: whoever calls can choose by itself. Raises InvalidArgument for a setting that names nothing.
    """
    embedder, thinker = embedder_of(config), thinker_of(config)
    fits = FITS if config.fits is None else config.fits
    try:
        yield Means(embedder, thinker, caller_thinks and config.judge != "off", fits)
    finally:
        for one in (embedder, thinker):
            if one is not None:
                one.close()


def embedder_of(config: Config) -> SharedEmbedder | None:
    """Returns the embedder that the settings name, by default the one that is installed."""
    spec = installed() if config.embedder == "auto" else config.embedder
    return None if spec in (None, "off") else SharedEmbedder(config.home, str(spec))


def thinker_of(config: Config) -> AnthropicThinker | CommandThinker | None:
    """Returns who judges: the Anthropic API where a key is set and its package installed, or what the settings name."""
    if config.judge in NOBODY:
        return None
    named, _, model = config.judge.partition(":")
    if named in ("auto", "anthropic"):
        if named == "auto" and (not config.api_key or find_spec("anthropic") is None):
            return None
        return AnthropicThinker(config.api_key, model or MODEL, config.api_url)
    try:
        command = shlex.split(config.judge)
    except ValueError as error:
        raise InvalidArgument(f"EVOLVABLE_JUDGE cannot be read: {error}.", "Quote it as for a shell.") from None
    return CommandThinker(command, folder=_neutral(config.home))


def _neutral(home: Path) -> Path | None:
    """Returns a folder without a project's instructions in it."""
    return home if home.is_dir() else None

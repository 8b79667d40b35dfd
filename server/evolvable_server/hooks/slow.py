"""Hooks of the command that need the library. Imports much: the command calls it only where there is no server."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from evolvable_server.app import caller
from evolvable_server.config import read_config
from evolvable_server.connection import client_connection
from evolvable_server.homes import registered_homes
from evolvable_server.hooks.answers import NOTHING, Hooks
from evolvable_server.trusted_folders import ListedFolders
from evolvable_store.operation import Identity, Principal
from evolvable_tools.library import Library
from evolvable_tools.retrieval import FITS, SearchDependencies


def answered(payload: Mapping[str, Any]) -> str:
    """Returns what the client shall read, '' for nothing. Raises as Library.open: a library is not made here."""
    config = read_config()
    # Words alone: a person waits, and an embedder would have to be found first.
    means = SearchDependencies(fits=FITS if config.fits is None else config.fits)
    listed = ListedFolders(config.home)
    with Library.open(config.home, registered=registered_homes, means=means, trusted_folders=listed) as library:
        who = caller(config, library, Identity(Principal.AGENT, "hook"))
        one = dataclasses.replace(who, session=None, connection=client_connection())
        answer = Hooks(config, library, one).answer(payload)
    return "" if answer == NOTHING else answer

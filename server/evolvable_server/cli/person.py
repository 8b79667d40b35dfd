"""Whether a person is at this command: somebody at a terminal, and no client's shell."""

import os

from evolvable_server.principals import cli_identity
from evolvable_store.operation import Principal


def at_terminal() -> bool:
    """Return whether a question on the terminal reaches a person."""
    return cli_identity(os.environ).principal is Principal.PERSON

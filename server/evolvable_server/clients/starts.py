"""How clients start the server of this installation: with absolute paths, as they share neither folder nor PATH."""

import sys
import sysconfig
from pathlib import Path

from evolvable_server.clients.client import Start
from evolvable_server.config import read_config
from evolvable_server.environment import HOME

_PASSING = ("/uv/archive-v", "/.cache/uv/", "/uv/cache/", "/pipx/.cache/")


def start_of(home: Path, env: dict[str, str] | None = None) -> Start:
    """Returns the start of the server over the library in `home`, which is named only when it is not the usual one."""
    script = Path(sysconfig.get_path("scripts")) / ("evolvable.exe" if sys.platform == "win32" else "evolvable")
    place = {} if home == read_config({}).home else {HOME: str(home)}
    given = {**place, **(env or {})}
    if script.is_file():
        return Start(str(script.absolute()), ("serve",), given)
    # -P: started in a project's folder, Python must not import that project's modules instead of ours.
    return Start(str(Path(sys.executable).absolute()), ("-P", "-m", "evolvable_server", "serve"), given)


def passes(start: Start) -> bool:
    """Returns whether the program lies where it is cleared away some day, as `uvx` and `pipx run` put it."""
    place = Path(start.command).as_posix().lower()
    return any(part in place for part in _PASSING)

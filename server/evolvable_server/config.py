"""The only reader of the environment: where the library is, who calls, and which project is open."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from evolvable_store.errors import InvalidArgument, InvalidRef
from evolvable_store.resource import USER_SCOPE, check_scope

HOME = "EVOLVABLE_HOME"
SCOPE = "EVOLVABLE_SCOPE"
SESSION = "EVOLVABLE_SESSION"
EMBEDDER = "EVOLVABLE_EMBEDDER"
JUDGE = "EVOLVABLE_JUDGE"
FITS = "EVOLVABLE_FITS"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings of one process.

    home: the library's folder. project: the folder of the project that is open. scope: the project's scope when it
    is named outright, else None. session: the client's session when it tells one.
    embedder: auto, off, or onnx or sentence-transformers with an optional model behind a colon. judge: auto, off,
    caller, anthropic with an optional model, or a command. api_key: of the Anthropic API. fits: the confidence under
    which nothing fits, None for the usual one.
    """

    home: Path
    project: Path
    scope: str | None = None
    session: str | None = None
    embedder: str = "auto"
    judge: str = "auto"
    api_key: str | None = None
    api_url: str | None = None
    fits: float | None = None


def read_config(environment: Mapping[str, str] | None = None, home: Path | None = None) -> Config:
    """Returns the settings from the environment; `home` overrules EVOLVABLE_HOME (default ~/.evolvable).

    Raises InvalidRef when EVOLVABLE_SCOPE is no scope, InvalidArgument when EVOLVABLE_FITS is no share.
    """
    env = os.environ if environment is None else environment
    place = home or Path(env.get(HOME) or "~/.evolvable")
    return Config(
        home=place.expanduser().absolute(),
        project=Path(env.get("CLAUDE_PROJECT_DIR") or Path.cwd()),
        scope=_scope(env.get(SCOPE)),
        session=env.get(SESSION) or env.get("CLAUDE_CODE_SESSION_ID") or None,
        embedder=_setting(env.get(EMBEDDER), "auto", "off"),
        judge=_setting(env.get(JUDGE), "auto", "off", "caller"),
        api_key=env.get("ANTHROPIC_API_KEY") or None,
        api_url=env.get("ANTHROPIC_BASE_URL") or None,
        fits=_share(env.get(FITS)),
    )


def process_session() -> str:
    """Returns a session for this process, used when its client names none; another process never has the same."""
    return f"process-{os.getpid()}-{time.time_ns():x}"


def _setting(text: str | None, usual: str, *words: str) -> str:
    """Returns what is set, one of our own words in small letters; nothing set is the usual."""
    value = (text or "").strip() or usual
    small = value.lower()
    return {"none": "off", "no": "off", "0": "off"}.get(small, small if small in (usual, *words) else value)


def _share(text: str | None) -> float | None:
    if not text:
        return None
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise InvalidArgument(f"{FITS} is {text[:40]!r}.", "It is a confidence from 0 to 1, such as 0.35.")
    return share


def _scope(text: str | None) -> str | None:
    if not text:
        return None
    try:
        return check_scope(text)
    except InvalidRef as error:
        raise InvalidRef(f"{SCOPE}: {error}", error.hint) from None


def client_folders(home: Path, project: Path) -> list[tuple[Path, str]]:
    """Returns the skill folders of the installed clients that are there, each with its scope.

    Claude Code reads ~/.claude/skills and .claude/skills of the project, Codex ~/.codex/skills and ~/.agents/skills
    and, in the project, .agents/skills and .codex/skills.
    """
    own = [home / ".claude/skills", home / ".agents/skills", home / ".codex/skills"]
    theirs = [project / ".claude/skills", project / ".agents/skills", project / ".codex/skills"]
    found = [(path, USER_SCOPE) for path in own if path.is_dir()]
    return found + [(path, project_scope(project)) for path in theirs if path.is_dir() and path not in own]


def project_scope(project: Path) -> str:
    """Returns the scope that a project's folder gives: its name, made fit; 'project' when nothing is left of it."""
    from evolvable_store.resource import slugify

    name = slugify(project.resolve().name)
    return name if name and name != USER_SCOPE else "project"

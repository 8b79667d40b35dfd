"""Claude Desktop: one file for the user. On Windows a packaged app reads it from a place of its own."""

from pathlib import Path

from evolvable_server.clients.client import USER, Client
from evolvable_server.config import Machine

FILE = "claude_desktop_config.json"


def _file(machine: Machine, scope: str) -> Path | None:
    if scope != USER:
        return None
    if machine.system == "darwin":
        return machine.user / "Library/Application Support/Claude" / FILE
    if machine.system != "win32":
        return machine.settings / "Claude" / FILE
    return (_packaged(machine) or machine.roaming / "Claude") / FILE


def _packaged(machine: Machine) -> Path | None:
    """Returns the folder of an app that was installed as a package (MSIX): it does not see %APPDATA%."""
    packages = [path / "LocalCache/Roaming" for path in machine.local.glob("Packages/Claude_*")]
    found = sorted(path / "Claude" for path in packages if path.is_dir())
    return next((path for path in found if (path / FILE).is_file()), found[0] if found else None)


def _check(_: str, name: str) -> list[str]:
    return [f"quit Claude Desktop wholly and start it again; Settings > Developer lists {name} as running"]


CLIENT = Client(
    name="claude-desktop",
    title="Claude Desktop",
    file=_file,
    table="mcpServers",
    strict=True,
    called=("claude-ai", "claude desktop", "claude-desktop"),
    check=_check,
)

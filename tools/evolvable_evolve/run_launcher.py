"""Make the context of evolution runs, and start the processes that drive them."""

import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from time import monotonic, sleep

from evolvable_evolve.evolution import EVOLVE_DIR, HostContext, RayCluster, RunDirectory
from evolvable_evolve.sandbox import SandboxChoice
from evolvable_server import (
    HOME,
    REVIEWING,
    Config,
    PersonConfig,
    Redaction,
    account_home,
    model_environment,
    named_commands,
    named_models,
    read_machine,
)

_MOMENT = 10.0  # seconds at most for a process to begin
_CREDENTIALS = ".credentials.json", "auth.json"


def evolve_context(
    config: Config, environment: Mapping[str, str] | None = None, *, person: bool = False
) -> HostContext:
    """Return what this process offers to runs. Children get its environment, and are no clients of
    the library.

    The person's configuration replaces addresses and proxies of models in the environment. person:
    whether a person at a terminal is told what to do about a command that is not named.
    """
    own = os.environ if environment is None else environment
    env = model_environment(config, own) | {REVIEWING: "1"}
    machine = read_machine(config.project, env)
    signed_in = {
        "claude": (machine.claude or machine.user / ".claude") / _CREDENTIALS[0],
        "codex": machine.codex / _CREDENTIALS[1],
    }
    credentials = {name: path for name, path in signed_in.items() if path.is_file()}
    commands = named_commands(config, person=person)
    return HostContext(
        env,
        config.api_key,
        config.api_url,
        credentials,
        Redaction(config.home).redactor(),
        choose_sandbox(config),
        (config.home,),
        commands,
        config.person.models.get("proxy"),
        named_models(config),
        ray_cluster(config.person, env),
    )


def ray_cluster(person: PersonConfig, environment: Mapping[str, str]) -> RayCluster | None:
    """Return the Ray cluster that the person configured, None without one. Its token is read from
    the account's home.

    environment: where programs are found.
    """
    if not person.ray_address:
        return None
    token = person.ray_token_file or Path(".ray/auth_token")
    return RayCluster(
        person.ray_address, (account_home() or Path("/")) / token, environment=environment
    )


def choose_sandbox(config: Config) -> SandboxChoice:
    """Return how the sandbox is chosen: among this machine's mechanisms, or a container that the
    person names.
    """
    configured = config.person.sandbox.get("container", ())
    container = tuple(map(str, configured)) if isinstance(configured, list | tuple) else ()
    return SandboxChoice(container, config.home / "evolve" / "sandbox.json")


def start_driver(
    home: Path, folder: RunDirectory, *, pilot: bool = False, verb: str = EVOLVE_DIR
) -> int:
    """Start a process that drives a run as far as it comes, and return its id; it outlives this
    one.

    pilot: only to the end of its first three trials. verb: the command that drives runs of its
    kind. Waits at most _MOMENT until the process drives the run, so that the next status shows it
    as running.
    """
    # -P: a module in the folder that the command starts in must not take the place of ours.
    command = [sys.executable, "-P", "-m", "evolvable_server"]
    command += [verb, "drive", folder.id, "--home", str(home)]
    command += ["--pilot"] if pilot else []
    folder.mark_driver_starting(True)
    # A link at this name is not followed: it could lead out of the folder.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(folder.log, flags, 0o600), "ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=home,
            env={**os.environ, HOME: str(home)},
            # Apart from the terminal, so that Ctrl+C and a closed terminal do not end the run.
            start_new_session=True,
        )
    if folder.is_driver_starting:  # else it drives by now
        folder.mark_driver_starting(True, process.pid)

    def wait_for_end() -> None:
        process.wait()  # or it would stay behind as a zombie
        folder.mark_driver_starting(False)

    threading.Thread(target=wait_for_end, daemon=True).start()
    until = monotonic() + _MOMENT
    while process.poll() is None and not folder.is_driven and monotonic() < until:
        sleep(0.02)
    return process.pid

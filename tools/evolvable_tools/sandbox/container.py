"""A container that a person names: a command in which `{mounts}` stands for what the container is shown."""

from dataclasses import dataclass
from pathlib import Path

from evolvable_tools.sandbox.confinement import Confinement, instructions
from evolvable_tools.sandbox.runtimes import INSIDE

MOUNTS = "{mounts}"
ROOT = "/run/evolvable"


@dataclass(frozen=True, slots=True)
class Container:
    """command: starts a container with a `python3` in it, such as `docker run --rm -i --network=none ... IMAGE`.

    Everything that it is to keep apart, the network above all, is in the options that the person gives it; the probe
    says whether it does. Runtimes are those of the image: nothing of this machine's is shown in it.
    """

    command: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return what people call it."""
        return f"container ({Path(self.command[0]).name})"

    @property
    def python(self) -> str:
        """Return the Python of commands inside: the image's."""
        return "python3"

    def argv(self, what: Confinement, back: Path) -> list[str]:
        """Return the argument list that runs `what`; the workspace is written to the file `back` at the end."""
        mounts = [f"--volume={path}:{path}:ro" for path in what.readable if path.exists()]
        seeds = {}
        for number, folder in enumerate((what.workspace, *what.writable)):
            seeds[str(folder)] = f"{ROOT}/seed{number}"
            mounts.append(f"--volume={folder}:{ROOT}/seed{number}:ro")
            mounts.append(f"--mount=type=tmpfs,destination={folder},tmpfs-size={what.limits.size}")
        mounts.append(f"--volume={INSIDE}:{ROOT}/inside.py:ro")
        if what.returns:
            mounts.append(f"--volume={back}:{ROOT}/back")
        if what.model_socket is not None:
            mounts.append(f"--volume={what.model_socket}:{ROOT}/model.sock:ro")
        mounts += [f"--env={name}={value}" for name, value in what.environment.items() if name != "PATH"]
        words = [part for word in self.command for part in (mounts if word == MOUNTS else [word])]
        told = instructions(what, seeds, f"{ROOT}/back")
        return [*words, "python3", "-I", "-S", "-B", f"{ROOT}/inside.py", *told, *what.command]

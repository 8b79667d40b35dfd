"""A library over ssh, with a real sshd on this machine."""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import CommandLine
from processes import poll
from remote_place import Machine, git, make_hub

from evolvable_store.errors import RemoteFailed

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}{os.pathsep}/usr/sbin")

pytestmark = [
    pytest.mark.process,
    pytest.mark.nightly,  # needs an sshd, which few machines have
    pytest.mark.skipif(SSHD is None, reason="no sshd (Debian: openssh-server)"),
]


@dataclass
class Sshd:
    """A running server, and a person's configuration that signs in there.

    environment: what the last session had.
    """

    folder: Path
    port: int
    user: str

    @property
    def config(self) -> Path:
        return self.folder / "config"

    @property
    def environment(self) -> Path:
        return self.folder / "environment"

    def url(self, hub: Path) -> str:
        return f"ssh://{self.user}@127.0.0.1:{self.port}{hub}"

    def know(self, key: str = "host") -> None:
        """Puts a host key into the person's list of known hosts."""
        kind, data, *_ = (self.folder / f"{key}.pub").read_text().split()
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {kind} {data}\n")


@pytest.fixture
def sshd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    folder, user = tmp_path / "ssh", pwd.getpwuid(os.geteuid()).pw_name
    folder.mkdir(mode=0o700)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for name in ("host", "other", "own"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True
        )
    forced = f'command="env > {folder}/environment; exec sh -c \\"$SSH_ORIGINAL_COMMAND\\""'
    (folder / "keys").write_text(f"{forced} {(folder / 'own.pub').read_text()}")
    (folder / "sshd").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {folder}/host\nPidFile none\nUsePAM no\n"
        f"StrictModes no\nAuthorizedKeysFile {folder}/keys\nPasswordAuthentication no\n"
        "PermitRootLogin prohibit-password\n"
    )
    # ForwardAgent: what a careless person may have there.
    (folder / "config").write_text(
        f"IdentityFile {folder}/own\nIdentitiesOnly yes\nForwardAgent yes\n"
        f"StrictHostKeyChecking accept-new\nUserKnownHostsFile {folder}/known\n"
        f"GlobalKnownHostsFile none\nHost ssh-alias\n\tHostName 127.0.0.1\n\tPort {port}\n"
    )
    home = tmp_path / "person"
    home.mkdir()
    (home / ".gitconfig").write_text(
        f"[core]\n\tsshCommand = ssh -F {folder}/config\n[safe]\n\tdirectory = *\n"
    )
    monkeypatch.setenv("HOME", str(home))
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", 0o755, exist_ok=True)
    with subprocess.Popen(
        [str(SSHD), "-D", "-e", "-f", folder / "sshd"], stderr=subprocess.PIPE
    ) as process:
        try:
            poll(lambda: process.poll() is not None or _answers(port), "sshd")
            assert process.poll() is None and process.stderr is not None, (
                process.stderr.read().decode()
            )
            yield Sshd(folder, port, user)
        finally:
            process.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_push_pull_and_clone_over_ssh(sshd, tmp_path, monkeypatch):
    hub = make_hub(tmp_path / "hub.git")
    sshd.know()
    ada, ben = Machine(tmp_path / "ada", sshd.url(hub)), Machine(tmp_path / "ben", sshd.url(hub))
    ada.put("pdf", "one\n")
    assert ada.push().commits == 2
    ben.pull()
    ben.put("pdf", "two\n")
    ben.push()
    ada.pull()
    assert ada.text("pdf") == "two\n"
    run = CommandLine(tmp_path)
    monkeypatch.chdir(run.project)
    (run.user / ".gitconfig").write_text((tmp_path / "person/.gitconfig").read_text())
    assert "merged" in run("clone", f"{sshd.user}@ssh-alias:{hub}", "--yes").out
    assert "two" in run("get", "pdf").out


@pytest.mark.parametrize("known", ["no", "another"])
def test_a_host_whose_key_is_not_known_is_refused_though_the_person_configured_to_accept_it(
    sshd, tmp_path, known
):
    if known == "another":
        sshd.know("other")
    ada = Machine(tmp_path / "ada", sshd.url(make_hub(tmp_path / "hub.git")))
    with pytest.raises(RemoteFailed) as failed:
        ada.pull()
    assert "known_hosts" in failed.value.hint
    assert not sshd.environment.exists()
    assert known == "another" or not (sshd.folder / "known").exists()


def test_the_agent_is_not_forwarded_and_the_variables_of_the_shell_name_no_program(
    sshd, tmp_path, monkeypatch
):
    sshd.know()
    hub, agent, ran = make_hub(tmp_path / "hub.git"), sshd.folder / "agent", tmp_path / "ran"
    with subprocess.Popen(["ssh-agent", "-D", "-a", agent], stdout=subprocess.DEVNULL) as process:
        try:
            poll(agent.exists, "the agent")
            monkeypatch.setenv("SSH_AUTH_SOCK", str(agent))
            plain = [
                "ssh",
                "-F",
                str(sshd.config),
                "-p",
                str(sshd.port),
                f"{sshd.user}@127.0.0.1",
                "true",
            ]
            subprocess.run(plain, check=True)
            assert "SSH_AUTH_SOCK=" in sshd.environment.read_text(), "ssh alone forwards it"
            monkeypatch.setenv("GIT_SSH_COMMAND", f"touch {ran};")
            monkeypatch.setenv("GIT_SSH", f"touch {ran}")
            ada = Machine(tmp_path / "ada", sshd.url(hub))
            ada.put("pdf", "one\n")
            ada.push()
            said = sshd.environment.read_text()
            assert "SSH_AUTH_SOCK=" not in said and "SSH_CONNECTION=" in said
        finally:
            process.terminate()
    assert not ran.exists()
    assert git(hub, "ls-tree", "--name-only", "main", "skills/") == "skills/pdf"


@pytest.mark.parametrize(
    "path", ["'; touch {ran}; '", "$(touch {ran})", "-oProxyCommand=touch {ran}", "x\ty"]
)
def test_what_stands_in_the_path_of_an_address_is_a_path_and_no_command(sshd, tmp_path, path):
    sshd.know()
    ran = tmp_path / "ran"
    for machine in (
        Machine(
            tmp_path / "one", f"ssh://{sshd.user}@127.0.0.1:{sshd.port}/{path.format(ran=ran)}"
        ),
        Machine(tmp_path / "two", f"{sshd.user}@ssh-alias:{path.format(ran=ran)}"),
    ):
        with pytest.raises(RemoteFailed) as failed:
            machine.pull()
        assert "onnect" not in failed.value.text, "the server was reached"
    assert not ran.exists()

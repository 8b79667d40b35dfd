"""Before the name is ours nothing says to install it by that name; afterwards everything pins the
exact version.
"""

import base64
import json
import re
import subprocess
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
import texts
from identity import FILE, Identity, IdentityError, check_identity, read_identity
from index_text import index_text, project_urls

ROOT = Path(__file__).parents[2]
VERSION = texts.read_version()
HELD = Identity(
    published=True,
    index_name="evolvable-skills",
    repository="https://github.com/example-owner/evolvable",
    namespace="org.example",
    docs="https://docs.example.org/evolvable",
    contact="conduct@example.org",
)

INSTALLS = re.compile(
    r"""(?ix)
    (?:uvx|uv\ tool\ run|pipx\ run)(?:\ +--?(?!from)[\w-]+)*(?:\ +--from)?
      [\ =]+['"]?evolvable\b(?!-|\.)
    | (?:pip3?|uv\ tool|uv\ pip|pipx|uv)\ +(?:install|add|upgrade)(?:\ +-{1,2}[\w-]+)*
      \ +['"]?evolvable\b(?!-|\.|/)
    | "(?:command|runtimeHint)"\s*:\s*"(?:uvx|pipx)"
    | "identifier"\s*:\s*"evolvable"
    """
)
ADDRESSES = re.compile(
    r"""(?ix)
    https?://(?!(?:[\w.-]*\.)?(?:example|localhost|invalid|127\.0\.0\.1)\b)[^\s)>"'`]*evolvable
    | \bio\.github\.evolvable\b | \bghcr\.io/[^\s"']*evolvable | [\w.]+@evolvable\.\w+
    | (?:cursor://|vscode:mcp/)\S*
    """
)
INDEX_HOSTS = re.compile(
    r"\b(?:pypi\.org|pythonhosted\.org|registry\.npmjs\.org|ghcr\.io|docker\.io|quay\.io)\b"
)
TEXTS = {".md", ".py", ".toml", ".json", ".yml", ".yaml", ".html", ".mjs", ".txt", "", ".jinja"}
NAMES_ITS_RULE = {"tests/flow/test_release_identity.py", "release/identity.py", "release/texts.py"}
"""The rule itself, and what makes the texts of the day after."""


OTHERS = {
    ".git",
    ".venv",
    "node_modules",
    ".hypothesis",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
    "build",
}
"""Folders that tools leave in a copy of the project without git."""


def shown_files() -> list[Path]:
    """What people and programs read: all that git has, but for the tests, measured texts of others,
    and the lock.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split("\0")  # fmt: skip
    names = [name for name in listed if name] or [
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*")
        if path.is_file() and not OTHERS & set(path.relative_to(ROOT).parts)
    ]
    left_out = (
        "tests/",
        "benchmarks/scan/",
        "benchmarks/secret_rules/",
        "benchmarks/lookup/",
        "docs/images/",
    )
    return [
        ROOT / name
        for name in names
        if not name.startswith(left_out)
        and name not in NAMES_ITS_RULE
        and Path(name).suffix in TEXTS
    ]


def hits(pattern: re.Pattern[str], files: list[Path]) -> list[str]:
    found = []
    for path in files:
        if path.is_file() and not path.is_symlink():
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    return found


@pytest.mark.process  # git
def test_until_the_name_is_ours_nothing_says_to_install_it_and_no_unheld_address_is_named():
    if read_identity().published:
        pytest.skip("published: the next tests hold what has to be pinned")
    assert hits(INSTALLS, shown_files()) == []
    assert hits(ADDRESSES, shown_files()) == []


@pytest.mark.process  # git
def test_hosts_of_registries_stand_in_workflows_and_in_what_makes_addresses_only():
    # The scan knows such hosts as data: a script that talks to one is no stranger.
    allowed = (".github/workflows/", "tools/evolvable_tools/scan/")
    found = hits(INDEX_HOSTS, [path for path in shown_files() if path.suffix not in {".py"}])
    assert [hit for hit in found if not hit.startswith(allowed)] == []


@pytest.mark.parametrize(
    "line",
    [
        "uvx evolvable serve",
        "uvx --from evolvable==0.1.0 evolvable serve",
        "uvx -q evolvable",
        "pipx run evolvable setup",
        "uv tool run evolvable",
        "pip install -U 'evolvable'",
        "pip3 install evolvable[onnx]",
        "uv tool install evolvable",
        "uv add evolvable",
        '{"command": "uvx", "args": []}',
        '"runtimeHint": "uvx"',
        '"identifier": "evolvable"',
    ],
)
def test_the_guard_sees_every_way_to_run_a_package_by_its_name(line):
    assert INSTALLS.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "uv tool install .",
        "pip install '.[evolvable]'",
        "pip uninstall evolvable",
        "uvx --from FILE evolvable",
    ],
)
def test_the_guard_leaves_what_installs_from_a_clone_or_a_file(line):
    assert not INSTALLS.search(line)


@pytest.mark.parametrize(
    "line",
    [
        "https://github.com/evolvable/evolvable",
        "io.github.evolvable/evolvable",
        "https://evolvable.dev",
        "hi@evolvable.dev",
    ],
)
def test_the_guard_sees_an_address_that_nobody_holds(line):
    assert ADDRESSES.search(line)


def test_every_text_of_the_release_is_as_the_identity_and_the_version_make_it():
    assert texts.stale_texts(read_identity(), VERSION) == []


def test_the_registry_s_entry_says_that_nothing_is_published_until_it_is():
    nobody = Identity(False, "", "", "", "", "")
    entry = json.loads(texts.server_entry(nobody, VERSION))

    assert "packages" not in entry and "repository" not in entry and "websiteUrl" not in entry
    assert entry["name"].startswith("invalid.") and "NOT PUBLISHED" in entry["description"]
    assert entry["_meta"][texts.PUBLISHER] == {"published": False}


def test_the_published_entry_and_every_configuration_pin_the_exact_version():
    (package,) = json.loads(texts.server_entry(HELD, "1.2.3"))["packages"]
    cursor = texts.cursor_link(HELD, "1.2.3").partition("config=")[2]
    starts = [
        texts.pinned_start(HELD, "1.2.3"),
        json.loads(base64.b64decode(unquote(cursor))),
        json.loads(unquote(texts.vscode_link(HELD, "1.2.3").partition("?")[2])),
    ]

    assert (package["identifier"], package["version"]) == ("evolvable-skills", "1.2.3")
    for start in starts:
        assert start["command"] == "uvx"
        assert start["args"] == ["--from", "evolvable-skills==1.2.3", "evolvable", "serve"]
    parts = [make(HELD, "1.2.3") for _, make in texts.BLOCKS.values()]
    assert all(parts)
    assert re.findall(r"evolvable-skills(?!==1\.2\.3)", unquote("".join(parts))) == []


def test_the_registry_s_entry_keeps_to_the_limits_of_its_schema():
    """Of 2025-12-11; `release/check --schema FILE` validates against the schema itself."""
    for identity in (HELD, Identity(False, "", "", "", "", "")):
        entry = json.loads(texts.server_entry(identity, VERSION))
        assert re.fullmatch(r"[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+", entry["name"])
        assert 1 <= len(entry["description"]) <= 100
        for package in entry.get("packages", []):
            assert {"registryType", "identifier", "transport"} <= package.keys()


def test_the_manifests_get_a_new_version_and_the_addresses_that_somebody_holds(monkeypatch):
    made = {
        path.relative_to(ROOT).as_posix(): text for path, text in texts.release_texts(HELD, "9.8.7")
    }

    for name in (*texts.MANIFESTS, "server.json"):
        assert '"9.8.7"' in made[name] and f'"version": "{VERSION}"' not in made[name]
        assert json.loads(made[name])
    for name in texts.PLUGIN_MANIFESTS:
        manifest = json.loads(made[name])
        assert (manifest["homepage"], manifest["repository"]) == (HELD.docs, HELD.repository)


def test_an_index_is_shown_absolute_links_of_the_release_and_code_as_it_is():
    text = (
        "[a](docs/a.md#b) ![p](docs/p.png) [w](https://example.org) [s](#here)\n\n```sh\n[x](y)\n"
        "```\n"
    )

    held = index_text(text, HELD.repository, "1.2.3", HELD.namespace)
    assert "[a](https://github.com/example-owner/evolvable/blob/v1.2.3/docs/a.md#b)" in held
    assert "![p](https://github.com/example-owner/evolvable/raw/v1.2.3/docs/p.png)" in held
    assert "[w](https://example.org) [s](#here)" in held and "[x](y)" in held
    assert held.endswith("<!-- mcp-name: org.example/evolvable -->\n")


def test_without_a_repository_an_index_is_shown_no_link_that_leads_nowhere():
    shown = index_text((ROOT / "README.md").read_text(encoding="utf-8"), "", VERSION)

    assert re.findall(r"\]\((?!https?:|#)", shown) == []
    assert "![" not in shown and "mcp-name" not in shown
    assert "Tutorial" in shown
    assert project_urls("", "", VERSION) == {}


def test_the_urls_of_the_project_are_those_of_the_identity_alone():
    urls = project_urls(HELD.repository, HELD.docs, "1.2.3")
    assert all(url.startswith((HELD.repository, HELD.docs)) for url in urls.values())
    assert urls["Changelog"].endswith("/blob/v1.2.3/CHANGELOG.md")


@pytest.mark.parametrize(
    "values",
    [
        {"published": True},
        {"repository": "http://example.org/a/b"},
        {"repository": "https://example.org/a/b/"},
        {"index_name": "Evolvable; rm"},
        {"namespace": "nodots"},
        {"contact": "somebody"},
        {"published": "yes"},
        {"other": ""},
    ],
)
def test_an_identity_that_nobody_could_hold_is_refused(values):
    there = tomllib.loads(FILE.read_text(encoding="utf-8"))
    with pytest.raises(IdentityError):
        check_identity(there | values)

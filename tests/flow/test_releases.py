"""Attack T14: what a release installs is named with its hashes, and where to report is written
down.
"""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")

_ENTRY = re.compile(
    r"^(?P<pin>[^\s#-][^\\\n]*?) \\\n(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.MULTILINE,
)


def pins() -> dict[str, Requirement]:
    found = [Requirement(entry["pin"]) for entry in _ENTRY.finditer(LOCK)]
    return {canonicalize_name(one.name): one for one in found}


def test_every_line_of_the_lock_is_a_pin_with_hashes():
    rest = _ENTRY.sub("", LOCK)
    assert rest.strip() == ""
    assert all([one.operator for one in pin.specifier] == ["=="] for pin in pins().values())


def test_the_lock_names_no_index_and_no_address():
    assert not re.search(r"index-url|find-links|trusted-host|://", LOCK)


def test_every_dependency_is_locked_within_its_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = pins()
    for text in project["dependencies"]:
        needed = Requirement(text)
        pin = locked[canonicalize_name(needed.name)]
        (version,) = (one.version for one in pin.specifier)
        assert needed.specifier.contains(version), f"{text} is locked as {version}; run .ci/lock"


def test_the_lock_holds_what_a_user_needs_and_no_extra():
    assert (
        not {"torch", "sentence-transformers", "anthropic", "ray", "pytest", "ruff"} & pins().keys()
    )


def test_everything_that_the_installed_packages_need_is_locked():
    """As pip would find it here: `pip install --require-hashes` refuses a lock with a gap."""
    from importlib.metadata import PackageNotFoundError, requires

    locked = pins()
    for name in locked:
        try:
            needs = requires(name) or []
        except PackageNotFoundError:
            continue  # for another platform
        for text in needs:
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert canonicalize_name(need.name) in locked, (
                    f"{name} needs {need.name}; run .ci/lock"
                )


def test_ci_installs_from_the_lock_and_makes_a_bill_of_materials():
    run = (ROOT / ".ci/run").read_text(encoding="utf-8")
    assert "--require-hashes -r requirements.lock" in run
    assert 'cyclonedx-py" requirements' in run
    assert "requirements.lock" in run.partition("cyclonedx-py")[2]


def test_the_nightly_run_installs_the_programs_without_which_its_tests_would_be_skipped():
    nightly = (ROOT / ".ci/nightly").read_text(encoding="utf-8")
    install = nightly.partition("apt-get install")[2].partition(";")[0]
    assert {"bubblewrap", "haproxy", "openssh-server"} <= set(install.split())


@pytest.mark.nightly  # .ci/run makes one each time
@pytest.mark.process
def test_the_bill_of_materials_names_every_locked_package(tmp_path):
    """With the command of .ci/run."""
    script = shutil.which("cyclonedx-py")
    if script is None:
        pytest.skip("there is no cyclonedx-py; .ci/run installs it")
    target = tmp_path / "sbom.cdx.json"
    options = [
        "requirements",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
        "-o",
        str(target),
    ]
    subprocess.run(
        [script, *options, "requirements.lock"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    bill = json.loads(target.read_text(encoding="utf-8"))

    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "evolvable"
    assert {canonicalize_name(one["name"]) for one in bill["components"]} == pins().keys()


def test_the_bundle_starts_with_the_locked_packages_alone():
    start = (ROOT / "plugins/desktop/start.py").read_text(encoding="utf-8")
    assert '"--require-hashes", "--no-build", "--requirement", str(LOCK)' in start
    manifest = json.loads((ROOT / "plugins/desktop/manifest.json").read_text(encoding="utf-8"))
    assert "--no-project" in manifest["server"]["mcp_config"]["args"]


def test_a_person_finds_how_to_report():
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    for heading in (
        "## How to report",
        "## Supported versions",
        "## What it does not hold against",
    ):
        assert heading in text
    assert "SECURITY.md" in (ROOT / "README.md").read_text(encoding="utf-8")

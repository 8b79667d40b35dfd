"""The tools of a release: what the workflow refuses, what it pins, what the container is, and what
a cut writes.
"""

import json
import re
from pathlib import Path
from typing import Any

import checks
import pytest
import workflows
import yaml
from changelog import NoRelease, cut_release, release_notes
from container_trial import DOCKERFILE, FOLDER, environment, health_command, instructions
from identity import NEEDED_BY, Identity, read_identity
from report import Failed, NotHere, Report
from texts import read_version, with_block

ROOT = Path(__file__).parents[2]
RELEASE: dict[str, Any] = yaml.safe_load(
    (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
)
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
CHANGES = "# Changelog\n\n## Unreleased\n\n- new\n\n## 0.0.1 - 2026-01-02\n\n- old\n"


def test_a_release_is_refused_while_a_value_of_the_identity_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if not read_identity().missing:
        pytest.skip("the identity is filled in")
    output = tmp_path / "output"
    assert checks.main(["--tag", f"v{read_version()}", "--output", str(output)], "") == 1

    refused = capsys.readouterr().out
    assert all(f"{name} is empty" in refused for name in read_identity().missing)
    assert not output.exists()


def test_a_tag_that_is_not_the_version_is_refused(capsys: pytest.CaptureFixture[str]):
    assert checks.main(["--tag", "v99.0"], "") == 1
    assert "the tag is v99.0" in capsys.readouterr().out


def test_every_value_of_the_identity_says_what_is_left_out_without_it():
    nobody = Identity(False, "", "", "", "", "")
    assert set(NEEDED_BY) == set(nobody.missing)
    assert nobody.image == ""


def test_a_cut_dates_what_is_unreleased_and_its_notes_are_that_part():
    text = cut_release(CHANGES, "0.1.0", "2026-12-01")

    assert (
        text.index("## Unreleased")
        < text.index("## 0.1.0 - 2026-12-01")
        < text.index("- new")
        < text.index("## 0.0.1")
    )
    assert release_notes(text, "0.1.0") == "- new\n"
    assert release_notes(text, "0.0.1") == "- old\n"
    for version, again in (("0.1.0", text), ("0.0.1", CHANGES)):
        with pytest.raises(NoRelease):
            cut_release(again, version, "2026-12-02")
    with pytest.raises(NoRelease):
        release_notes(CHANGES, "0.1.0")


def test_every_job_of_the_release_waits_for_the_refusal():
    jobs = RELEASE["jobs"]
    assert jobs["allowed"]["steps"][-1]["run"].startswith("python release/check --tag")
    for name, job in jobs.items():
        waits, known = [name], set()
        while waits:
            needed = jobs[waits.pop()].get("needs", [])
            needed = [needed] if isinstance(needed, str) else needed
            waits += [one for one in needed if one not in known]
            known |= set(needed)
        assert name == "allowed" or "allowed" in known, name
        assert job["timeout-minutes"]


def test_only_the_jobs_that_publish_may_write():
    assert RELEASE["permissions"] == {}
    writing = {
        name: sorted(scope for scope, level in job["permissions"].items() if level == "write")
        for name, job in RELEASE["jobs"].items()
    }
    assert {name: scopes for name, scopes in writing.items() if scopes} == {
        "publish": ["attestations", "id-token"],
        "notes": ["contents"],
        "container": ["attestations", "id-token", "packages"],
        "docs": ["contents"],
    }
    assert all(
        "secrets." not in path.read_text(encoding="utf-8") for path in workflows.workflow_files()
    )


def test_every_action_stands_at_its_pin():
    assert workflows.check_pins()
    pins = workflows.read_pins()
    for pin in pins.values():
        assert re.fullmatch(r"[0-9a-f]{40}|", pin.commit)
    other = "uses: actions/checkout@v7.0.1\nuses: someone/else@v1\n"
    assert len(list(workflows.wrong_uses(other, pins))) == 2


def test_the_commit_of_an_action_that_was_seen_is_written_into_table_and_workflows(tmp_path: Path):
    table, flow = tmp_path / "pins.toml", tmp_path / "flow.yml"
    table.write_text(
        '["a/b"]\ntag = "v1"\ncommit = ""\nseen = "no"\n\n["a/c"]\ntag = "v1"\ncommit = ""\n'
        'seen = "no"\n'
    )
    flow.write_text("- uses: a/b@v1\n- uses: a/c@v1\n")
    workflows.write_pin(
        "a/b", workflows.Pin("v1", ""), workflows.Pin("v1", "f" * 40), [table, flow]
    )

    assert flow.read_text() == f"- uses: a/b@{'f' * 40} # v1\n- uses: a/c@v1\n"
    assert (
        table.read_text().count("f" * 40) == 1 and 'seen = "the action itself"' in table.read_text()
    )


def test_the_image_runs_as_no_root_and_asks_the_server_how_it_is():
    steps = instructions(DOCKERFILE.read_text(encoding="utf-8"))

    assert ("USER", "10001:10001") in steps and ("VOLUME", "/data") in steps
    assert "/healthz" in health_command(steps)
    assert environment(steps)["EVOLVABLE_HOME"].startswith("/data/")
    assert any("--require-hashes" in rest for word, rest in steps if word == "RUN")
    assert [json.loads(rest) for word, rest in steps if word == "ENTRYPOINT"] == [["evolvable"]]


def test_compose_is_reached_from_this_machine_alone_and_its_server_writes_only_its_volume():
    ports = [port for service in COMPOSE["services"].values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    server = COMPOSE["services"]["server"]
    assert server["read_only"] and server["cap_drop"] == ["ALL"]
    assert [volume.partition(":")[2] for volume in server["volumes"]] == ["/data"]


def test_a_marked_part_is_replaced_and_a_missing_one_is_named():
    text = "a\n<!-- release: x -->\nold\n<!-- release end -->\nb\n"
    assert (
        with_block(text, "x", "new\n")
        == "a\n<!-- release: x -->\n\nnew\n\n<!-- release end -->\nb\n"
    )
    assert with_block(text, "x", "") == "a\n<!-- release: x -->\n<!-- release end -->\nb\n"
    with pytest.raises(ValueError, match="y"):
        with_block(text, "y", "new\n")


def test_what_cannot_run_here_is_named_and_fails_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    def not_here() -> str:
        raise NotHere("no tool")

    def broken() -> str:
        raise Failed("it broke\nat line 3")

    file = tmp_path / "results.md"
    report = Report(file)
    report.check("one", lambda: "fine")
    report.check("two", not_here)
    assert not report.failed
    report.check("three", broken)
    report.check("one", lambda: "finer")

    assert report.failed
    rows = [
        line
        for line in file.read_text(encoding="utf-8").splitlines()
        if re.match(r"\| (one|two|three) ", line)
    ]
    assert len(rows) == 3 and "finer" in rows[0]
    assert "not run: no tool" in rows[1] and "FAILED: it broke" in rows[2]
    assert "at line 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    ["CODE_OF_CONDUCT.md", "PULL_REQUEST_TEMPLATE.md", "ISSUE_TEMPLATE/bug.yml", "dependabot.yml"],
)
def test_the_files_of_the_community_are_there(name: str):
    text = (ROOT / ".github" / name).read_text(encoding="utf-8")
    assert text.strip()
    if name.endswith(".yml"):
        assert yaml.safe_load(text)

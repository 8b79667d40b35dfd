"""Make the files of a task that a command checks: the old workspace, and the tests of the work."""

import io
import zipfile
from collections.abc import Mapping
from typing import Any

from evolvable_evolve.evolution.tasks.session_tasks import SessionTask
from evolvable_tools import Library

CHECK_SCRIPT = "check_exit.py"
"""The program beside the tasks that runs a check."""

ARCHIVE = "project.zip"
"""The archive of a large project in its workspace."""

_MAX_PLAIN = 30  # files of a workspace that are stored one by one; more are packed into one archive
_UNPACK = ["python3", "-m", "zipfile", "-e", ARCHIVE, "."]
# Left out by name, because a private key looks like any text.
_SECRET_FILES = (
    ".env",
    ".pem",
    ".key",
    ".p12",
    ".pfx",
    "id_rsa",
    "id_ed25519",
    ".netrc",
    ".npmrc",
    ".pypirc",
)
_TEST_FOLDERS = frozenset(("test", "tests", "__tests__", "spec", "testdata"))
# Names by which test runners find tests, in several languages.
_TEST_WORDS = ("test_", "_test.", ".test.", ".spec.", "_spec.", "conftest.py")
_CONFIGURATION = (
    "pytest.ini",
    "tox.ini",
    "setup.cfg",
    "noxfile.py",
    "jest.config",
    "vitest.config",
    ".mocharc",
)


def _is_test(path: str) -> bool:
    *folders, name = path.casefold().split("/")
    has_test_name = any(word in name for word in _TEST_WORDS) or name.startswith(_CONFIGURATION)
    return has_test_name or bool(_TEST_FOLDERS & set(folders))


def command_files(
    library: Library, task: SessionTask
) -> tuple[dict[str, Any], dict[str, bytes]] | str:
    """Return the record and the files of a task that a command checks, or why it cannot be made."""
    start, end = (_redact_files(library, files) for files in (task.start, task.end))
    changed = {path: data for path, data in end.items() if start.get(path) != data}
    try:
        good = {path: data.decode() for path, data in changed.items()}
    # The known good answer holds the changed files as text.
    except UnicodeDecodeError:
        return "the work changed a file that is no text"
    tests = {path: data for path, data in end.items() if _is_test(path)}
    # A large suite is the project's own; only the tests of this work decide.
    if len(tests) > _MAX_PLAIN:
        tests = {path: data for path, data in tests.items() if path in changed}
    files = {f"checks/{task.id}/{path}": data for path, data in tests.items()}
    argv = ["{python}", "{taskset}/" + CHECK_SCRIPT, task.id, *task.options, "--", *task.argv]
    record: dict[str, Any] = {"scorer": {"type": "command", "args": {"argv": argv}}}
    record["scorer"]["args"]["good"] = [{"output": "", "files": good}]
    if len(start) > _MAX_PLAIN:
        files[f"work/{task.id}/{ARCHIVE}"] = _pack(start)
        record["setup"] = [_UNPACK]
    else:
        files |= {f"work/{task.id}/{path}": data for path, data in start.items()}
    if start:
        record["files"] = f"work/{task.id}"
    return record, files


def _redact_files(library: Library, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return files without those that have secrets by their names, with the others redacted."""
    redacted = {}
    for path, data in files.items():
        name = path.rpartition("/")[2].casefold()
        if name.startswith(_SECRET_FILES) or name.endswith(_SECRET_FILES):
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError:
            # Redaction works on text; a binary file is the project's own.
            redacted[path] = data
        else:
            clean = library.redact(text)
            redacted[path] = data if clean == text else clean.encode()
    return redacted


def _pack(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(files):
            # One date for all: equal files are equal bytes.
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, files[path], zipfile.ZIP_DEFLATED)
    return buffer.getvalue()

"""Hostile runs, indexes, queues, settings, archives and trash: no file outside changes, no command
crashes.

Every example starts from the same machine, damages one file that the program reads back, and runs
commands over it.
"""

import hashlib
import io
import json
import os
import shutil
import stat
import warnings
import zipfile
from asyncio import run as run_async
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, skill_text
from evolve_runs import program, running, scripted, task
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evolvable_evolve.evolution.loop import run_phases
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.task import Split

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="links and modes as on a POSIX system"),
]

FEW = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))

RUN = "20260101-000000-abcd"
ENTRY = "20260101T000000-00000000"

PATHS = st.sampled_from(
    [
        "..",
        "../../user/.bashrc",
        "/etc/passwd",
        "a/../../outside",
        "",
        ".",
        "pdf\0x",
        "a\\..\\b",
        "//",
        "x" * 300,
        "\ud800",
    ]
)
NUMBERS = st.sampled_from(
    [0, -1, 1, 2**31, 2**63, 2**64, -(2**70), 10**400, 1e308, 1e309, -1e309, float("nan"), 0.5]
)
SCALARS = st.none() | st.booleans() | NUMBERS | st.text(max_size=8) | PATHS
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=8) | PATHS, inner, max_size=3)
    ),
    max_leaves=6,
)
BYTES = (
    st.binary(max_size=120)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.just(b"[" * 3_000)
)


class Machine:
    """A library with one watched skill and one finished run, and a person's files around it that
    nothing may change.
    """

    def __init__(self, place: Path) -> None:
        self.place, self.root, self.template = place, place / "machine", place / "template"
        self.root.mkdir()
        self.run = CommandLine(self.root)
        self.home, self.skills = self.run.home, self.root / "skills"
        self._make()
        shutil.copytree(self.root, self.template, symlinks=True)

    def _make(self) -> None:
        (self.run.user / ".ssh").mkdir(mode=0o700)
        (self.run.user / ".ssh/authorized_keys").write_text("ssh-ed25519 AAAA person\n")
        (self.run.user / ".bashrc").write_text("export A=1\n")
        (self.run.user / ".bashrc").chmod(0o640)
        outside = self.root / "outside"
        (outside / "pdf").mkdir(parents=True)
        (outside / "pdf/SKILL.md").write_text(skill_text("pdf"))
        (outside / "link").symlink_to("pdf")
        self.run.save(self.skills, "pdf", skill_text("pdf"))
        self.run("init", self.skills, "--yes")
        self.run.save(self.skills, "pdf", skill_text("pdf", body="other"))
        self.run("sync")
        self.run("export", self.root / "outside/whole.zip")
        self.run("export", self.root / "outside/whole.json")
        _finish_a_run(self.home / "evolve" / RUN)
        entry = self.home / "trash" / ENTRY
        (entry / "content/node_modules").mkdir(parents=True)
        (entry / "content/node_modules/x.js").write_text("x")
        fields = {
            "folder": str(self.skills),
            "directory": "pdf",
            "at": 1.8e9,
            "files": 1,
            "size": 1,
        }
        (entry / "entry.json").write_text(json.dumps({"id": ENTRY, **fields}))

    def reset(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self.template, self.root, symlinks=True)

    @property
    def evolution(self) -> Path:
        return self.home / "evolve" / RUN

    def snapshot(self) -> dict[str, tuple[int, bytes]]:
        """Returns mode and bytes or target of everything outside the home, the watched folder and
        its staging.
        """
        found, ours = {}, (self.home, self.skills, self.root / ".skills.evolvable", self.template)
        for folder, folders, files in os.walk(self.place):
            folders[:] = [one for one in folders if Path(folder, one) not in ours]
            for path in (Path(folder, name) for name in (*folders, *files)):
                link = path.is_symlink()
                content = (
                    os.fsencode(os.readlink(path))
                    if link
                    else path.read_bytes()
                    if path.is_file()
                    else b""
                )
                found[str(path)] = (stat.S_IMODE(path.lstat().st_mode), content)
        return found

    def check(self, *commands: tuple[object, ...], reset: bool = True) -> None:
        """Runs commands. An exception that is not turned into an error message fails the test."""
        before = self.snapshot()
        for command in commands:
            ran = self.run(*command, code=None, stdin="")
            assert ran.code in (0, 1, 2, 3, 4), (command, ran)
            assert "Traceback" not in ran.err, (command, ran)
            if ran.code == 1 and "--json" in command:
                said = _last_json(ran.out)
                assert said["error"] and said["hint"], (command, ran)
            assert self.snapshot() == before, command


def _last_json(text: str) -> Any:
    """Returns the JSON value that ends an output."""
    return json.loads(text[text.index("{") :])


def _finish_a_run(folder: Path) -> None:
    splits = {
        split: [task(split, n, *(["needs:iso"] if n % 4 != 1 else [])) for n in range(size)]
        for split, size in ((Split.TRAIN, 8), (Split.VAL, 8), (Split.TEST, 16))
    }
    given = RunSettings("environment:made-up", iterations=1, test_repeats=1)
    brain = scripted([("Dates are ISO", ["rule: iso"])])
    with running(folder, program(), brain, splits, given) as run:
        run_async(run_phases(run))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    yield Machine(tmp_path_factory.mktemp("hostile").resolve())


# Runs of evolution

WHOLE = (
    ("evolve", "status", "--json"),
    ("evolve", "status", RUN, "--json"),
    ("evolve", "status", "--all", "--json"),
    ("evolve", "status"),
    ("evolve", "pending", RUN, "--json"),
    ("evolve", "report", RUN, "--json"),
    ("evolve", "stop", RUN, "--json"),
    ("evolve", "adopt", RUN, "--unproven", "--json"),
    ("evolve", "adopt", RUN, "--undo", "--json"),
    ("evolve", "allow", RUN, "--refuse", "--json"),
    ("evolve", "watch", "--json"),
    ("evolve", "opportunities", "--json"),
    ("log", "--json"),
)


def _records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line)["record"] for line in path.read_bytes().splitlines()]


def _write_records(path: Path, records: list[Any]) -> None:
    """Writes a ledger whose lines are whole, whatever they say: whoever writes in the home can
    compute the hashes.
    """
    last, lines = b"0" * 64, []
    for record in records:
        data = json.dumps(record, separators=(",", ":")).encode()
        last = hashlib.sha256(last + data).hexdigest().encode()
        lines.append(b'{"length":%d,"sha256":"%b","record":%b}\n' % (len(data), last, data))
    path.write_bytes(b"".join(lines))


def _spots(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the places of all values in a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [at, *(spot for key, one in items for spot in _spots(one, (*at, key)))]


def _put(value: Any, spot: tuple[Any, ...], new: Any, how: str) -> Any:
    """Returns a JSON value with another one at a place, or with nothing there."""
    if not spot:
        return new
    holder = value
    for key in spot[:-1]:
        holder = holder[key]
    if how == "drop":
        del holder[spot[-1]]
    else:
        holder[spot[-1]] = new
    return value


def _hurt_json(value: Any, data: st.DataObject) -> Any:
    spot = data.draw(st.sampled_from(_spots(value)))
    return _put(value, spot, data.draw(JSON), data.draw(st.sampled_from(["set", "set", "drop"])))


def check_record(here: Machine, data: st.DataObject) -> None:
    here.reset()
    path = here.evolution / data.draw(
        st.sampled_from(["ledger.jsonl", "ledger.jsonl", "test.jsonl"])
    )
    records = _records(path)
    kinds = sorted({str(one["type"]) for one in records})
    kind = data.draw(st.sampled_from(kinds))  # else nearly all would be trials
    number = data.draw(st.sampled_from([n for n, one in enumerate(records) if one["type"] == kind]))
    records[number] = _hurt_json(records[number], data)
    _write_records(path, records)
    here.check(*WHOLE)


@FEW
@given(data=st.data())
def test_a_record_of_a_run_that_says_anything_is_an_error_at_most(
    here: Machine, data: st.DataObject
) -> None:
    check_record(here, data)


def check_lines(here: Machine, data: st.DataObject) -> None:
    here.reset()
    path = here.evolution / data.draw(st.sampled_from(["ledger.jsonl", "test.jsonl"]))
    lines = path.read_bytes().splitlines(keepends=True)
    one, other = (data.draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    how = data.draw(st.sampled_from(["swap", "double", "cut", "drop", "bytes", "records"]))
    if how == "swap":
        lines[one], lines[other] = lines[other], lines[one]
    elif how == "double":
        lines.insert(other, lines[one])
    elif how == "cut":
        lines = [*lines[:one], lines[one][: data.draw(st.integers(0, len(lines[one])))]]
    elif how == "drop":
        del lines[one]
    elif how == "bytes":
        lines[one] = data.draw(BYTES) + b"\n"
    path.write_bytes(b"".join(lines))
    if how == "records":  # in another order, and each line whole
        path.write_bytes(b"".join(lines))
        records = _records(path)
        records[one], records[other] = records[other], records[one]
        _write_records(path, records[data.draw(st.integers(0, 3)) :])
    here.check(*WHOLE)


@FEW
@given(data=st.data())
def test_a_ledger_with_lines_that_moved_or_broke_is_an_error_at_most(
    here: Machine, data: st.DataObject
) -> None:
    check_lines(here, data)


LINES = ("../x", "/etc", "a\0b", "..", "")


def check_run_file(here: Machine, data: st.DataObject) -> None:
    """Damages a file of a run, or puts a link in the place of one."""
    here.reset()
    files = sorted(
        path for path in here.evolution.rglob("*") if path.is_file() and path.suffix != ".lock"
    )
    named = [
        here.evolution / name
        for name in ("purged.jsonl", "answers/x.json", "stop", "starting", "driver.log")
    ]
    path = data.draw(st.sampled_from([*files, *named]))
    path.parent.mkdir(exist_ok=True)
    how = data.draw(st.sampled_from(["bytes", "json", "link", "folder", "gone"]))
    original = path.read_bytes() if path.is_file() else b"{}"
    path.unlink(missing_ok=True)
    if how == "bytes":
        path.write_bytes(data.draw(BYTES))
    elif how == "json":
        try:
            value = json.loads(original)
        except ValueError:
            value = {}
        path.write_text(json.dumps(_hurt_json(value, data)))
    elif how == "link":
        path.symlink_to(
            here.root / data.draw(st.sampled_from(["user/.bashrc", "outside/pdf", "nowhere", "."]))
        )
    elif how == "folder":
        path.mkdir()
    here.check(*WHOLE)


@FEW
@given(data=st.data())
def test_a_file_of_a_run_with_any_content_is_an_error_at_most(
    here: Machine, data: st.DataObject
) -> None:
    check_run_file(here, data)


@pytest.mark.parametrize("name", ["", "artifacts", "programs", "answers", "report", "workspaces"])
def test_a_folder_of_a_run_that_is_a_link_changes_nothing_outside(here: Machine, name: str) -> None:
    here.reset()
    path, other = here.evolution / name if name else here.evolution, here.root / "outside/moved"
    if path.exists():
        shutil.move(path, other)
    else:
        other.mkdir()
    path.symlink_to(other)
    here.check(*WHOLE)


@pytest.mark.parametrize(
    "name", ["report.html", "report.json", "stop", "ledger.jsonl", "driver.lock"]
)
def test_a_file_of_a_run_that_is_a_link_is_not_written_through(here: Machine, name: str) -> None:
    here.reset()
    (here.evolution / name).unlink(missing_ok=True)
    (here.evolution / name).symlink_to(here.run.user / ".bashrc")
    here.check(*WHOLE)


# Indexes and vectors

BASES = ("library.db", "vectors.db", "library.db-wal", "vectors.db-wal")


def check_database(here: Machine, data: st.DataObject) -> None:
    here.reset()
    path = here.home / data.draw(st.sampled_from(BASES))
    held = bytearray(path.read_bytes() if path.exists() else b"")
    how = data.draw(st.sampled_from(["bytes", "page", "cut", "byte"]))
    if how == "bytes" or not held:
        held = bytearray(data.draw(BYTES))
    elif how == "cut":
        del held[data.draw(st.integers(0, len(held))) :]
    elif how == "page":
        at = data.draw(st.integers(0, len(held) // 4096)) * 4096
        held[at : at + 4096] = (data.draw(st.binary(min_size=1, max_size=16)) * 4096)[:4096]
    else:
        held[data.draw(st.integers(0, len(held) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(held)
    here.check(
        ("find", "pdf", "--json"),
        ("list", "--json"),
        ("doctor", "--json"),
        ("fsck", "--json"),
        ("sync", "--json"),
    )


@FEW
@given(data=st.data())
def test_a_damaged_database_or_index_is_an_error_at_most(
    here: Machine, data: st.DataObject
) -> None:
    check_database(here, data)


# The queue of reviews


def check_queue(here: Machine, name: str, content: bytes) -> None:
    here.reset()
    path = here.home / "reviews" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    here.check(("review", "--queue", "--json"), ("review", "--queue"), ("doctor", "--json"))


QUEUED = ("queue/x.json", "queue/.json", "queue/..json", "taken/x.1-1.json", "queue/x.new")
FIELDS = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("session", "transcript", "cwd", "client", "event", "at"), SCALARS)
).map(
    lambda fields: {
        "session": "s",
        "transcript": "/etc/passwd",
        "cwd": "/",
        "client": "claude-code",
        **fields,
    }
)


@FEW
@given(
    name=st.sampled_from(QUEUED),
    content=BYTES | FIELDS.map(lambda fields: json.dumps(fields).encode()),
)
def test_an_entry_of_the_review_queue_with_any_content_is_an_error_at_most(
    here: Machine, name: str, content: bytes
) -> None:
    check_queue(here, name, content)


# The person's configuration

KEYS = (
    "approve",
    "homes",
    "trusted",
    "sandbox",
    "executors",
    "scorers",
    "judges",
    "reviewers",
    "proposers",
    "models",
)
MORE = ("approvals", "clients")
BARE = st.sampled_from(
    [
        '""',
        '".."',
        '"\\u0000"',
        "1",
        "-1e400",
        "nan",
        "true",
        "[]",
        "[[]]",
        "{}",
        "[{}]",
        "1979-05-27",
    ]
)
INNER = st.sampled_from(
    [
        "command = 1",
        'command = [""]',
        'command = ["a\\u0000b"]',
        "command = [1]",
        'path = "../.."',
        "public_key = 1",
    ]
    + [
        'public_key = "zz"',
        'signature = "x"',
        'folder = "\\u0000"',
        'folder = "a"\nhome = "\\u0000"',
        "container = 7",
        "proxy = 3",
        "path = 1",
    ]
)
LINE = st.one_of(
    st.tuples(st.sampled_from(KEYS + MORE), BARE).map(lambda one: f"{one[0]} = {one[1]}"),
    st.tuples(st.sampled_from(KEYS + MORE), INNER).map(lambda one: f"[{one[0]}]\n{one[1]}"),
    st.tuples(st.sampled_from(KEYS + MORE), INNER).map(lambda one: f"[[{one[0]}]]\n{one[1]}"),
    st.tuples(st.sampled_from(KEYS + MORE), INNER).map(lambda one: f"[{one[0]}.x]\n{one[1]}"),
)
TOML = st.lists(LINE, min_size=1, max_size=2).map(lambda lines: "\n".join(lines).encode())


def check_configuration(here: Machine, content: bytes) -> None:
    here.reset()
    path = here.run.user / ".config/evolvable/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    here.check(
        ("list", "--json"),
        ("doctor", "--json"),
        ("doctor",),
        ("executor", "list", "--json"),
        ("approvals", "status", "--json"),
        ("evolve", "status", "--json"),
        ("trust", "--list", "--json"),
    )


@FEW
@given(content=BYTES | TOML | TOML)
def test_a_configuration_of_any_content_is_an_error_at_most(here: Machine, content: bytes) -> None:
    check_configuration(here, content)


# Archives

NAMES = st.sampled_from(
    [
        "../x",
        "../../user/.bashrc",
        "/etc/x",
        "skills/../../x",
        "skills/pdf/../../x",
        "c:\\x",
        "a\\..\\..\\b",
        "x\0y",
        "",
    ]
    + [
        "skills/pdf/SKILL.md",
        "skills/pdf/",
        "x" * 400,
        "skills/pdf/SKILL.md/x",
        "con",
        "skills/PDF/SKILL.md",
    ]
)


def _hostile_zip(data: st.DataObject, source: Path) -> bytes:
    written = io.BytesIO()
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(source) as old,
        zipfile.ZipFile(written, "w") as new,
    ):
        warnings.simplefilter("ignore")  # of two entries with one name
        members = [(entry, old.read(entry)) for entry in old.infolist()]
        for entry, content in members:
            new.writestr(entry, content)
        for _ in range(data.draw(st.integers(1, 2))):
            entry = zipfile.ZipInfo()
            taken = st.sampled_from([one.filename for one, _ in members])
            entry.filename = data.draw(NAMES | taken)
            mode = data.draw(
                st.sampled_from(
                    [stat.S_IFLNK | 0o777, stat.S_IFREG | 0o7777, stat.S_IFIFO, 0, stat.S_IFDIR]
                )
            )
            entry.create_system, entry.external_attr = 3, mode << 16
            new.writestr(
                entry,
                data.draw(BYTES | st.just(b"/etc/passwd") | st.just(b"../../../user/.bashrc")),
            )
    held = bytearray(written.getvalue())
    if data.draw(st.booleans()):  # sizes, offsets and flags that are not so
        start = held.rindex(b"PK\5\6")
        begin = int.from_bytes(held[start + 16 : start + 20], "little")
        at = data.draw(st.integers(begin, len(held) - 4))
        held[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    return bytes(held)


def _hostile_json(data: st.DataObject, source: Path) -> bytes:
    value = json.loads(source.read_bytes())
    for _ in range(data.draw(st.integers(1, 2))):
        value = _hurt_json(value, data)
        if not isinstance(value, dict):
            break
    return json.dumps(value).encode()


def check_archive(here: Machine, data: st.DataObject) -> None:
    here.reset()
    end = data.draw(st.sampled_from(["zip", "json"]))
    source = here.root / "outside" / f"whole.{end}"
    made = (_hostile_zip if end == "zip" else _hostile_json)(data, source)
    archive = here.run.project / f"hostile.{end}"
    archive.write_bytes(made)
    other = here.home.with_name("library") / "other"
    here.check(
        ("import", archive, "--yes", "--json"),
        ("import", archive, "--yes", "--json", "--home", other),
        ("list", "--json", "--home", other),
        ("fsck", "--json"),
    )


@FEW
@given(data=st.data())
def test_a_well_formed_archive_that_says_anything_is_an_error_at_most(
    here: Machine, data: st.DataObject
) -> None:
    check_archive(here, data)


# The trash


def check_trash(here: Machine, data: st.DataObject) -> None:
    here.reset()
    entry = here.home / "trash" / ENTRY
    how = data.draw(st.sampled_from(["fields", "bytes", "link"]))
    if how == "bytes":
        (entry / "entry.json").write_bytes(data.draw(BYTES))
    elif how == "link":
        shutil.rmtree(entry / "content")
        (entry / "content").symlink_to(
            here.root / data.draw(st.sampled_from(["outside/pdf", "user", "nowhere"]))
        )
    else:
        fields = json.loads((entry / "entry.json").read_text())
        fields[data.draw(st.sampled_from([*sorted(fields), "x"]))] = data.draw(JSON)
        fields[data.draw(st.sampled_from(["directory", "folder"]))] = data.draw(
            PATHS | st.just(str(here.skills))
        )
        (entry / "entry.json").write_text(json.dumps(fields))
    here.check(
        ("trash", "--json"),
        ("trash",),
        ("doctor", "--json"),
        ("trash", "restore", ENTRY, "--json"),
        ("remove", "pdf", "--json"),
        ("undo", "--json"),
        ("trash", "delete", ENTRY, "--json"),
    )


@FEW
@given(data=st.data())
def test_an_entry_of_the_trash_that_says_anything_is_an_error_at_most(
    here: Machine, data: st.DataObject
) -> None:
    check_trash(here, data)


@pytest.mark.nightly
@MANY
@given(data=st.data())
def test_many_hostile_files_of_every_sort(here: Machine, data: st.DataObject) -> None:
    which = data.draw(st.integers(0, 7))
    if which == 0:
        check_queue(here, data.draw(st.sampled_from(QUEUED)), data.draw(BYTES))
    elif which == 1:
        check_configuration(here, data.draw(BYTES | TOML))
    else:
        checks = (
            check_record,
            check_lines,
            check_run_file,
            check_database,
            check_archive,
            check_trash,
        )
        checks[which - 2](here, data)

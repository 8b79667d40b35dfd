"""Path rules inside a resource, ignored names, and checks of the library's home directory.

A home holds instructions for agents and the tokens of clients, so only its owner may read or write
there. Wrong modes of this account are repaired; a home of another account is refused, unless the
person registered it. These are POSIX modes: on Windows the access lists that a home inherits from
the user's profile protect it, and nothing is checked.
"""

import contextlib
import fnmatch
import os
import re
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path

from evolvable_store.errors import InvalidPath, LibraryReadOnly, UntrustedHome, quote_text

RESERVED_NAMES = frozenset(
    ("con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in "123456789"))
)
"""Names that Windows takes for devices in any folder, with any ending, in capitals or not."""

# 400 characters are at most 1,600 bytes of UTF-8: a home's own path fits beside them into Linux's
# limit of 4,096.
MAX_PATH = 400
"""Characters of a whole path."""

# Trades deep trees for bounded walks: every reader of a folder stops here, also in a tree made to
# be endless.
MAX_DEPTH = 12
"""Components of a path."""

# Windows makes such aliases of long names (PROGRA~1), so one of these could mean another file.
_SHORT_NAME = re.compile(r"~\d")
# Windows takes none of these in a name; a colon would also address a stream beside a file on NTFS.
_FORBIDDEN = set('<>:"|?*\\')
# Unicode categories: controls, formats, surrogates, private use, separators of lines.
_INVISIBLE = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")

DISPOSABLE = (
    *(".DS_Store", "Thumbs.db", "desktop.ini"),
    # Vim creates and deletes a file 4913 to find out whether it can write into a folder.
    "4913",
    *("__pycache__", "*.pyc", "node_modules", ".venv", "venv"),
    *(".mypy_cache", ".pytest_cache", ".ruff_cache"),
)
"""Ignored names of things that a program makes again by itself."""

_OF_EDITORS = (
    *("*.swp", "*.swo", "*.swx", "*~", ".#*", "#*#", "*.bak", "*.orig", "*.rej", "*.kate-swp"),
    *("*___jb_tmp___", "*___jb_old___", ".goutputstream-*", ".~lock.*", "~$*"),
    *("*.tmp", "*.tmp.*", ".tmp*"),
)
_OF_SYSTEMS = ("._*", ".nfs*", ".fuse_hidden*")
_OF_VERSION_CONTROL = (".git", ".hg", ".svn")

IGNORED = (*DISPOSABLE, *_OF_EDITORS, *_OF_SYSTEMS, *_OF_VERSION_CONTROL)
"""Names, in any case, that are no part of a resource: temporary files, caches, version control."""

# The names that Syncthing (first part) and Dropbox or Nextcloud (second part) give to the losing
# side of a conflict.
_SYNC_COPY = re.compile(
    r".+\.sync-conflict-\d{8}-\d{6}.*|.*\([^()]*conflicted copy[^()]*\).*", re.IGNORECASE
)


def check_path(path: str) -> str:
    """Return `path` unchanged when it names a file inside a resource on every system.

    Relative, `/` between components, NFC, no component that a file system or a version control
    system treats specially (`.`, `..`, `.git`, Windows devices, 8.3 short names, trailing dot or
    space), no control or invisible characters. Raises InvalidPath with the reason.
    """
    reason = path_problem(path)
    if reason:
        raise InvalidPath(
            f"{quote_text(path)} is not a path inside a resource: {reason}.",
            "Give a relative path such as SKILL.md or references/api.md.",
        )
    return path


# Most paths of a library are the same few, such as SKILL.md.
@lru_cache(maxsize=4096)
def path_problem(path: str) -> str:
    """Return why `path` is refused, or '' when it is fine."""
    if not path:
        return "it is empty"
    if len(path) > MAX_PATH:
        return f"it has {len(path)} characters, the limit is {MAX_PATH}"
    if path.startswith("/"):
        return "it is absolute"
    try:
        # A lone surrogate stands for a byte that the system could not decode; no other system could
        # write the name.
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    # macOS hands out decomposed names: with both forms in a library, one file would have two paths.
    if unicodedata.normalize("NFC", path) != path:
        return "it is not in Unicode normal form C"
    components = path.split("/")
    if len(components) > MAX_DEPTH:
        return f"it is {len(components)} folders deep, the limit is {MAX_DEPTH}"
    for component in components:
        reason = _find_component_problem(component)
        if reason:
            return reason
    # On a file system that ignores case, Skill.md would be the main file for one client and not for
    # another.
    if path.casefold() == "skill.md" and path not in ("SKILL.md", "skill.md"):
        return "it differs from SKILL.md only by case"
    return ""


def _find_component_problem(component: str) -> str:
    if component in ("", ".", ".."):
        return f"it has the component {component!r}"
    # 255 bytes is the limit of ext4, APFS and most others for one name.
    if len(component.encode("utf-8")) > 255:
        return "a component is longer than 255 bytes"
    if any(character in _FORBIDDEN for character in component):
        return 'it has one of the characters < > : " | ? * \\'
    # Such characters hide the end of a name, or reverse how it is displayed.
    if any(unicodedata.category(character) in _INVISIBLE for character in component):
        return "it has a control or invisible character"
    # A program that normalizes names to NFKC would turn a full-width slash into a separator.
    plain = unicodedata.normalize("NFKC", component)
    has_special = any(special in plain for special in (".", "/", "\\"))
    if has_special and plain.translate({0x2024: "."}) != component:
        return "it has a look-alike of a dot or a slash"
    # Windows drops dots and spaces at the end; a command takes a name with a dash in front for an
    # option.
    if component[-1] in ". " or component[0] in " -":
        return "a component starts with a space or dash, or ends with a dot or space"
    # Some web servers read `..;x` as `..`.
    if ";" in component and component.split(";")[0] in (".", ".."):
        return "it has a path parameter"
    # Windows looks at the part before the first dot alone: con.md is the console too.
    stem = component.split(".")[0].casefold().rstrip()
    if stem in RESERVED_NAMES:
        return f"{component} is a device on Windows"
    if component.casefold() == ".git" or _SHORT_NAME.search(component):
        return f"{component} is reserved"
    return ""


Registered = Callable[[], Iterable[Path]]
"""Returns the homes that the person registered.

Called only where it matters, as it may have to read a file.
"""

_IsRegistered = Callable[[], bool]


@lru_cache(maxsize=4096)
def is_ignored(name: str) -> bool:
    """Return whether an entry of this name, one part of a path, is never part of a resource."""
    return bool(_compile_names(IGNORED).match(name))


@lru_cache(maxsize=4096)
def is_sync_copy(name: str) -> bool:
    """Return whether a file of this name is a synchroniser's copy, and so no part of a resource."""
    return bool(_SYNC_COPY.fullmatch(name))


@lru_cache(maxsize=4096)
def is_disposable(name: str) -> bool:
    """Return whether an entry of this name is ignored, and made again by a program when deleted."""
    return bool(_compile_names(DISPOSABLE).match(name))


# Compiled when first used, not at the import: that would cost time at every start.
@cache
def _compile_names(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, patterns)), re.IGNORECASE)


CONFIGURATION = "~/.config/evolvable/config.toml"
"""Where a person registers homes, as messages name it."""

LIBRARY_FILE = "library.db"

ADDRESS_FILE = "postgres.json"
"""In place of the library file: where the library lies in PostgreSQL."""

EMBEDDED_FOLDER = "postgres-server"
"""Where the files of a PostgreSQL lie that was started to try it."""

CHANGE_MARK = "postgres.changed"
"""Written when another process changed a library in PostgreSQL."""

PLACES_FILE = "places.db"
"""The file with the watched folders of a library in PostgreSQL, and other paths of this machine."""

CARRIED_PLACES = "carried-places.json"
"""The watched folders of the library that this one was copied from, which wait for the person."""

FOLDER_NAMES = "folder-names.json"
"""The file with the paths by which a person named the watched folders."""

HELD_POWERS = "held-powers"
"""The folder with records of the powers that directories have in place of those out of force."""

GIT_POSITIONS = "git-positions.json"
"""The file with the ends that the logs of git repositories had when folders were imported."""

INSTALLED_SKILLS = "installed-skills.json"
"""The file with the hashes in installers' lock files at the last read of the watched folders."""

UNWRITTEN = "unwritten"
"""The folder with rows of evidence that could not be stored before a process ended."""

NEAR_DUPLICATES = "near-duplicates.jsonl"
"""The file with new descriptions to compare, and near duplicates for `evolvable status`."""

PLACES_FILES = tuple(f"{PLACES_FILE}{end}" for end in ("", "-wal", "-shm", "-journal"))

LIBRARY_FILES = tuple(f"{LIBRARY_FILE}{end}" for end in ("", "-wal", "-shm", "-journal"))

MIRRORS, RUNS, AGENT_RUNS = "remotes", "evolve", "ags"
"""Folders of the home that annexes write.

They are mirrors of git remotes, runs of evolution, and runs of agents.
"""

# Hooks, tokens and the queue of reviews can be written before anybody makes a library.
_BESIDE = frozenset(
    {
        *("ags", "callers", "copies.jsonl", "evolve", "hooks", "locks", "recovery", "redact.txt"),
        *("remotes", "projects.json", "reviews", "tokens.json", "tokens.lock", "trash"),
        *(FOLDER_NAMES, GIT_POSITIONS, HELD_POWERS, INSTALLED_SKILLS, NEAR_DUPLICATES, UNWRITTEN),
    }
)
"""Names that may lie in a home before its library does.

`_BESIDE_BEGINS` holds beginnings of further names.
"""

_BESIDE_BEGINS = (
    *("library.db", "index.db", "index-", "vectors.db", "postgres", PLACES_FILE, CARRIED_PLACES),
    *("embedder", "approvals", ".backup-", ".DS_Store"),
)

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def holds_library(home: Path) -> bool:
    """Return whether a home has a library: a file, or the address of one in PostgreSQL."""
    return (home / LIBRARY_FILE).exists() or (home / ADDRESS_FILE).exists()


def is_address(text: str) -> bool:
    """Return whether a text names a library in PostgreSQL, in place of a folder."""
    return text.startswith(("postgresql://", "postgres://"))


# The home itself is private; folders above it that are missing get the mode that a mkdir under the
# usual umask gives.
_FOLDER = 0o700
_PARENT = 0o755


def no_homes() -> Iterable[Path]:
    """Return no homes: the default where a caller registers none."""
    return ()


def check_home(
    place: Path | str, registered: Registered = no_homes, *, create: bool = False
) -> None:
    """Make sure that a library may be opened in a folder, and that only this account can reach it.

    create: make the folder when it is missing. The rights of others in a home of this account are
    taken away. A folder that holds no library and other files is refused, or left as it is without
    `create`, unless the person registered it. Raises UntrustedHome for a home that is refused,
    LibraryReadOnly when the folder cannot be made.
    """
    home = Path(place)
    if os.name != "posix":
        if create:
            _make(home)
        return
    # The target of a link is checked: its owner, not the link's, decides what lies there.
    real = Path(os.path.realpath(home))

    # Read at most once, and only where the answer matters: registered() may read the person's
    # configuration.
    @lru_cache(maxsize=1)
    def is_registered() -> bool:
        return any(Path(os.path.realpath(path)) == real for path in registered())

    # Before the folder is made: a repository that names a home must not get one created.
    _check_work_tree(home, real, is_registered)
    if create:
        _make(real)
    try:
        status = os.stat(real)
    except OSError:
        return  # there is none, or it cannot be reached, and opening it reports so
    _check_parents(home, real, is_registered)
    if status.st_uid != os.geteuid():
        # A home of another account is used as it is, if registered: its modes are not this
        # account's to change.
        if not is_registered():
            raise _make_foreign_error(home, home, status)
        return
    _check_library(home, real, is_registered)
    if (other := _find_foreign_entry(real)) and not is_registered():
        if create:
            raise UntrustedHome(
                f"{home} holds no library and other files ({quote_text(str(other))}), so it is no "
                "folder for one.",
                f"Name a new folder; or, if you mean this one, add {real} to `homes` in "
                f"{CONFIGURATION}.",
            )
        return
    _repair(real, status)


def home_exposure(home: Path) -> str:
    """Return the rights of other accounts in a home: "read", "read and change", or ''.

    `check_home` takes their rights away, which has no effect on a file system without modes.
    """
    if os.name != "posix":
        return ""
    try:
        status = os.stat(home)
    except OSError:
        return ""
    if status.st_uid != os.geteuid() or not status.st_mode & _OTHERS:
        return ""
    return "read and change" if status.st_mode & _OTHERS_WRITE else "read"


def work_tree(folder: Path) -> Path | None:
    """Return the innermost folder at or above this one that has a `.git`, None for none."""
    return next(
        (above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), None
    )


def _check_work_tree(home: Path, real: Path, is_registered: _IsRegistered) -> None:
    tree = work_tree(real)
    if tree is None or is_registered():
        return
    raise UntrustedHome(
        f"{home} lies in the work tree {tree}, so a repository may have named it as the library.",
        f"If it is yours, add {real} to `homes` in {CONFIGURATION}; else unset EVOLVABLE_HOME.",
    )


def _check_parents(home: Path, real: Path, is_registered: _IsRegistered) -> None:
    """Take from others the right to replace the home.

    Raise UntrustedHome where another account owns a folder above, and gives everybody that right.
    """
    for folder in reversed(real.parents):
        try:
            status = os.stat(folder)
        except OSError:
            return
        # With the sticky bit, as in /tmp, only the owner of an entry can replace it.
        if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
            if status.st_uid == os.geteuid():
                _restrict(folder, status.st_mode & ~stat.S_IWOTH)
            elif not is_registered():
                raise UntrustedHome(
                    f"{home} lies in {folder}, where every account can replace it "
                    f"({_describe_owner(status)}).",
                    f"Move the library to another folder, or add {real} to `homes` in "
                    f"{CONFIGURATION}.",
                )
        if not status.st_mode & stat.S_IXOTH:
            return  # others do not get any further


def _check_library(home: Path, real: Path, is_registered: _IsRegistered) -> None:
    """Raise UntrustedHome for a library that another account put into a home of this account."""
    for name in LIBRARY_FILES:
        with contextlib.suppress(OSError):
            # lstat: a link that another account placed counts as that account's, wherever it leads.
            status = os.lstat(real / name)
            if status.st_uid != os.geteuid() and not is_registered():
                raise _make_foreign_error(home, home / name, status)


def _find_foreign_entry(home: Path) -> str:
    """Return the name of an entry that no library made, '' for none.

    A folder that holds a library has none.
    """
    # A project's configuration may have named the folder, and the modes of a home are changed.
    with contextlib.suppress(OSError):
        if not holds_library(home):
            others = (name for name in sorted(os.listdir(home)) if name not in _BESIDE)
            return next((name for name in others if not name.startswith(_BESIDE_BEGINS)), "")
    return ""


def _make_foreign_error(home: Path, what: Path, status: os.stat_result) -> UntrustedHome:
    return UntrustedHome(
        f"{what} belongs to another account ({_describe_owner(status)}), and this process runs as "
        f"user {os.geteuid()}.",
        f"If you trust that account, add {home} to `homes` in {CONFIGURATION}; else name a folder "
        "of your own.",
    )


def _describe_owner(status: os.stat_result) -> str:
    return f"owner {status.st_uid}, mode {stat.S_IMODE(status.st_mode):04o}"


def _repair(real: Path, status: os.stat_result) -> None:
    """Take away the rights of others in a home of this account.

    status: of the home before.
    """
    was_open = bool(status.st_mode & _OTHERS)
    if was_open:
        _restrict(real, status.st_mode & _FOLDER)
    # Others cannot reach the entries of a closed home, so all of it is walked only after it was
    # open.
    for path, entry_status in _walk_entries(str(real)) if was_open else _list_entries(str(real)):
        others = entry_status.st_mode & _OTHERS
        if os.path.basename(path) == "tokens.json" and entry_status.st_mode & _OTHERS_WRITE:
            # Another account may have written its content; reading it reports so.
            continue
        if others and entry_status.st_uid == os.geteuid():
            _restrict(Path(path), entry_status.st_mode & _FOLDER)


def _list_entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield files and folders in a folder, no links."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISLNK(status.st_mode):
                    yield entry.path, status


def _walk_entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    for path, status in _list_entries(folder):
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            yield from _walk_entries(path)


def _restrict(path: Path, mode: int) -> None:
    """Set a mode, where the file system has modes and can be written."""
    with contextlib.suppress(OSError):
        os.chmod(path, stat.S_IMODE(mode))


def _make(home: Path) -> None:
    """Make a home that only this account can reach, whatever the umask.

    Missing folders above it are made so that others can only read them.
    """
    try:
        # One by one from the top: mkdir(parents=True) would ignore the mode for the folders above.
        for folder in reversed(home.parents):
            if not folder.exists():
                folder.mkdir(mode=_PARENT, exist_ok=True)
        if not home.is_dir():
            home.mkdir(mode=_FOLDER, exist_ok=True)
            # The umask may have taken bits away from the mode of mkdir; chmod is not subject to it.
            home.chmod(_FOLDER)
    except OSError as error:
        raise LibraryReadOnly(
            f"{home} cannot be made: {error.strerror}.", "Name another folder."
        ) from error


def seed_folder() -> Path:
    """Return the folder of the seed resources, such as skills/<name>/SKILL.md below it.

    An installer may have left __pycache__ folders beside the scripts; they are no part of a
    resource.
    """
    return Path(__file__).resolve().parent / "seed"


def running_postgres(data: Path) -> int | None:
    """Return the process id of the server of a PostgreSQL data folder, None where it ended.

    A server that was killed leaves its pid file. Where the system does not show processes (Linux
    does), the file alone decides.
    """
    try:
        number = int((data / "postmaster.pid").read_text(encoding="utf-8").splitlines()[0])
        command = Path(f"/proc/{number}/cmdline")
        # The process number of a dead server may belong to another program by now, which does not
        # name the folder.
        shows_processes = Path("/proc/self/cmdline").exists()
        if shows_processes and os.fsencode(data) not in command.read_bytes().split(b"\0"):
            return None
    except (OSError, ValueError, IndexError):
        return None
    return number


def open_elsewhere(path: Path) -> Iterator[str]:
    """Yield the other processes of this user that have the file open, with their commands.

    Only Linux shows them.
    """
    for process in Path("/proc").glob("[0-9]*"):
        if process.name == str(os.getpid()):
            continue
        with contextlib.suppress(OSError):
            open_paths = map(os.readlink, (process / "fd").iterdir())
            if str(path.resolve()) in open_paths:
                arguments = (process / "cmdline").read_bytes().replace(b"\0", b" ")
                command = arguments.decode("utf-8", "replace").strip()
                yield f"{process.name} {command[:200]}"

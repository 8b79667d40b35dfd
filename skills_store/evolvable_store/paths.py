"""The one check that every path of a file inside a resource passes, whichever door it comes through."""

import re
import unicodedata
from functools import lru_cache

from evolvable_store.devices import DEVICES
from evolvable_store.errors import InvalidPath

MAX_PATH = 400
"""Characters of a whole path."""

MAX_DEPTH = 12
"""Components of a path."""

_SHORT_NAME = re.compile(r"~\d")
_FORBIDDEN = set('<>:"|?*\\')


def check_path(path: str) -> str:
    """Returns `path` unchanged when it names a file inside a resource on every system.

    Relative, `/` between components, NFC, no component that a file system or a version control system treats
    specially (`.`, `..`, `.git`, Windows devices, 8.3 short names, trailing dot or space), no control or
    invisible characters. Raises InvalidPath with the reason.
    """
    reason = path_problem(path)
    if reason:
        raise InvalidPath(
            f"{_shown(path)} is not a path inside a resource: {reason}.",
            "Give a relative path such as SKILL.md or references/api.md.",
        )
    return path


@lru_cache(maxsize=4096)  # a library says SKILL.md a lot
def path_problem(path: str) -> str:
    """Returns why `path` is refused, or '' when it is fine."""
    if not path:
        return "it is empty"
    if len(path) > MAX_PATH:
        return f"it has {len(path)} characters, the limit is {MAX_PATH}"
    if path.startswith("/"):
        return "it is absolute"
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    if unicodedata.normalize("NFC", path) != path:
        return "it is not in Unicode normal form C"
    components = path.split("/")
    if len(components) > MAX_DEPTH:
        return f"it is {len(components)} folders deep, the limit is {MAX_DEPTH}"
    for component in components:
        reason = _component_problem(component)
        if reason:
            return reason
    if len(components) == 1 and path.casefold() == "skill.md" and path not in ("SKILL.md", "skill.md"):
        return "it differs from SKILL.md only by case"
    return ""


def _component_problem(component: str) -> str:
    if component in ("", ".", ".."):
        return f"it has the component {component!r}"
    if len(component.encode("utf-8")) > 255:
        return "a component is longer than 255 bytes"
    if any(character in _FORBIDDEN for character in component):
        return 'it has one of the characters < > : " | ? * \\'
    if any(unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") for character in component):
        return "it has a control or invisible character"
    if unicodedata.normalize("NFKC", component).translate({0x2024: "."}) != component and any(
        special in unicodedata.normalize("NFKC", component) for special in (".", "/", "\\")
    ):
        return "it has a look-alike of a dot or a slash"
    if component[-1] in ". " or component[0] in " -":
        return "a component starts with a space or dash, or ends with a dot or space"
    if ";" in component and component.split(";")[0] in (".", ".."):
        return "it has a path parameter"
    stem = component.split(".")[0].casefold().rstrip()
    if stem in DEVICES:
        return f"{component} is a device on Windows"
    if component.casefold() == ".git" or _SHORT_NAME.search(component):
        return f"{component} is reserved"
    return ""


def _shown(path: str) -> str:
    text = path if len(path) <= 80 else path[:77] + "..."
    return ascii(text)

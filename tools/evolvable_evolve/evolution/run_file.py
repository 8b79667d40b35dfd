"""Read the settings of a run: from the run's file, options, or MCP."""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from difflib import get_close_matches
from typing import Any

from evolvable_evolve.evolution.run_config import RunSettings, SpendLimit
from evolvable_store.errors import InvalidArgument

GIVEN: Mapping[str, Field[Any]] = {
    setting.name: setting for setting in fields(RunSettings) if "about" in setting.metadata
}
"""The settings that a person or an agent gives, by name. The others follow from the start."""

LIMITS: Mapping[str, Field[Any]] = {setting.name: setting for setting in fields(SpendLimit)}

OF_EXECUTOR = {
    "rounds": "Rounds in which each answer is improved by public checks, 0 to 3.",
    "stand_in": "`true`: no real model is behind the executor, and figures are labelled scripted.",
}
"""Keys of the run's file that belong to its executor, with their rows in the manual."""

_OTHER_NAMES = {
    "pass_at": "fail_below",
    "max_cost": "cost",
    "max_tokens": "tokens",
    "max_calls": "calls",
}
"""Options whose setting has another name."""

_GONE: Mapping[str, tuple[Any, str]] = {
    "final": ("staged", "The sealed test is measured in stages; the test of one stage is gone."),
    "give_up_below": (
        0,
        "`evolve status` shows the chance that is left, and `evolve stop` ends a run.",
    ),
}
"""Settings of earlier versions: the value that changes nothing, and what replaces them."""

_KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "a whole number"),
    int | None: ((int, type(None)), "a whole number"),
    float: ((int, float), "a number"),
    float | None: ((int, float, type(None)), "a number"),
    str: ((str,), "a text"),
    tuple[int, int]: ((tuple, list), "two whole numbers"),
}


def read_run_file(data: bytes) -> dict[str, Any]:
    """Return the settings in a run's file, with the keys of its executor.

    Raises InvalidArgument.
    """
    try:
        settings = tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        hint = "It is TOML, a setting a line, such as `seed = 7`; docs/evolve.md lists them."
        raise InvalidArgument(
            f"The run's file cannot be read: {ascii(str(error)[:200])}.", hint
        ) from None
    for name in settings:
        _check_name(name, (*GIVEN, *LIMITS, *OF_EXECUTOR))
    if not isinstance(settings.get("stand_in", False), bool):
        raise InvalidArgument(
            f"stand_in is {ascii(str(settings['stand_in'])[:80])}.", "It is true or false."
        )
    return settings


def make_settings(options: Mapping[str, Any], *, internal: bool = False) -> RunSettings:
    """Return the settings of these options. internal: settings that follow from the start may be
    among them.

    Raises InvalidArgument for an unknown name, and for a value that does not fit.
    """
    inner = {setting.name for setting in fields(RunSettings)} - GIVEN.keys()
    inner_names = sorted(options.keys() & inner)
    # An agent must not name the purpose or the version of a task set itself.
    if inner_names and not internal:
        raise InvalidArgument(
            f"{', '.join(inner_names)} is no setting that is given.", "See docs/evolve.md."
        )
    rest, limits = dict[str, Any](), dict[str, Any]()
    for name, value in options.items():
        if name in _GONE:
            _check_gone(name, value)
        elif name in LIMITS:
            limits[name] = _fit(name, LIMITS[name].type, value)
            # `not >=` and not `<`: no bill would ever reach a limit that is NaN.
            if value is not None and not value >= 0:
                raise InvalidArgument(f"{name} is {value}.", "It is 0 or more.")
        elif name in inner:
            rest[name] = value
        else:
            _check_name(name, (*GIVEN, *LIMITS))
            rest[name] = _fit(name, GIVEN[name].type, value)
    return RunSettings("", limit=SpendLimit(**limits), **rest)


def setting_rows() -> list[tuple[str, str, str]]:
    """Return the keys of the run's file for the manual: the name, the default, and the meaning."""
    rows = []
    for name, setting in GIVEN.items():
        usual: Any = setting.default
        if isinstance(usual, tuple):
            usual = f"[{', '.join(map(str, usual))}]"
        default = "" if usual in (None, "", MISSING) else f"`{usual}`"
        among = setting.metadata.get("among")
        values = f" One of {', '.join(f'`{value}`' for value in among)}." if among else ""
        rows.append((f"`{name}`", default, setting.metadata["about"] + values))
    rows += [(f"`{name}`", "", about) for name, about in OF_EXECUTOR.items()]
    what = "The limits of `--max-cost`, `--max-tokens` and `--max-calls`, and seconds of trials."
    return [*rows, (", ".join(f"`{name}`" for name in LIMITS), "", what)]


def _check_name(name: str, names: tuple[str, ...]) -> None:
    if name in names or name in _GONE:
        return
    near = _OTHER_NAMES.get(name, "")
    if not near:
        near = next(iter(get_close_matches(name.replace("-", "_"), names, 1)), "")
    hint = f"Did you mean {near}? " if near else ""
    raise InvalidArgument(
        f"{ascii(name[:80])} is no setting of a run.", f"{hint}docs/evolve.md lists the settings."
    )


def _check_gone(name: str, value: Any) -> None:
    same, instead = _GONE[name]
    # The value that was the default has always meant what happens now.
    if value not in (None, same):
        raise InvalidArgument(
            f"{name} is no setting any more, and it was {ascii(str(value)[:40])}.", instead
        )


def _fit(name: str, kind: Any, value: Any) -> Any:
    """Return a value in the type of its setting. Raises InvalidArgument for one of another type."""
    if kind not in _KINDS:
        if isinstance(value, Mapping):
            return value
        raise InvalidArgument(
            f"{name} is {ascii(str(value)[:80])}.", "It is a table of names and numbers."
        )
    types, expected = _KINDS[kind]
    if int in types and float not in types and isinstance(value, float) and value.is_integer():
        value = int(value)  # JSON has one kind of numbers, and some clients write 500.0
    # A bool is an int in Python.
    if isinstance(value, types) and not isinstance(value, bool):
        if not isinstance(value, tuple | list):
            return value
        if len(value) == 2 and all(type(number) is int for number in value):
            return tuple(value)
    raise InvalidArgument(f"{name} is {ascii(str(value)[:80])}.", f"It is {expected}.")

"""The settings of a run: in its file, by options, over MCP, and those that are gone."""

import json
import re
from pathlib import Path

import pytest
from evolution_place import EvolutionPlace

from evolvable_evolve.evolution.ledger.run_directory import find_run
from evolvable_evolve.evolution.ledger.run_reducer import load_run_state
from evolvable_evolve.evolution.run_config import RunSettings
from evolvable_evolve.evolution.run_file import GIVEN, make_settings, read_run_file
from evolvable_store.errors import InvalidArgument

MOST_OPTIONS = 20

START = (
    "evolve",
    "start",
    "environment:order-emails",
    "-p",
    "order-fields",
    "--executor",
    "orders",
    "--free",
)

BEFORE = (
    *(
        "--judge",
        "--rounds",
        "--structure",
        "--samples",
        "--rejections",
        "--open-above",
        "--batch",
        "--edits",
    ),
    *(
        "--parent",
        "--admit",
        "--frontier",
        "--stalls",
        "--screen-above",
        "--repeats",
        "--final",
        "--test-repeats",
    ),
    *(
        "--test-alpha",
        "--least-gain",
        "--cost-rise",
        "--coverage",
        "--stale-hours",
        "--target",
        "--pass-at",
        "--seed",
    ),
    *("--concurrency", "--backend", "--give-up-below", "--stand-in"),
)
"""Options that the help listed before there was a file."""

WHOLE = """
seed = 7
batch = [4, 2]
open_above = 0.05
fail_below = 1
parent = "best"
tokens = 1000
cost = 2

[structure]
mass = 0.5
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> EvolutionPlace:
    return EvolutionPlace(tmp_path_factory.mktemp("place"))


def settings_of(place: EvolutionPlace, *options: object) -> dict:
    """The settings that the ledger of a run has."""
    run = place(*START, *options, "--json").json["run"]
    place("evolve", "stop", run)
    return dict(load_run_state(find_run(place.home, run)).settings)


def test_the_file_gives_what_options_gave_and_a_limit():
    found = make_settings(read_run_file(WHOLE.encode()))

    assert (found.seed, found.batch, found.open_above, found.fail_below, found.parent) == (
        7,
        (4, 2),
        0.05,
        1,
        "best",
    )
    assert found.structure == {"mass": 0.5} and (found.limit.tokens, found.limit.cost) == (1000, 2)
    assert read_run_file(b"\xef\xbb\xbf# nothing yet\n") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("trails = 3", "'trails' is no setting of a run. Did you mean trials?"),
        ("pass_at = 1.0", "Did you mean fail_below?"),
        ("open-above = 0.1", "Did you mean open_above?"),
        ("max_cost = 3", "Did you mean cost?"),
        ("executor = 'x'", "'executor' is no setting"),
        ("seed = '7'", "seed is '7'. It is a whole number."),
        ("seed = true", "seed is 'True'. It is a whole number."),
        ("batch = [3]", "batch is '[3]'. It is two whole numbers."),
        ("batch = [3, 101]", "batch is 101. It is 1 to 100."),
        ("batch = 3", "It is two whole numbers."),
        ("cost = 'much'", "cost is 'much'. It is a number."),
        ("cost = nan", "cost is nan. It is 0 or more."),
        ("tokens = -1", "tokens is -1. It is 0 or more."),
        ("coverage = nan", "coverage is nan. It is 0 to 1."),
        ("structure = 1", "It is a table of names and numbers."),
        ("stand_in = 1", "It is true or false."),
        ("parent = 'eldest'", "It is one of round_robin, best"),
        ("seed =", "cannot be read"),
        ("final = 'single'", "The sealed test is measured in stages"),
        ("give_up_below = 0.1", "`evolve stop` ends a run"),
    ],
)
def test_what_is_no_setting_or_does_not_fit_one_is_an_error_that_names_it(text, why):
    with pytest.raises(InvalidArgument) as refused:
        make_settings(
            {name: one for name, one in read_run_file(text.encode()).items() if name != "stand_in"}
        )

    assert why in f"{refused.value.text} {refused.value.hint}"


def test_a_setting_that_is_gone_may_be_given_with_the_value_that_is_meant_now():
    assert make_settings({"final": "staged", "give_up_below": 0.0, "seed": 3}) == RunSettings(
        "", seed=3
    )


def test_lists_of_json_are_pairs():
    assert make_settings(json.loads('{"batch": [4, 1], "edits": [2, 1]}')).edits == (2, 1)


def test_the_manual_has_a_row_for_each_setting():
    text = (Path(__file__).parents[2] / "docs/evolve.md").read_text(encoding="utf-8")
    rows = text.partition("<!-- registry: settings -->")[2].partition("<!-- end -->")[0]

    assert set(GIVEN) | {"rounds", "stand_in"} <= set(
        re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE)
    )


@pytest.mark.process
def test_the_help_lists_at_most_twenty_options_and_names_the_file(place):
    text = place("evolve", "start", "--help").out

    assert len(re.findall(r"^  (?:-\w, )?--[a-z-]+", text, re.MULTILINE)) <= MOST_OPTIONS
    assert "--file FILE" in text and "docs/evolve.md" in text
    assert "--seed " not in text.partition("Options:")[2]


@pytest.mark.process
def test_an_option_counts_before_the_file_and_the_file_before_the_default(place, tmp_path):
    (tmp_path / "run.toml").write_text(WHOLE, encoding="utf-8")

    found = settings_of(place, "--file", tmp_path / "run.toml", "--seed", 8, "--max-tokens", 2000)

    assert (found["seed"], found["batch"], found["open_above"]) == (8, [4, 2], 0.05)
    assert found["structure"] == {"mass": 0.5} and found["stalls"] == RunSettings("").stalls
    assert (found["limit"]["tokens"], found["limit"]["cost"]) == (2000, 2)


@pytest.mark.process
def test_options_that_left_the_help_are_still_taken(place):
    given = (
        "--samples",
        3,
        "--rejections",
        2,
        "--open-above",
        0.1,
        "--batch",
        4,
        1,
        "--edits",
        3,
        1,
        "--frontier",
        2,
    )
    given += (
        "--parent",
        "best",
        "--admit",
        "better-than-worst",
        "--stalls",
        4,
        "--screen-above",
        9,
        "--repeats",
        2,
    )
    given += (
        "--test-repeats",
        3,
        "--test-alpha",
        0.02,
        "--least-gain",
        0.1,
        "--cost-rise",
        1,
        "--coverage",
        0.5,
    )
    given += (
        "--stale-hours",
        2,
        "--target",
        0.9,
        "--pass-at",
        0.8,
        "--seed",
        5,
        "--concurrency",
        2,
    )
    given += (
        "--backend",
        "tasks",
        "--structure",
        "mass=0.4",
        "--final",
        "staged",
        "--give-up-below",
        0,
        "--stand-in",
    )

    found = settings_of(place, *given)

    names = [word[2:].replace("-", "_") for word in given if str(word).startswith("--")]
    assert {f"--{name.replace('_', '-')}" for name in names} | {"--rounds", "--judge"} == set(
        BEFORE
    )
    expected = {
        "samples": 3,
        "batch": [4, 1],
        "edits": [3, 1],
        "parent": "best",
        "fail_below": 0.8,
        "seed": 5,
    }
    expected |= {
        "coverage": 0.5,
        "structure": {"mass": 0.4},
        "stale_hours": 2,
        "backend": "tasks",
        "cost_rise": 1,
    }
    assert expected.items() <= found.items() and found["executor"]["scripted"] is True


@pytest.mark.process
@pytest.mark.parametrize(
    ("option", "why"),
    [
        (("--final", "single"), "measured in stages"),
        (("--give-up-below", "0.12"), "`evolve stop` ends a run"),
    ],
)
def test_an_option_that_is_gone_is_an_error_and_starts_nothing(place, option, why):
    before = len(list((place.home / "evolve").glob("*/ledger.jsonl")))

    assert why in place(*START, *option, code=1).err
    assert len(list((place.home / "evolve").glob("*/ledger.jsonl"))) == before

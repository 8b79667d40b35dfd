"""Who helps a lookup: what each setting of the environment gives, and what it costs before anybody
is asked.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from model_api import ModelApi, chooses

from evolvable_server.config import Config, read_config
from evolvable_server.model_setup import hub_environment, open_search
from evolvable_store.errors import EvolvableError, Refused
from evolvable_tools.embedding.embedder import DEFAULT_MODEL, absolute_spec, installed_spec
from evolvable_tools.embedding.embedder_client import SharedEmbedder, harmless_environment
from evolvable_tools.library import Library
from evolvable_tools.llm.api_model import ApiModel
from evolvable_tools.llm.command_model import CommandModel
from evolvable_tools.llm.endpoint import MODEL
from evolvable_tools.llm.language_model import LanguageModel, Request
from evolvable_tools.retrieval.search_types import (
    FEW,
    FITS,
    FITS_FEW,
    MANY,
    SearchDependencies,
    fits_from,
)

HEAVY = (
    "numpy",
    "anthropic",
    "onnxruntime",
    "tokenizers",
    "torch",
    "sentence_transformers",
    "huggingface_hub",
)

USUAL = f"anthropic:{MODEL}"

KEY = {"ANTHROPIC_API_KEY": "sk-ant-of-the-test"}

ASKED = Request(
    "Choose.",
    "{}",
    {
        "type": "object",
        "properties": {"choice": {"type": "string"}, "why": {"type": "string"}},
        "required": ["choice", "why"],
        "additionalProperties": False,
    },
)

Open = Callable[..., SearchDependencies]


@pytest.fixture
def config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Mapping[str, str]], Config]:
    """Reads the settings of an environment, over a library's folder and an account of its own."""
    monkeypatch.setenv("EVOLVABLE_TEST_ACCOUNT", str(tmp_path))
    (tmp_path / "home").mkdir()
    return lambda environment: read_config(
        {"EVOLVABLE_HOME": str(tmp_path / "home"), **environment}
    )


def configure(tmp_path: Path, text: str) -> None:
    """Writes the person's configuration of the account."""
    path = tmp_path / ".config/evolvable/config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def means(config: Callable[[Mapping[str, str]], Config]) -> Iterator[Open]:
    """Opens what the environment and the account name: `means(EVOLVABLE_EMBEDDER="off")`."""
    with ExitStack() as stack:

        def open_(*, serving: bool = True, **environment: str) -> SearchDependencies:
            return stack.enter_context(open_search(config(environment), serving=serving))

        yield open_


def name_of(thinker: LanguageModel | None) -> str | None:
    if thinker is None:
        return None
    return thinker.name.rpartition(":")[0] if isinstance(thinker, CommandModel) else thinker.name


# The embedder


@pytest.mark.parametrize("value", ["", "auto", " auto "])
def test_by_default_the_embedder_is_the_one_that_is_installed(means: Open, value: str) -> None:
    assert isinstance(
        means(EVOLVABLE_EMBEDDER=value).neighbours,
        SharedEmbedder if installed_spec() else type(None),
    )
    assert isinstance(means().neighbours, SharedEmbedder if installed_spec() else type(None))


def test_an_embedder_can_be_turned_off(means: Open) -> None:
    assert means(EVOLVABLE_EMBEDDER="off").neighbours is None


@pytest.mark.parametrize(
    "value",
    ["onnx", "onnx:some/model", "sentence-transformers", "sentence-transformers:some/model"],
)
def test_an_embedder_that_is_named_is_the_one(means: Open, value: str) -> None:
    assert isinstance(means(EVOLVABLE_EMBEDDER=value).neighbours, SharedEmbedder)


def test_a_models_folder_in_a_work_tree_counts_only_where_the_person_lists_it(
    means: Open, tmp_path: Path
) -> None:
    model = tmp_path / "clone/model"
    model.mkdir(parents=True)
    (tmp_path / "clone/.git").mkdir()
    (tmp_path / "link").symlink_to(model)
    for folder in (model, tmp_path / "link"):
        with pytest.raises(Refused, match="^EVOLVABLE_EMBEDDER: .*work tree"):
            means(EVOLVABLE_EMBEDDER=f"onnx:{folder}")

    configure(tmp_path, f"embedders = [{str(model)!r}]\n")
    assert means(EVOLVABLE_EMBEDDER=f"onnx:{model}").neighbours is not None


def test_a_projects_folder_with_the_default_models_name_is_not_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / DEFAULT_MODEL).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert absolute_spec("onnx") == f"onnx:{DEFAULT_MODEL}"


def test_a_project_names_neither_the_hub_nor_a_proxy_nor_a_cache_of_models(
    config: Callable[[Mapping[str, str]], Config], tmp_path: Path
) -> None:
    (tmp_path / "clone/.git").mkdir(parents=True)
    theirs = {
        "HF_ENDPOINT": "http://evil.test",
        "HTTPS_PROXY": "http://evil.test",
        "HF_HOME": str(tmp_path / "clone/hub"),
    }
    own = {"PATH": "/bin", "HF_HUB_CACHE": str(tmp_path / "cache")}
    assert harmless_environment(hub_environment(config({}), {**theirs, **own})) == own

    configure(tmp_path, '[models]\nhuggingface = "https://hub.test"\n')
    assert hub_environment(config({}), theirs)["HF_ENDPOINT"] == "https://hub.test"


# The judge


@pytest.mark.parametrize(
    ("value", "environment", "thinker", "client_thinks"),
    [
        ("", {}, None, True),
        ("", KEY, None, True),
        ("caller", KEY, None, False),
        ("off", KEY, None, False),
        ("off", {}, None, False),
        ("anthropic", KEY, USUAL, False),
        ("anthropic:claude-opus-4-1", KEY, "anthropic:claude-opus-4-1", False),
        ("claude", {}, "command:claude", False),
        ("codex", KEY, "command:codex", False),
    ],
)
def test_each_setting_of_the_judge_asks_whom_it_names(
    means: Open,
    tmp_path: Path,
    value: str,
    environment: Mapping[str, str],
    thinker: str | None,
    client_thinks: bool,
) -> None:
    if value:
        configure(tmp_path, f'[roles]\njudge = ["{value}"]\n')
    given = means(EVOLVABLE_JUDGE="claude", **environment)  # no longer read

    assert (name_of(given.judge_model), given.uses_client_model) == (thinker, client_thinks)


@pytest.mark.parametrize("value", ["caller", "off"])
def test_the_client_of_a_command_is_never_asked(means: Open, tmp_path: Path, value: str) -> None:
    assert not means(serving=False).uses_client_model
    configure(tmp_path, f'[roles]\njudge = ["{value}"]\n')
    assert not means(serving=False).uses_client_model


def test_model_and_address_of_the_judge_are_those_of_the_persons_configuration(
    means: Open, tmp_path: Path
) -> None:
    pytest.importorskip("anthropic")
    with ModelApi(chooses("A", "it fits")) as api, ModelApi() as other:
        configure(
            tmp_path,
            f'[models]\nanthropic = "{api.url}"\n[roles]\njudge = "anthropic:some-model"\n',
        )
        elsewhere = {
            "ANTHROPIC_BASE_URL": other.url,
            "HTTP_PROXY": other.url,
            "HTTPS_PROXY": other.url,
        }
        given = means(**elsewhere, **KEY)
        assert isinstance(given.judge_model, ApiModel)
        assert given.judge_model.think(ASKED) == {"choice": "A", "why": "it fits"}
        given.judge_model.close()

    assert api.asked[0].body["model"] == "some-model" and not other.asked
    assert any(KEY["ANTHROPIC_API_KEY"] in header for header in api.asked[0].headers.values())


@pytest.mark.process
def test_a_command_is_run_by_the_name_that_the_person_gave_it(means: Open, tmp_path: Path) -> None:
    script = tmp_path / "a judge.py"
    script.write_text(
        'import sys; print(\'{"choice": "A", "why": "\' + sys.argv[1] + \'"}\')', encoding="utf-8"
    )

    command = [sys.executable, "a judge.py", "two words"]
    configure(
        tmp_path,
        f'[judges.mine]\ncommand = {json.dumps(command)}\nfolder = "{tmp_path}"\n[roles]\n'
        'judge = "mine"\n',
    )

    given = means()

    assert given.judge_model is not None
    assert given.judge_model.think(ASKED) == {"choice": "A", "why": "two words"}


# The threshold


def test_the_size_of_the_library_decides_the_threshold(means: Open) -> None:
    assert means(EVOLVABLE_FITS="0.9").fits is None
    assert (fits_from(0), fits_from(FEW), fits_from(MANY), fits_from(100_000)) == (
        FITS_FEW,
        FITS_FEW,
        FITS,
        FITS,
    )
    assert FITS_FEW < fits_from(FEW + 500) < fits_from(FEW + 1_000) < FITS


# Mistakes


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(
            ("EVOLVABLE_EMBEDDER", value)
            for value in ("word2vec", "onnx2:model", ":", "x" * 10_000)
        ),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_by_its_name(
    means: Open, variable: str, value: str
) -> None:
    with pytest.raises(EvolvableError) as caught:
        means(**{variable: value})

    assert variable in str(caught.value)
    assert caught.value.hint and len(str(caught.value)) < 200


# What it costs

OPENING = f"""
import json, sys
from pathlib import Path
from evolvable_server.config import read_config
from evolvable_server.serving import Serving
from evolvable_store.operation import Actor
from evolvable_tools.verbs.search import find_skill
from evolvable_tools.caller import Caller
serving = Serving(read_config())
found = None
if serving.library.dependencies.neighbours is None:  # else a process would be started
    found = find_skill(serving.library, Caller(Actor.AGENT), "fill a form")
serving.close()
print(json.dumps([name for name in {HEAVY} if name in sys.modules]))
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "settings",
    [
        {"EVOLVABLE_EMBEDDER": "off"},
        {"EVOLVABLE_EMBEDDER": "onnx", **KEY},
        {"EVOLVABLE_EMBEDDER": "sentence-transformers", **KEY},
        {"EVOLVABLE_EMBEDDER": "off", **KEY},
    ],
)
def test_a_server_over_a_library_opens_without_anything_heavy(
    tmp_path: Path, settings: Mapping[str, str]
) -> None:
    """Only making the files of a library imports sqlite-utils, and that imports numpy where it is
    installed.
    """
    with Library.open(tmp_path / "home", create=True) as library:
        library.index.catch_up()
    environment = {"EVOLVABLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), **settings}
    command = [sys.executable, "-W", "error", "-c", OPENING]

    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == []

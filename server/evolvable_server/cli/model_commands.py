"""The command model: name models and where they answer, say which answer in which role, and ask one
a question.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from evolvable_server.cli.command_context import CommandContext, Output, command
from evolvable_server.cli.exit_codes import ExitCode
from evolvable_server.cli.role_commands import NAME, RESERVED
from evolvable_server.cli.terminal import confirm_replacement, say, show_table, warn
from evolvable_server.config_edits import add_model, remove_model, set_model_role
from evolvable_server.model_setup import ANSWER_SECONDS, named_models
from evolvable_server.person_config import NOBODY, PersonConfig
from evolvable_server.second_config import own_path
from evolvable_store.errors import EvolvableError, InvalidArgument
from evolvable_tools.llm import (
    HEADLESS_COMMANDS,
    MODEL_ROLES,
    PROTOCOLS,
    STRUCTURED,
    ModelAttempt,
    ModelEndpoint,
    NamedModels,
    ProviderError,
    Request,
    check_plain_http,
    parse_endpoint,
)

# A word that no model says by itself.
WORD = "kestrel"
"""What a model is asked to repeat."""

TEST_REQUEST = Request(
    "Repeat the word that the data name.",
    f'{{"word": "{WORD}"}}',
    {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
    # A reasoning model spends tokens before it writes the word.
    max_tokens=2_000,
    role="test",
)


@command("model", table=True)
@click.argument(
    "action", type=click.Choice(["add", "list", "remove", "role", "test"]), default="list"
)
@click.argument("name", required=False)
@click.argument("models", nargs=-1)
@click.option(
    "--protocol", type=click.Choice(PROTOCOLS), help="With add: what the endpoint speaks."
)
@click.option(
    "--address", metavar="URL", help="With add: where it answers [default: the provider's]."
)
@click.option(
    "--model", metavar="MODEL", help="With add: the name that the endpoint knows the model by."
)
@click.option(
    "--key-file", metavar="FILE", help="With add: a file with the key, which only you can read."
)
@click.option("--key-env", metavar="VARIABLE", help="With add: the variable that holds the key.")
@click.option(
    "--price", metavar="IN/OUT", help="With add: US dollars of a million tokens in and out."
)
@click.option("--timeout", type=click.FloatRange(1, 3600), help="With add: seconds for an answer.")
@click.option(
    "--structured",
    type=click.Choice(STRUCTURED),
    help="With add: what the endpoint restricts answers to.",
)
@click.option(
    "--yes", is_flag=True, help="With add and role: do not ask whether another entry is replaced."
)
def model_command(
    state: CommandContext,
    action: str,
    name: str | None,
    models: tuple[str, ...],
    yes: bool,
    **options: Any,
) -> Output[Any]:
    """Name models, and say which of them answer in which role.

    NAME is a model's own name here, with `role` a role: judge, reviewer, proposer, critic or
    executor. MODELS answer in that role, each where those before it gave no answer; without any the
    role is as usual. As judge, `off` asks nobody and `caller` the calling agent alone. A model is
    asked only where its entry says, with the key from its file or variable: no other variable and
    no project counts.
    """
    if (action == "list") != (name is None):
        raise click.UsageError("`role model list` takes no name, every other action a name.")
    if models and action != "role":
        raise click.UsageError("Several names go with `role model role`.")
    has_options = any(value is not None for value in options.values())
    if (action != "add" and has_options) or (action not in ("add", "role") and yes):
        raise click.UsageError(
            "Options go with `role model add`, and --yes with `role model role` too."
        )
    if name is None:
        config = state.config()
        return Output(
            _list_models(config.person), lambda listing: _show_models(listing, named_models(config))
        )
    if action == "add":
        return _add_model(state, name, options, yes=yes)
    if action == "remove":
        left = remove_model(name, state.config().home, state.signer())
        return Output(_list_models(left), lambda _: say(f"{name} is removed."))
    if action == "role":
        return _set_role(state, name, models, yes=yes)
    return _test_model(named_models(state.config()), name)


def _add_model(
    state: CommandContext, name: str, options: dict[str, Any], *, yes: bool
) -> Output[Any]:
    if not NAME.fullmatch(name) or name in RESERVED:
        hint = (
            "Use up to 64 small letters, digits, dashes and underscores, and no word that has a "
            "meaning of its own."
        )
        raise InvalidArgument(f"{ascii(name[:80])} cannot be the name of a model.", hint)
    if not options["protocol"] or not options["model"]:
        raise click.UsageError("`role model add` needs --protocol and --model.")
    config = state.config()
    person = config.person
    # Roles name models and commands, so one name cannot stand for both.
    if role := next((role for role, commands in person.commands.items() if name in commands), None):
        raise InvalidArgument(f"{name} is the name of one of the {role}.", "Choose another name.")
    table = {key: value for key, value in options.items() if value is not None}
    if "price" in table:
        table["price"] = _parse_price(table["price"])
    if "key_file" in table:
        # A relative path would depend on the folder of each later command.
        table["key_file"] = str(Path(table["key_file"]).expanduser().absolute())
    try:
        endpoint = parse_endpoint(name, table)
    except ValueError as error:
        raise InvalidArgument(
            f"{name} cannot be named so: {error}.", "Correct the option."
        ) from None
    # Of the file that is changed: an entry of the other file is not replaced.
    current = person.editable.endpoints.get(name)
    if current is not None and current != endpoint:
        confirm_replacement(
            f"The model {name}", _describe_endpoint(current), _describe_endpoint(endpoint), yes=yes
        )
    add_model(endpoint, config.home, state.signer())
    # http without TLS is allowed, and worth a warning.
    warn(*filter(None, [check_plain_http(endpoint)]))
    return Output(
        _make_row(endpoint),
        lambda _: say(f"{name} is {endpoint.model} at {endpoint.url} ({endpoint.protocol})"),
    )


def _describe_endpoint(endpoint: ModelEndpoint) -> str:
    """Return all fields of a model's entry, so that two that differ read differently."""
    fields = {**endpoint.to_table(), "address": endpoint.url}
    return ", ".join(f"{key} {value}" for key, value in fields.items())


def _set_role(
    state: CommandContext, role: str, names: tuple[str, ...], *, yes: bool
) -> Output[Any]:
    config = state.config()
    person = config.person
    if role not in MODEL_ROLES:
        raise InvalidArgument(
            f"{ascii(role[:40])} is no role.", f"There is {', '.join(MODEL_ROLES)}."
        )
    for name in names:
        _check_known(person, role, name)
    # `off` and `caller` ask no model, so none can follow them.
    if len(names) > 1 and (alone := next((name for name in names if name in NOBODY), None)):
        raise InvalidArgument(
            f"{alone} stands alone in the role {role}.", "Name it without others."
        )
    answered = f"answered by {', then '.join(names)}" if names else "as usual"
    # Of the file that is changed: an entry of the other file is not replaced.
    current = person.editable.model_roles.get(role, ())
    if names and current and current != names:
        confirm_replacement(
            f"The role {role}", f"answered by {', then '.join(current)}", answered, yes=yes
        )
    listing = _list_models(set_model_role(role, names, config.home, state.signer()))
    return Output(listing, lambda _: say(f"The role {role} is {answered}."))


def _check_known(person: PersonConfig, role: str, name: str) -> None:
    """Raise InvalidArgument for a name that nobody can answer by in a role."""
    # A critic is a proposer in another role and has no commands of its own.
    commands = person.commands.get("proposers" if role == "critic" else f"{role}s", {})
    provider, _, model = name.partition(":")
    # As executor, a client needs the name of the model that it runs.
    if role == "executor":
        is_client = provider in ("claude", "codex") and bool(model)
    else:
        is_client = name in HEADLESS_COMMANDS
    is_nobody = role == "judge" and name in NOBODY
    is_named = name in person.endpoints or name in commands
    if is_named or is_client or is_nobody or provider == "anthropic":
        return
    all_names = ", ".join([*sorted(person.endpoints), *sorted(commands)]) or "none"
    raise InvalidArgument(
        f"No model is named {ascii(name[:80])}.",
        f"Name it first: evolvable role model add. Named: {all_names}.",
    )


def _parse_price(text: str) -> list[float]:
    try:
        input_price, output_price = map(float, text.split("/"))
    except ValueError:
        raise click.BadParameter(f"{ascii(text[:40])} is no price such as 0.5/2.") from None
    return [input_price, output_price]


def _make_row(endpoint: ModelEndpoint) -> dict[str, Any]:
    key = endpoint.key_file or (f"${endpoint.key_env}" if endpoint.key_env else "")
    return {"name": endpoint.name, **endpoint.to_table(), "address": endpoint.url, "key": key}


def _list_models(person: PersonConfig) -> dict[str, Any]:
    models = [_make_row(endpoint) for endpoint in person.endpoints.values()]
    roles = {role: list(names) for role, names in person.model_roles.items()}
    return {"path": str(person.editable.path or own_path() or ""), "models": models, "roles": roles}


def _show_models(listing: dict[str, Any], models: NamedModels) -> None:
    if not listing["models"]:
        say(f"No model is named in {listing['path']}")
    else:
        rows = [
            [
                (entry["name"], "bold"),
                entry["model"],
                entry["protocol"],
                entry["address"],
                entry["key"] or "none",
                _format_price(entry.get("price")),
            ]
            for entry in listing["models"]
        ]
        show_table(
            ["name", "model", "protocol", "address", "key", "price"],
            rows,
            names=("name", "model", "address"),
            wide=("key",),
            spare=("protocol", "key", "price"),
        )
    for role, names in listing["roles"].items():
        say(f"{role}: {', then '.join(names)}")
    # Resolved here, so that a missing key shows before a run needs it.
    for name in models.endpoints:
        try:
            warn(*filter(None, [check_plain_http(models.resolve(name))]))
        except EvolvableError as error:
            warn(error.text)


def _format_price(prices: Sequence[float] | None) -> str:
    return "unknown" if prices is None else "/".join(f"{price:g}" for price in prices)


def _test_model(models: NamedModels, name: str) -> Output[Any]:
    """Ask a model to repeat a word, and return how it went."""
    endpoint, attempts = models.resolve(name), list[ModelAttempt]()
    failure, answer = "", {}
    model = endpoint.open(ANSWER_SECONDS)
    try:
        answer = model.think(replace(TEST_REQUEST, attempted=attempts.append))
    except ProviderError as error:
        failure = error.text
    finally:
        model.close()
    if not failure and answer.get("word") != WORD:
        failure = f"{model.name} answered by the schema and not to the question."
    answered_by = attempts[-1].answered_by if attempts else ""
    # A provider may answer with the dated name of the model.
    is_other = bool(answered_by) and not answered_by.startswith(endpoint.model)
    warning = f"asked for {endpoint.model}, answered by {answered_by}" if is_other else ""
    result = {"name": name, "works": not failure, "failure": failure, "warning": warning}
    result["attempts"] = [asdict(attempt) for attempt in attempts]
    return Output(result, _show_test, ExitCode.ERROR if failure else ExitCode.DONE)


def _show_test(result: dict[str, Any]) -> None:
    for attempt in result["attempts"]:
        cost = "price unknown" if attempt["cost"] is None else f"${attempt['cost']:.6f}"
        tokens = f"{attempt['input_tokens']:,} tokens in, {attempt['output_tokens']:,} out"
        say(
            f"{attempt['number']}. {attempt['outcome']} after {attempt['seconds']:.1f} s, "
            f"{tokens}, {cost}"
        )
    warn(*filter(None, [result["warning"]]))
    say(result["failure"] or f"{result['name']} works.")

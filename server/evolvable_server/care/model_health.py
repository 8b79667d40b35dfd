"""What `doctor` says of models: which answers in which role, where each is asked, and what keeps
one from answering.
"""

from collections.abc import Iterator
from importlib.util import find_spec

from evolvable_server.config import Config
from evolvable_server.model_setup import named_models
from evolvable_store.errors import EvolvableError
from evolvable_tools import HealthProblem
from evolvable_tools.llm import MODEL_ROLES, check_plain_http, package_of

_USUAL = {
    "judge": "the calling agent, or the model that its client lends",
    "reviewer": "the calling agent (handoff)",
    "proposer": "the calling agent (handoff)",
    "critic": "the proposer",
    "executor": "who `--executor` names",
}
"""Role -> who answers in it where the person names nobody."""


def model_rows(config: Config) -> Iterator[tuple[str, str]]:
    """Yield a setting, its name and its value, for each named model and each role."""
    for endpoint in config.person.endpoints.values():
        variable = f"the variable {endpoint.key_env}" if endpoint.key_env else "none"
        key = endpoint.key_file or variable
        price = "unknown"
        if endpoint.price is not None:
            price = f"${endpoint.price[0]:g} and ${endpoint.price[1]:g} a million tokens"
        yield (
            f"models.{endpoint.name}",
            f"{endpoint.model} at {endpoint.url} ({endpoint.protocol}); key: {key}; price: {price}",
        )
    if not (config.person.endpoints or config.person.model_roles):
        return
    names_by_role = {"judge": config.judge, "reviewer": config.review}
    for role in MODEL_ROLES:
        names = names_by_role.get(role) or ",".join(config.person.model_roles.get(role, ()))
        # These three are defaults by another name.
        is_usual = names in ("", "auto", "caller", "handoff")
        yield f"role {role}", _USUAL[role] if is_usual else names.replace(",", ", then ")


def model_problems(config: Config) -> Iterator[HealthProblem]:
    """Yield what keeps a named model from answering, and roles that name nobody. Asks no model."""
    models, person = named_models(config), config.person
    for endpoint in person.endpoints.values():
        package = package_of(endpoint.protocol)
        if find_spec(package) is None:
            what = f"The model {endpoint.name} needs the package {package}."
            yield HealthProblem(what, f"pip install '.[{package}]' in your clone")
        try:
            models.resolve(endpoint.name)
        except EvolvableError as error:
            yield HealthProblem(str(error), error.hint)
        if warning := check_plain_http(endpoint):
            yield HealthProblem(
                f"{warning[0].upper()}{warning[1:]}.", "Use https, or a tunnel from this machine."
            )
    for role in person.model_roles:
        # A critic is a proposer in another role and has no commands of its own.
        commands = person.commands.get("proposers" if role == "critic" else f"{role}s", {})
        for name in person.models_of_role(role):
            # A provider may stand alone or with the name of a model behind a colon.
            provider = name.partition(":")[0]
            if name in person.endpoints or name in commands or provider in _PROVIDERS:
                continue
            yield HealthProblem(
                f"The role {role} names {name}, and nothing has that name.",
                "Name it by `evolvable role model add`, or others by `evolvable role model "
                f"role {role}`.",
            )


# Names that resolve without an entry: model providers, and clients that can answer without a
# person.
_PROVIDERS = ("anthropic", "claude", "codex", "copilot", "opencode", "qwen", "droid")

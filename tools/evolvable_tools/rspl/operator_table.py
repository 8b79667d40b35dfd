"""The 19 operators of Autogenesis' table 7: which verb each one is, and the kinds for which it is refused.

Most are verbs that the library has under another name. docs/operators.md shows the same table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from evolvable_store.errors import Refused
from evolvable_store.resource import Kind, Ref


@dataclass(frozen=True, slots=True)
class RsplOperator:
    """One operator. verb: its name in the registry of verbs. refused: kind -> why there is no such thing."""

    name: str
    group: str
    verb: str
    refused: Mapping[Kind, str] = field(default_factory=dict)


_SEALED = "a folder of a task set would show the answers of its sealed test"

OPERATORS: Mapping[str, RsplOperator] = {
    one.name: one
    for one in (
        RsplOperator("init", "lifecycle", "init"),
        RsplOperator("build", "lifecycle", "rspl build", {Kind.ENVIRONMENT: _SEALED}),
        RsplOperator("register", "lifecycle", "update"),
        RsplOperator("unregister", "lifecycle", "remove"),
        RsplOperator("get", "retrieval", "get"),
        RsplOperator("get_info", "retrieval", "rspl info"),
        RsplOperator("list", "retrieval", "list"),
        RsplOperator("retrieve", "retrieval", "find"),
        RsplOperator("get_state", "retrieval", "rspl state"),
        RsplOperator("update", "versioning", "update"),
        RsplOperator("copy", "versioning", "update"),
        RsplOperator("restore", "versioning", "restore"),
        RsplOperator("get_variables", "versioning", "rspl variables"),
        RsplOperator("set_variables", "versioning", "rspl set"),
        RsplOperator("run", "run", "rspl run"),
        RsplOperator("save_to_json", "serialisation", "export"),
        RsplOperator("load_from_json", "serialisation", "import"),
        RsplOperator("save_contract", "serialisation", "rspl save-contract"),
        RsplOperator("load_contract", "serialisation", "rspl load-contract"),
    )
}
"""Name -> operator, in the order of the paper."""


def check_operator(name: str, ref: Ref) -> None:
    """Raise Refused where there is no such operator for resources of this kind."""
    if reason := OPERATORS[name].refused.get(ref.kind):
        raise Refused(f"{name} is refused for {ref}: {reason}.", "docs/operators.md says what there is for each kind.")

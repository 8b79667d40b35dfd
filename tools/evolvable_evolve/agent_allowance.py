"""What callers that are no person may start of agents, as the person's configuration says."""

from evolvable_evolve.ags import AGS_DIR, Allowance
from evolvable_server import Config


def ags_allowance(config: Config) -> Allowance | None:
    """Return what callers that are no person may start of agents, None for nothing. Raise InvalidArgument."""
    account, *others = (Allowance.from_config(one.budgets.get(AGS_DIR)) for one in config.person.parts)
    for other in filter(None, others if account is not None else ()):
        account = account.stricter(other) if account is not None else None
    return account

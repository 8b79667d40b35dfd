"""What of a review's candidates is admitted: rules in code, each with a name and a sentence, in one order.

No model takes part. A candidate that breaks a rule is refused with its code and a sentence that says what would have to
be otherwise.
"""

from collections.abc import Mapping
from typing import Any

from evolvable_store.errors import EvolvableError
from evolvable_tools.review.candidates import MAX_CANDIDATES, Candidate, parsed
from evolvable_tools.review.checking import Admitted, checked
from evolvable_tools.review.drafting import drafted
from evolvable_tools.review.evidence import Kept
from evolvable_tools.review.results import Refusal
from evolvable_tools.review.rules import MAX_CLAIM, RULES, Bench, Breach, Case


def admit(bench: Bench, given: list[Mapping[str, Any]]) -> tuple[list[Admitted], list[Refusal]]:
    """Returns the candidates that keep every rule, and those that do not, each with the first rule it breaks."""
    admitted: list[Admitted] = []
    refusals: list[Refusal] = []
    for number, one in enumerate(given, 1):
        claim = str(one.get("claim", ""))[:MAX_CLAIM] if isinstance(one, Mapping) else ""
        claim = bench.redactor.redact(claim)[0]
        try:
            if number > MAX_CANDIDATES:
                raise Breach("too_many", f"At most {MAX_CANDIDATES} candidates are looked at.")
            admitted.append(_admitted(bench, number, one, admitted))
        except Breach as refusal:
            refusals.append(Refusal(number, claim, refusal.code, refusal.reason))
        except EvolvableError as error:
            refusals.append(Refusal(number, claim, "cannot_be_made", bench.redactor.redact(error.text)[0]))
    return admitted, refusals


def _admitted(bench: Bench, number: int, given: Mapping[str, Any], before: list[Admitted]) -> Admitted:
    # What a model says is redacted before anything looks at it: a secret that it made up or kept is none of ours.
    cleaned = bench.redactor.redact_value(given)[0]
    try:
        candidate = parsed(cleaned)
    except (ValueError, TypeError, KeyError) as error:
        raise Breach("schema", f"It does not fit the schema: {error}.") from None
    case = Case(bench, candidate, tuple(_cited(bench, candidate)))
    for rule in RULES:
        rule(case)
    try:
        made = drafted(bench.library, bench.caller, candidate, bench.packet.session, bench.today)
    except UnicodeDecodeError:
        raise Breach("cannot_be_made", "The file to change is no text.") from None
    return checked(case, number, made, before)


def _cited(bench: Bench, candidate: Candidate) -> list[Kept]:
    known = {kept.id: kept for kept in bench.packet.evidence}
    missing = [cited.span for cited in candidate.evidence if cited.span not in known]
    if missing:
        raise Breach("no_such_span", f"There is no evidence {', '.join(missing[:5])}.")
    return [known[cited.span] for cited in candidate.evidence]

"""What a report says of who judged: how often it was right about known answers, and what is to be warned of."""

from evolvable_tools.evolve.run_state import Record, RunState


def judged(state: RunState) -> list[str]:
    """Returns a sentence for each rubric: who judged by it, and how it did in calibration."""
    return [_said(one) for one in state.judges]


def judge_warnings(state: RunState) -> list[str]:
    """Returns what is to be said of a judge besides, each once."""
    return list(dict.fromkeys(one["warning"] for one in state.judges if one["warning"]))


def _said(record: Record) -> str:
    known = record["calibration"]
    return (
        f"{record['by']} ({record['label']}): right on {known['good_right']} of {known['good']} good and"
        f" {known['bad_right']} of {known['bad']} bad known answers ({record['agreement']:.0%})"
    )

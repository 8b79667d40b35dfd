"""Programs, and the checks that a candidate must pass before anything is spent on it: no model, no
trial, only code.

Begin with `Program` and `apply_edits`; `check_candidate` is the gate.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as in `typing`, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.evolution.candidates.agent_files import (
        MAIN,
        AgentCard,
        new_agent,
        with_delegate,
    )
    from evolvable_evolve.evolution.candidates.program_edits import (
        ALL_KINDS,
        MAX_EDITS,
        EditOperation,
        InvalidEdit,
        ProgramEdit,
        apply_edits,
        parse_part_ref,
        settle_owners,
    )
    from evolvable_evolve.evolution.candidates.programs import (
        Program,
        ProgramPart,
        ProgramPin,
        changed_parts,
        diff_programs,
        load_program,
        make_part,
        make_program,
        program_from_json,
        program_to_json,
        skill_owners,
    )
    from evolvable_evolve.evolution.candidates.static_gate import (
        ChangeReview,
        LeakCorpus,
        check_candidate,
        find_executable_change,
        iter_leaves,
        review_change,
    )
else:
    __getattr__ = late_names(
        __name__,
        {
            "agent_files": "AgentCard MAIN new_agent with_delegate",
            "program_edits": (
                "ALL_KINDS EditOperation InvalidEdit MAX_EDITS ProgramEdit apply_edits "
                "parse_part_ref settle_owners"
            ),
            "programs": (
                "Program ProgramPart ProgramPin changed_parts diff_programs load_program "
                "make_part make_program program_from_json program_to_json skill_owners"
            ),
            "static_gate": (
                "ChangeReview LeakCorpus check_candidate find_executable_change iter_leaves "
                "review_change"
            ),
        },
    )

__all__ = [
    "ALL_KINDS",
    "AgentCard",
    "ChangeReview",
    "EditOperation",
    "InvalidEdit",
    "LeakCorpus",
    "MAIN",
    "MAX_EDITS",
    "Program",
    "ProgramEdit",
    "ProgramPart",
    "ProgramPin",
    "apply_edits",
    "changed_parts",
    "check_candidate",
    "diff_programs",
    "find_executable_change",
    "iter_leaves",
    "load_program",
    "make_part",
    "make_program",
    "new_agent",
    "parse_part_ref",
    "program_from_json",
    "program_to_json",
    "review_change",
    "settle_owners",
    "skill_owners",
    "with_delegate",
]

"""Agents that plan together: a planner that never executes, a bus of messages, and workers.

Begin with `start_ags` and `ags_status`; `drive_ags` runs the plan in a process of its own. Workers
run on the trial backends of evolution.
"""

from evolvable_store import late_names

TYPE_CHECKING = False  # as that of typing, whose import takes 2 ms

if TYPE_CHECKING:
    from evolvable_evolve.ags.control import (
        AgsControl,
        AgsStatus,
        WrittenFiles,
        ags_status,
        answer_ags,
        resume_ags,
        stop_ags,
        write_files,
    )
    from evolvable_evolve.ags.driver import drive_ags
    from evolvable_evolve.ags.round_source import AgsSource, WholeSource
    from evolvable_evolve.ags.start import MAX_CONCURRENT, AgsRequest, StartedAgs, start_ags
else:
    __getattr__ = late_names(
        __name__,
        {
            "control": (
                "AgsControl AgsStatus WrittenFiles ags_status answer_ags resume_ags stop_ags "
                "write_files"
            ),
            "driver": "drive_ags",
            "round_source": "AgsSource WholeSource",
            "start": "AgsRequest MAX_CONCURRENT StartedAgs start_ags",
        },
    )

__all__ = [
    "AgsControl",
    "AgsRequest",
    "AgsSource",
    "AgsStatus",
    "MAX_CONCURRENT",
    "StartedAgs",
    "WholeSource",
    "WrittenFiles",
    "ags_status",
    "answer_ags",
    "drive_ags",
    "resume_ags",
    "start_ags",
    "stop_ags",
    "write_files",
]

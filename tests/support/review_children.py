"""A process that reviews sessions: `review_children.py GATE NUMBER [HOME BUDGET ADDRESS
FOLDER]...`.

It says that it is ready, waits until the gate opens, and reviews every transcript in each folder
with the model behind the address. Prints how many it was allowed.
"""

import json
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from processes import poll

from evolvable_server.config import read_config
from evolvable_server.model_setup import review_settings
from evolvable_server.person_config import PersonConfig
from evolvable_store.operation import Actor
from evolvable_tools.caller import Caller
from evolvable_tools.library import Library
from evolvable_tools.review.review_config import OverBudget
from evolvable_tools.review.service import review_session


def main(gate: Path, number: str, *jobs: str) -> None:
    allowed: list[int] = []
    with ExitStack() as stack:
        ready = []
        for home, budget, address, folder in zip(*[iter(jobs)] * 4, strict=True):
            settings = {"EVOLVABLE_HOME": home, "EVOLVABLE_REVIEW_BUDGET": budget}
            settings |= {"ANTHROPIC_API_KEY": "sk-ant-test"}
            person = PersonConfig(None, models={"anthropic": address})
            config = replace(
                read_config(settings), person=person, api_url=address, review="anthropic"
            )
            library = stack.enter_context(Library.open(Path(home)))
            ready.append((library, stack.enter_context(review_settings(config)), Path(folder)))
        (gate / f"ready-{number}").touch()
        poll((gate / "go").exists, "the gate to open")
        for library, settings_of, folder_of in ready:
            count = 0
            for transcript in sorted(folder_of.glob("*.jsonl")):
                try:
                    review_session(
                        library, Caller(Actor.AGENT), settings_of, transcript_path=transcript
                    )
                    count += 1
                except OverBudget:
                    pass
            allowed.append(count)
    print(json.dumps(allowed))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

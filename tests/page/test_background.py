"""Values that are computed beside the page."""

import threading

from processes import poll

from evolvable_page.background import BackgroundValue
from evolvable_store.errors import InvalidArgument


def test_a_value_that_could_not_be_computed_is_tried_again_with_the_same_key() -> None:
    done, tries = threading.Event(), list[int]()

    def compute() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise InvalidArgument("The library is busy.", "Try again.")
        return "here"

    value = BackgroundValue(compute, done.set, least_seconds=0.0)
    poll(lambda: value.get("revision 1") == "here", "the value")

    value.get("revision 1")
    assert done.wait(10)
    assert len(tries) == 2

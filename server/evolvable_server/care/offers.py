"""The offers of `setup`, each of them off until the person takes it.

Parts add theirs by the hook `setup_offers`.
"""

import shutil
from collections.abc import Sequence
from functools import partial

from evolvable_server import plugins
from evolvable_server.auto_queue import HEADLESS
from evolvable_server.auto_switch import read_switch
from evolvable_server.care.auto_reviews import switch_on
from evolvable_server.care.client_connections import find_clients
from evolvable_server.client_folders import read_client_homes
from evolvable_server.clients import MeasuredList, choose_collection, crowded_list, room_of_projects
from evolvable_server.config import Config, read_machine
from evolvable_server.learning_consent import consent, is_shared, set_consent
from evolvable_server.plugins import SetupOffer
from evolvable_server.session_learning import (
    count_sessions,
    describe_past_sessions,
    learn_past_sessions,
)
from evolvable_store.errors import InvalidArgument
from evolvable_store.resource import Ref
from evolvable_tools import Caller, Library, Progress, count
from evolvable_tools.outcomes import MAX_TASK
from evolvable_tools.verbs import (
    BUDGET,
    ListedSkill,
    add_to_collection,
    describe_listing,
    fitting_skills,
    list_collections,
    measure_listing,
)

COLLECTION = "everyday"
"""The name of the collection of a shortened list, with a number behind it where it is taken."""


def setup_offers(config: Config, library: Library) -> list[SetupOffer]:
    """Return the offers of now, the program's own first.

    Of two with one name the first counts.
    """
    offers = [*_offer_shorten(config, library), *_offer_learn(config), *_offer_review(config)]
    for part_offers in plugins.all_hooks().setup_offers(config=config, library=library):
        offers += part_offers
    # Reversed twice: of two with one name the first counts, and the order stays.
    return list({offer.name: offer for offer in reversed(offers)}.values())[::-1]


def find_offers(offers: Sequence[SetupOffer], names: Sequence[str]) -> list[SetupOffer]:
    """Return the offers of these names. Raise InvalidArgument for one that is not offered."""
    by_name = {offer.name: offer for offer in offers}
    open_names = [offer.name for offer in offers if not offer.obstacle]
    for name in names:
        if name not in open_names:
            why = f": {by_name[name].obstacle}" if name in by_name else ""
            hint = f"Offered now: {', '.join(open_names) or 'nothing'}."
            raise InvalidArgument(f"{name[:80]!r} is not offered now{why}.", hint)
    return [by_name[name] for name in dict.fromkeys(names)]


def _offer_shorten(config: Config, library: Library) -> list[SetupOffer]:
    machine = read_machine(config.project)
    crowded = crowded_list(library, machine)
    if crowded is None:
        return []
    reserved = 0
    if not crowded.where.project:
        # A project that needs more than half of the list does not empty it everywhere else.
        reserved = min(room_of_projects(library, machine), BUDGET // 2)
    fitting = fitting_skills(crowded.skills, reserved)
    free = f"; {reserved:,} characters stay free for a project's own skills" if reserved else ""
    are_used = any(skill.uses for skill in crowded.skills)
    order = "opened most" if are_used else "first by name, as none was opened yet"
    text = (
        f"{crowded.text}. A collection lists {len(fitting)} of them with description, those "
        f"{order}{free}; find_skill finds the other {len(crowded.skills) - len(fitting)}, and you "
        "can still call them by name. Take it back: evolvable client collection stop"
    )
    clients = find_clients(config, machine, read_client_homes(config))
    obstacle = "Claude Code is not connected, and would not find what it does not list"
    if any(client.name == "claude-code" and client.is_connected for client in clients):
        obstacle = ""
    return [SetupOffer("shorten", text, partial(_shorten_list, crowded, fitting), obstacle)]


def _shorten_list(
    crowded: MeasuredList,
    chosen: Sequence[ListedSkill],
    library: Library,
    caller: Caller,
    progress: Progress,
) -> list[str]:
    used_names = {collection.name for collection in list_collections(library)}
    # One name more than there are collections, so one of them is free.
    numbers = range(2, len(used_names) + 3)
    names = [COLLECTION, *(f"{COLLECTION}-{number}" for number in numbers)]
    name = next(candidate for candidate in names if candidate not in used_names)
    add_to_collection(library, caller, name, [Ref.parse(skill.ref) for skill in chosen])
    choose_collection(library, caller, crowded.where, name)
    listing = measure_listing(chosen, {})
    back = "evolvable client collection stop" + " --project" * bool(crowded.where.project)
    return [
        f"Claude Code lists the collection {name}: {describe_listing(listing)}.",
        "Sessions that begin from now on follow it."
        f" Change it: evolvable client collection show {name}. Take it back: {back}",
    ]


def _offer_learn(config: Config) -> list[SetupOffer]:
    # Into a shared library the prompts of sessions would leave this machine.
    if is_shared(config.home) or consent(config.home) or not (number := count_sessions(config)):
        return []
    text = (
        f"Learn from {count(number, 'session')} that your clients wrote here, and from every new "
        "one, for which tasks search finds a skill that was opened there. The library keeps the "
        f"prompt that began the task: at most {MAX_TASK} characters, without secrets and code. "
        "Nothing leaves this machine, and no agent is shown a prompt. `evolvable learn tasks` "
        "lists, corrects and removes them."
    )
    return [SetupOffer("learn", text, partial(_learn_sessions, config))]


def _learn_sessions(
    config: Config, library: Library, caller: Caller, progress: Progress
) -> list[str]:
    set_consent(config.home, True)
    return describe_past_sessions(learn_past_sessions(config, library, progress))


def _offer_review(config: Config) -> list[SetupOffer]:
    if is_shared(config.home) or config.review == "off":
        return []
    if read_switch(config.home).covers(str(config.project)):
        return []
    programs = [name for name in HEADLESS.values() if shutil.which(name)]
    # Neither a client on this machine nor a configured model could review.
    if not programs and config.review == "handoff":
        return []
    reviewer = config.review
    if reviewer == "handoff":
        reviewer = " or ".join(f"`{name}`" for name in programs)
    text = (
        f"Review each session of {config.project} after its end: {reviewer} reads it without "
        "secrets, in the background, where you corrected something, and its lessons wait for "
        "your yes. At most 300,000 tokens and $2 a day, which `evolvable status` shows. Take it "
        "back: evolvable learn review auto off"
    )
    return [SetupOffer("review", text, partial(_switch_reviews_on, config))]


def _switch_reviews_on(
    config: Config, library: Library, caller: Caller, progress: Progress
) -> list[str]:
    switch_on(config)
    library.record(caller, "automatic reviews on", str(config.project))
    return [
        f"Sessions that end in {config.project} are reviewed. Lessons wait in `evolvable inbox`."
    ]

"""What the page keeps of the library between requests holds until a commit, by whatever process."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from page_place import PERSON, PagePlace, open_page

from evolvable_page.access import PageAccess
from evolvable_page.live import ChangeFeed
from evolvable_page.site import Site
from evolvable_page.ui_command import services_of
from evolvable_server.config import Config
from evolvable_store.resource import Ref
from evolvable_tools.file_edits import TextEdit
from evolvable_tools.verbs import edit, proposal_inbox

pytestmark = pytest.mark.process

OTHER = """
import sys
from pathlib import Path
from evolvable_store import Actor, Identity, Principal
from evolvable_store.objects import File
from evolvable_store.resource import Ref
from evolvable_store.storage.proposals import Draft
from evolvable_store.store import Store

text = "---\\nname: csv\\ndescription: Works with csv files.\\n---\\n\\nanother process\\n"
with Store.open(Path(sys.argv[1])) as store:
    head, files = store.head(Ref.parse("csv")), {"SKILL.md": File(text.encode())}
    if sys.argv[2] == "propose":
        draft = Draft(head.ref, head.version, files, "by another")
        store.backend.proposals.add(store.now(), Actor.AGENT, None, draft)
    else:
        agent = Identity(Principal.AGENT, "client:codex")
        with store.transaction(Actor.AGENT, "by another", identity=agent) as tx:
            tx.put(head.ref, files)
"""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[PagePlace]:
    with open_page(tmp_path / "library") as place:
        place.create("csv")
        place.create("pdf")
        yield place


def elsewhere(page: PagePlace, what: str) -> None:
    subprocess.run([sys.executable, "-c", OTHER, str(page.library.store.home), what], check=True)


def test_a_proposal_of_another_process_is_in_the_number_and_in_both_lists_at_the_next_request(
    page: PagePlace,
) -> None:
    first = page.propose("pdf", "shorter")
    assert "1 waits" in page.get(f"/inbox/{first}").text
    assert "1 waits for you" in page.get("/").text
    elsewhere(page, "propose")
    assert "2 wait" in page.get(f"/inbox/{first}").text
    assert "2 wait for you" in page.get("/").text
    assert 'href="/inbox/2"' in page.get("/").text


def test_a_change_by_an_agent_in_another_process_is_counted_and_listed_at_the_next_request(
    page: PagePlace,
) -> None:
    first = page.propose("pdf", "shorter")
    assert "Changed since you last looked" not in page.get(f"/inbox/{first}").text
    assert "Agents changed nothing" in page.get("/").text
    elsewhere(page, "change")
    assert "Changed since you last looked: 1" in page.get(f"/inbox/{first}").text
    assert "another process" in page.get("/inbox/changed").text
    assert "What agents changed this week: 1" in page.get("/").text


def test_a_decision_of_this_process_is_shown_at_the_next_request(page: PagePlace) -> None:
    first, second = page.propose("pdf", "shorter"), page.propose("csv", "shorter")
    assert "2 wait" in page.get(f"/inbox/{first}").text
    proposal_inbox.reject(page.library, second, "no", PERSON)
    assert "1 waits" in page.get(f"/inbox/{first}").text


def test_each_operation_is_listed_with_its_own_resources(page: PagePlace) -> None:
    edit.update_resource(
        page.library, PERSON, Ref.parse("csv"), "two", edits=[TextEdit("SKILL.md", "two", "2")]
    )
    rows = re.findall(r'id="operation-\d+".*?</tr>', page.get("/operations").text, re.DOTALL)
    moved = [re.findall(r'href="/resource/[^"]*">([^<]+)</a>', row) for row in rows]
    assert moved == [["skill:csv@2"], ["skill:pdf@1"], ["skill:csv@1"]]


def test_a_library_that_nobody_changes_is_not_read_again_after_a_minute_and_is_after_a_commit(
    page: PagePlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    library, home, clock = page.library, page.library.store.home, 1_000.0
    feed = ChangeFeed(library.store.backend, home)
    # The clock of the site alone: the server's loop needs its own.
    monkeypatch.setattr(
        "evolvable_page.site.time", SimpleNamespace(time=lambda: 7_200.0, monotonic=lambda: clock)
    )
    try:
        site = Site(
            services_of(Config(home, home), library, PERSON),
            PageAccess(1, start="/"),
            commits=feed.commits,
        )
        first, outside = site.library_revision(), site.revision()
        clock += 60
        assert site.library_revision() == first
        assert site.revision() != outside
        page.propose("pdf", "shorter")
        clock += 60
        assert site.library_revision() != first
    finally:
        feed.close()

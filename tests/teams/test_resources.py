"""What is listed, what templates say and what can be read agree; every change of a subscribed URI
is told.
"""

import contextlib

import anyio
import mcp_types as types
import pytest
from http_place import http_server
from mcp import Client
from mcp_place import ERAS, skill_text

from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import Ref
from evolvable_store.storage.release_channel import ChannelState, MoveNote, ReleasePolicy
from evolvable_store.store import Store

pytestmark = [pytest.mark.process, pytest.mark.anyio]

MAIN = "---\nname: {0}\ndescription: Is {0}.\n---\n\nText of {0}.\n"


def put(place, ref, files):
    with Store.open(place.home) as store, store.transaction(Actor.HUMAN, "written by hand") as tx:
        tx.put(Ref.parse(ref), {path: File(text.encode()) for path, text in files.items()})


def remove(place, ref):
    with Store.open(place.home) as store, store.transaction(Actor.HUMAN, "not needed") as tx:
        tx.remove(Ref.parse(ref))


@pytest.fixture
def mixed(place, monkeypatch):
    """A library with every kind, some in the project acme."""
    monkeypatch.setattr(
        type(place), "environment", {**place.environment, "EVOLVABLE_SCOPE": "acme"}
    )
    put(
        place,
        "skill:acme/tides",
        {"SKILL.md": skill_text("tides"), "notes/high tide.md": "at noon\n"},
    )
    put(place, "skill:acme/pdf", {"SKILL.md": skill_text("pdf", "The project's own.")})
    put(place, "memory:USER", {"USER.md": "Likes tea.\n"})
    put(place, "prompt:review", {"PROMPT.md": MAIN.format("review")})
    put(place, "agent:acme/reviewer", {"AGENT.md": MAIN.format("reviewer"), "list.md": "1\n"})
    put(place, "tool:gone", {"TOOL.md": MAIN.format("gone")})
    remove(place, "tool:gone")
    return place


def reference(template):
    return types.ResourceTemplateReference(type="ref/resource", uri=template)


async def expanded(client, template, known=None):
    """Returns every URI that a template's own completions lead to."""
    known = known or {}
    variable = next((part.split("}")[0].lstrip("+") for part in template.split("{")[1:]), None)
    if variable is None:
        return [template]
    full = template
    for name, value in known.items():
        full = full.replace(f"{{{name}}}", value)
    named = [part.split("}")[0] for part in full.split("{")[1:]]
    if not named:
        return [full]
    name = named[0].lstrip("+")
    done = await client.complete(
        reference(template), {"name": name, "value": ""}, context_arguments=known
    )
    found = []
    for value in done.completion.values:
        if named[0].startswith("+"):
            found.append(full.replace(f"{{{named[0]}}}", value.replace(" ", "%20")))
        else:
            found += await expanded(client, template, {**known, name: value})
    return found


async def test_lists_and_templates_agree(mixed, era):
    async with mixed.client(era) as client:
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        templates = [
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        ]
        named = [uri for template in templates for uri in await expanded(client, template)]
        for uri in {*listed, *named}:
            assert (await client.read_resource(uri)).contents[0].text, uri

    assert listed == [
        *("skill://csv/SKILL.md", "skill://acme/pdf/SKILL.md", "skill://acme/tides/SKILL.md"),
        *("prompt://review/PROMPT.md", "agent://acme/reviewer/AGENT.md", "memory://USER/USER.md"),
    ]
    assert set(listed) <= set(named)
    assert {"skill://acme/tides/notes/high%20tide.md", "agent://acme/reviewer/list.md"} <= set(
        named
    )
    assert sorted({template.partition("://")[0] for template in templates}) == [
        "agent",
        "memory",
        "prompt",
        "skill",
    ]


async def test_variables_complete_from_what_was_begun(mixed):
    async with mixed.client("modern") as client:
        templates = [
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        ]
        mine = next(template for template in templates if template.startswith("skill://{name}"))
        names = await client.complete(reference(mine), {"name": "name", "value": "c"})
        nothing = await client.complete(
            reference("skill://{nonsense}"), {"name": "nonsense", "value": ""}
        )

    assert names.completion.values == ["csv"]
    assert nothing.completion.values == []


async def test_what_hosts_do_not_see_has_no_template_and_completes_nothing(mixed):
    with Store.open(mixed.home) as store:
        heads = [store.head(Ref.parse(f"skill:acme/{name}")) for name in ("tides", "pdf")]
        note = MoveNote(store.now(), Actor.HUMAN, "not yet", None, 0)
        store.backend.channel.place(
            note, {head.id: ChannelState(None, withdrawn=True) for head in heads}
        )
    async with mixed.client("modern") as client:
        templates = [
            one.uri_template for one in (await client.list_resource_templates()).resource_templates
        ]
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        files = await client.complete(
            reference("skill://{scope}/{name}/{+file}"),
            {"name": "file", "value": ""},
            context_arguments={"scope": "acme", "name": "tides"},
        )
        kept = await client.read_resource("skill://version.1/acme/tides/SKILL.md")

    assert [template for template in templates if template.startswith("skill:")] == [
        "skill://{name}/{+file}"
    ]
    assert [uri for uri in listed if uri.startswith("skill:")] == [
        "skill://csv/SKILL.md",
        "skill://pdf/SKILL.md",
    ]
    assert files.completion.values == []
    assert "name: tides" in kept.contents[0].text


async def test_a_listing_goes_on_from_its_cursor(mixed, monkeypatch):
    with Store.open(mixed.home) as store, store.transaction(Actor.HUMAN, "many") as tx:
        for number in range(600):
            tx.put(
                Ref.parse(f"prompt:p{number}"), {"PROMPT.md": File(MAIN.format(number).encode())}
            )
    async with mixed.client("modern") as client:
        first = await client.list_resources()
        second = await client.list_resources(cursor=first.next_cursor)
        prompts = (await client.list_prompts()).prompts

    uris = [str(one.uri) for one in (*first.resources, *second.resources)]
    assert (len(first.resources), len(set(uris)), second.next_cursor) == (500, 606, None)
    assert len(prompts) == 605


class Told:
    """What a client was told, by method or by event."""

    def __init__(self):
        self.lists, self.uris = set(), set()

    async def message(self, message):
        method = getattr(message, "method", "")
        if method == "notifications/resources/updated":
            self.uris.add(str(message.params.uri))
        elif method.endswith("/list_changed"):
            self.lists.add(method.split("/")[1])

    def event(self, event):
        name = type(event).__name__
        if name == "ResourceUpdated":
            self.uris.add(str(event.uri))
        else:
            self.lists.add(name.removesuffix("ListChanged").lower())


@contextlib.asynccontextmanager
async def following(client, era, uris):
    """Yields what the client is told of these URIs and of both lists from now on."""
    if era == "handshake":
        for uri in uris:
            await client.session.subscribe_resource(uri)
        yield None
        return
    told = Told()
    async with anyio.create_task_group() as tasks:

        async def listen(*, task_status):
            async with client.listen(
                resources_list_changed=True, prompts_list_changed=True, resource_subscriptions=uris
            ) as events:
                task_status.started()
                async for event in events:
                    told.event(event)

        await tasks.start(listen)
        yield told
        tasks.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def connected(place, era, transport, told):
    handler = {"message_handler": told.message} if era == "handshake" else {}
    if transport == "stdio":
        async with place.client(era, **handler) as client:
            yield client
        return
    with http_server(place) as server, anyio.fail_after(30):
        async with Client(server.url, mode=ERAS[era], **handler) as client:
            yield client


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_changes_of_subscribed_uris_and_of_the_lists_are_told(mixed, era, transport):
    uris = ["skill://acme/tides/SKILL.md", "memory://USER/USER.md", "prompt://review/PROMPT.md"]
    told = Told()
    with Store.open(mixed.home) as store:
        store.backend.channel.set_policy(
            MoveNote(store.now(), Actor.HUMAN, "shown at once", None, 0), ReleasePolicy.LIVE
        )
    async with connected(mixed, era, transport, told) as client:
        await client.list_tools()
        async with following(client, era, uris) as listened:
            heard = listened or told
            put(mixed, "skill:acme/tides", {"SKILL.md": skill_text("tides", body="changed")})
            put(mixed, "skill:csv", {"SKILL.md": skill_text("csv", body="nobody asked")})
            put(mixed, "memory:USER", {"USER.md": "Likes coffee.\n"})
            put(mixed, "prompt:review", {"PROMPT.md": MAIN.format("review") + "More.\n"})
            with anyio.move_on_after(15):
                while not (heard.uris >= set(uris) and heard.lists >= {"resources", "prompts"}):
                    await anyio.sleep(0.02)
            assert (heard.uris, heard.lists) == (set(uris), {"resources", "prompts"})
            text = (
                (await client.read_resource("memory://USER/USER.md", cache_mode="bypass"))
                .contents[0]
                .text
            )
            assert text == "Likes coffee.\n"

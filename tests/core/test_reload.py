"""Hot reload: what people save and what other processes change is seen at once, and clients are
told.
"""

import shutil

import anyio
import pytest
from answers import best_of

from evolvable_server.mcp.notifications import Notifier
from evolvable_store.errors import EvolvableError
from evolvable_store.objects import File
from evolvable_store.operation import Actor
from evolvable_store.resource import USER_SCOPE, Kind, Ref
from evolvable_store.storage.release_channel import MoveNote, ReleasePolicy
from evolvable_store.store import Store
from evolvable_store.workingcopy.registry import WorkingCopies

pytestmark = [pytest.mark.process, pytest.mark.anyio]


async def until(check, seconds=10.0):
    """Waits until `check()` returns something true, and returns it."""
    with anyio.fail_after(seconds):
        while not (result := await check()):
            await anyio.sleep(0.02)
        return result


def text(name, body="one"):
    return f"---\nname: {name}\ndescription: Works with {name}.\n---\n\n{body}\n"


def version_of(client, ref):
    async def version():
        result = await client.call_tool("resource_history", {"ref": ref, "limit": 1})
        return None if result.is_error else result.structured_content.get("head")

    return version


async def follow(client):
    """Lets the server begin to follow its folders: it does after its first answer."""
    await client.list_tools()


async def test_where_no_client_subscribed_no_changed_files_are_looked_up(tmp_path):
    with Store.open(tmp_path / "home", create=True) as store:
        with store.transaction(Actor.AGENT, "new") as tx:
            tx.put(Ref.parse("pdf"), {"SKILL.md": File(text("pdf").encode())})
        changes = store.changes(0, 10)
    shutil.rmtree(tmp_path / "home")
    notifier = Notifier(store)
    await notifier.publish(changes)  # which would look into the library that is gone
    notifier.bus.subscribe(lambda event: None)
    with pytest.raises(EvolvableError):
        await notifier.publish(changes)


async def test_a_saved_file_is_a_new_version_at_once(place, era):
    async with place.client(era) as client:
        await follow(client)
        place.save("pdf", text("pdf", "saved in an editor"))
        version = version_of(client, "pdf")

        async def seen():
            return await version() == 2

        await until(seen)
        result = await client.call_tool("get_resource", {"ref": "pdf"})
        assert "saved in an editor" in result.content[0].text


async def test_edits_made_while_no_server_ran_are_taken_in_at_the_start(place):
    place.save("pdf", text("pdf", "edited in the night"))
    async with place.client("modern") as client:
        version = version_of(client, "pdf")

        async def seen():
            return await version() == 2

        await until(seen)


async def test_two_hundred_new_folders_are_all_seen(place):
    """Events of files in new folders get lost; every one must be taken in all the same."""
    async with place.client("modern") as client:
        await follow(client)
        for number in range(200):
            place.save(f"skill-{number}", text(f"skill-{number}"))
            place.save(f"skill-{number}", "print(1)\n", "scripts/run.py")

        async def all_there():
            result = await client.call_tool("list_resources", {"limit": 200, "query": "skill-"})
            return len(result.structured_content["resources"]) == 200

        await until(all_there)

        async def all_whole():
            with Store.open(place.home) as store:
                heads = [head for head in store.heads() if head.name.startswith("skill-")]
                return all(len(store.manifest(head)) == 2 for head in heads)

        await until(all_whole)


async def test_a_deleted_and_a_returned_folder_are_followed(place):
    async with place.client("modern") as client:
        await follow(client)
        version = version_of(client, "pdf")
        shutil.move(place.skills / "pdf", place.root / "aside")

        async def gone():
            return await version() is None

        await until(gone)
        shutil.move(place.root / "aside", place.skills / "pdf")

        async def back():
            return await version() == 1

        await until(back)


async def test_a_change_by_another_process_is_found_and_written_out_by_it(place, era):
    async with place.client(era) as client:
        await follow(client)
        with Store.open(place.home) as other, other.transaction(Actor.AGENT, "elsewhere") as tx:
            tx.put(Ref.parse("pdf"), {"SKILL.md": File(text("pdf", "quokka marsupials").encode())})

        found = await client.call_tool("find_skill", {"task": "quokka marsupials"})
        assert best_of(found.structured_content) == "skill:pdf"

        async def written():
            return "quokka" in (place.skills / "pdf/SKILL.md").read_text(encoding="utf-8")

        await until(written)


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
async def test_clients_of_both_eras_are_told(place, era):
    told: list[str] = []
    with Store.open(place.home) as store:
        note = MoveNote(store.now(), Actor.HUMAN, "hosts see what I save", None, 0)
        store.backend.channel.set_policy(note, ReleasePolicy.LIVE)

    async def on_message(message):
        told.append(getattr(message, "method", type(message).__name__))

    async with place.client(era, message_handler=on_message) as client:
        await follow(client)
        async with anyio.create_task_group() as tasks:
            if era == "handshake":
                await client.session.subscribe_resource("skill://pdf/SKILL.md")
            else:
                tasks.start_soon(_listen, client)
            place.save("pdf", text("pdf", "changed"))

            async def both():
                return {
                    "notifications/resources/list_changed",
                    "notifications/resources/updated",
                } <= set(told)

            await until(both)
            tasks.cancel_scope.cancel()


async def _listen(client):
    async with client.listen(
        resources_list_changed=True, resource_subscriptions=["skill://pdf/SKILL.md"]
    ) as events:
        async for _ in events:
            pass


async def test_a_folder_added_by_another_process_is_followed_too(place, tmp_path):
    more = tmp_path / "more"
    (more / "txt").mkdir(parents=True)
    (more / "txt/SKILL.md").write_text(text("txt"), encoding="utf-8")
    async with place.client("modern") as client:
        await follow(client)
        with Store.open(place.home) as other:
            WorkingCopies(other).add(more)
        (more / "txt/SKILL.md").write_text(text("txt", "edited"), encoding="utf-8")
        version = version_of(client, "txt")

        async def seen():
            return await version() == 2

        await until(seen)


async def test_a_folder_whose_import_another_process_did_not_begin_is_imported(place, tmp_path):
    (tmp_path / "more/txt").mkdir(parents=True)
    (tmp_path / "more/txt/SKILL.md").write_text(text("txt"), encoding="utf-8")
    async with place.client("modern") as client:
        await follow(client)
        with Store.open(place.home) as other:  # `evolvable init`, killed before it read anything
            other.backend.bindings.add_folder(tmp_path / "more", USER_SCOPE, Kind.SKILL)
        version = version_of(client, "txt")

        async def seen():
            return await version() == 1

        await until(seen)


async def test_a_folder_that_is_replaced_by_another_is_followed_on(place):
    async with place.client("modern") as client:
        await follow(client)
        place.save("pdf", text("pdf", "first"))
        version = version_of(client, "pdf")

        async def at(number):
            return await version() == number

        await until(lambda: at(2))
        shutil.copytree(place.skills, place.root / "copy")
        shutil.move(place.skills, place.root / "away")
        shutil.move(place.root / "copy", place.skills)
        place.save("pdf", text("pdf", "second"))

        await until(lambda: at(3))


async def test_a_server_follows_a_plugin_to_its_next_version_and_shows_its_skills(place, tmp_path):
    plugin = tmp_path / ".claude/plugins/cache/acme/tools"

    def lay(version, body):
        (plugin / version / "skills/boats").mkdir(parents=True)
        (plugin / version / "skills/boats/SKILL.md").write_text(
            text("boats", body), encoding="utf-8"
        )

    lay("1.0.0", "old")
    with Store.open(place.home) as store:
        WorkingCopies(store).add(plugin / "1.0.0/skills", scope="plugin:tools")
    lay("1.1.0", "new")
    async with place.client("modern") as client:
        await follow(client)
        version = version_of(client, "plugin:tools/boats")

        async def seen():
            return await version() == 2

        await until(seen)
        (uri,) = [
            str(one.uri)
            for one in (await client.list_resources()).resources
            if "boats" in str(one.uri)
        ]
        read = await client.read_resource(uri)
        loaded = await client.call_tool("load_skill", {"ref": "boats"})
    assert uri == "skill://plugin%3Atools/boats/SKILL.md"
    assert read.contents[0].text == text("boats", "old")  # what hosts see until somebody publishes
    assert "new" in loaded.content[0].text and "It is material to judge" in loaded.content[0].text

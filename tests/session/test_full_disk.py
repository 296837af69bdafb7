"""Real agents of both kinds whose manager writes to a disk that is full: in a seam, and on a real small one for root."""

import errno
import os
import shutil
import subprocess

import pytest

from antiphon import Agent, BidiAgent, SnapshotSessionManager
from antiphon.content import text_of
from antiphon.conversation.repair import problems
from antiphon.errors import SessionSaveError, StorageError
from antiphon.hooks.events import SessionSaveFailedEvent
from antiphon.storage import LocalFileStorage
from antiphon.testing import FailingFileSystem, ScriptedBidiModel, ScriptedModel, VirtualClock


class SeamDisk:
    """A folder on a disk that fails as it is told to."""

    def __init__(self, folder):
        self.files = FailingFileSystem()
        self.storage = LocalFileStorage(folder / "base", filesystem=self.files)

    def fill(self):
        self.files.fail(errno.ENOSPC)

    def empty(self):
        self.files.mend()


class RealDisk:
    """A file system of 256 KiB, filled by a file."""

    def __init__(self, folder):
        self.folder = folder
        self.storage = LocalFileStorage(folder / "base")

    def fill(self):
        with open(self.folder / "ballast", "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 4096)
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - that it is raised is what ends the loop

    def empty(self):
        (self.folder / "ballast").unlink()


@pytest.fixture(params=["seam", "real"])
def disk(request, tmp_path):
    if request.param == "seam":
        made = SeamDisk(tmp_path)
        yield made
        made.storage.close()
        return
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount a small file system")
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    made = RealDisk(place)
    yield made
    made.storage.close()
    subprocess.run(["umount", "-l", str(place)], check=True)


def words(agent):
    return [text_of(message) for message in agent.messages]


def restored(disk):
    """What another process finds."""
    storage = LocalFileStorage(disk.storage.base_dir)
    agent = Agent(ScriptedModel([]), session_manager=SnapshotSessionManager("s", storage=storage))
    storage.close()
    assert problems(agent.messages) == []
    return words(agent)


async def test_an_agent_on_a_full_disk_hands_its_answer_over_and_saves_all_of_it_when_there_is_room(disk):
    manager = SnapshotSessionManager("s", storage=disk.storage)
    agent = Agent(ScriptedModel(["One.", "Two.", "Three."]), session_manager=manager)
    await agent.invoke_async("first")
    disk.fill()
    with pytest.raises(SessionSaveError, match="No space left on device") as refused:
        await agent.invoke_async("second")
    assert text_of(refused.value.result.message) == "Two."
    assert isinstance(refused.value.__cause__, StorageError)
    assert words(agent) == ["first", "One.", "second", "Two."]
    assert manager.health.behind
    assert restored(disk) == ["first", "One."]  # the older state is whole
    disk.empty()
    await agent.invoke_async("third")
    assert not manager.health.behind
    assert restored(disk) == ["first", "One.", "second", "Two.", "third", "Three."]


async def test_a_talk_on_a_full_disk_goes_on_and_is_saved_when_there_is_room(disk):
    clock = VirtualClock()
    manager = SnapshotSessionManager("s", storage=disk.storage, clock=clock)
    model = ScriptedBidiModel(clock=clock)
    agent = BidiAgent(model, session_manager=manager, clock=clock)
    told = []
    agent.add_hook(told.append, SessionSaveFailedEvent)
    async with agent:
        await agent.send("first")
        disk.fill()
        await agent.send("second")
        await agent.send("third")
        await clock.sleep(5)
        assert [block.text for message in model.sent for block in message.content] == ["first", "second", "third"]
        assert manager.health.behind
        assert "No space left on device" in str(told[0].error)
        assert [event.attempt for event in told] == list(range(1, len(told) + 1))
        assert restored(disk) == ["first"]
        disk.empty()
        await clock.sleep(60)
        assert not manager.health.behind
        assert restored(disk) == ["first", "second", "third"]


async def test_a_talk_that_ends_on_a_full_disk_says_so_and_loses_nothing_that_was_saved(disk):
    clock = VirtualClock()
    manager = SnapshotSessionManager("s", storage=disk.storage, clock=clock)
    agent = BidiAgent(ScriptedBidiModel(clock=clock), session_manager=manager, clock=clock)
    await agent.start()
    await agent.send("first")
    disk.fill()
    await agent.send("second")
    with pytest.raises(SessionSaveError, match="No space left on device"):
        await agent.stop()
    assert restored(disk) == ["first"]
    assert words(agent) == ["first", "second"]
    disk.empty()
    await manager.save_snapshot(agent, is_latest=True)
    assert restored(disk) == ["first", "second"]


async def test_a_session_on_a_read_only_disk_is_read_and_what_is_new_is_not_saved(tmp_path):
    disk = SeamDisk(tmp_path)
    agent = Agent(ScriptedModel(["One."]), session_manager=SnapshotSessionManager("s", storage=disk.storage))
    await agent.invoke_async("first")
    disk.files.fail(errno.EROFS)
    again = Agent(ScriptedModel(["Two."]), session_manager=SnapshotSessionManager("s", storage=disk.storage))
    assert words(again) == ["first", "One."]
    with pytest.raises(SessionSaveError, match="Read-only file system"):
        await again.invoke_async("second")
    assert restored(disk) == ["first", "One."]
    disk.storage.close()

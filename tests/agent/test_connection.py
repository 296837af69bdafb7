"""The live connection by itself: what goes out in which order, what ends it, and how another takes its place."""

import asyncio

import pytest

from antiphon.agent.connection import BOUNDARY_WAIT_S, SHORT_LIVES, Connection, Results
from antiphon.content import AudioDelta, BidiMessage, TextBlock, ToolResultBlock
from antiphon.conversation.history import Truncate
from antiphon.errors import ConnectionEndedError, ConnectionTimeoutError, ModelError
from antiphon.events import BidiConnectionWarningEvent, BidiUsageEvent
from antiphon.testing import ScriptedBidiModel, VirtualClock


class Call:
    """What a connection sees of its call; `log` has what it asked for."""

    def __init__(self, model, clock):
        self.clock, self.model = clock, model
        self.connection = Connection(self, model, clock, lambda: ("Be brief.", []))
        self.at_boundary = True
        self.messages = [{"role": "user", "content": [{"text": "Hi"}], "metadata": {"kind": "speech"}}]
        self.log, self.taken, self.emitted, self.errors, self.tasks = [], [], [], [], []

    def spawn(self, work):
        task = asyncio.ensure_future(self.guard(work))
        task.add_done_callback(lambda _: work.close())  # one that is cancelled before its first step leaves it as it is
        self.tasks.append(task)
        return task

    async def guard(self, work):
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the edge of a task, as in a call
            self.fail(error)

    def take(self, event):
        self.taken.append(event)

    def emit(self, event):
        self.emitted.append(event)

    def fail(self, error):
        self.errors.append(error)
        self.connection.gate.close(error)

    def history(self):
        return list(self.messages)

    async def before_restart(self, reason, error):
        self.log.append(("before", reason, error))

    async def after_restart(self, reason, error):
        self.log.append(("after", reason, error))

    async def begin(self):
        await self.connection.open()
        self.connection.begin()

    async def __aenter__(self):
        await self.begin()
        return self

    async def __aexit__(self, *_):
        await self.connection.halt()
        await self.model.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def a_call(**model):
    clock = VirtualClock()
    return Call(ScriptedBidiModel(clock=clock, **model), clock)


def told(*texts):
    return BidiMessage([TextBlock(text) for text in texts])


def result(call_id="t1"):
    return Results(
        {call_id}, lambda generation: BidiMessage([ToolResultBlock(call_id, "success", [{"text": str(generation)}])])
    )


LIMIT = ConnectionTimeoutError("eight minutes are over", handle="h1")


async def test_a_connection_is_opened_with_the_prompt_and_the_history_without_metadata():
    async with a_call() as call:
        (start,) = call.model.starts
        assert start.system_prompt == "Be brief."
        assert start.messages == [{"role": "user", "content": [{"text": "Hi"}]}]
        assert call.connection.generation == 1


async def test_a_connection_that_cannot_be_opened_raises_why_and_releases_what_the_model_holds():
    call = a_call(start_errors=[ModelError("no key")])
    with pytest.raises(ModelError, match="no key"):
        await call.connection.open()
    assert (call.model.stops, call.tasks) == (1, [])


@pytest.mark.parametrize("restartable", [True, False])
async def test_a_connection_at_its_limit_is_replaced_by_one_that_knows_the_history(restartable):
    async with a_call(restartable=restartable) as call:
        call.messages.append({"role": "assistant", "content": [{"text": "Hello"}]})
        call.model.fail(LIMIT)
        await call.clock.sleep(1)
        assert call.log == [("before", "timeout", LIMIT), ("after", "timeout", None)]
        assert [len(start.messages) for start in call.model.starts] == [1, 2]
        assert call.model.starts[1].config == {"handle": "h1"}
        assert len(call.model.restarts) == restartable
        assert (call.connection.generation, call.errors) == (2, [])
        await call.connection.send_sound(AudioDelta("pcm", {"bytes": b"\0\0"}))
        call.model.feed(BidiUsageEvent(input_tokens=2))
        await call.clock.sleep(0.1)
        assert call.taken == [BidiUsageEvent(input_tokens=2)]


async def test_a_limit_ends_the_call_where_restarts_are_turned_off():
    async with a_call(connection={"auto_restart": False}) as call:
        call.model.fail(LIMIT)
        await call.clock.sleep(1)
        assert (call.errors, len(call.model.starts)) == ([LIMIT], 1)


async def test_a_connection_that_fails_or_ends_by_itself_ends_the_call():
    async with a_call() as call:
        call.model.fail(ModelError("broken pipe"))
        await call.clock.sleep(1)
        assert [str(error) for error in call.errors] == ["broken pipe"]
    async with a_call() as call:
        call.model.end()
        await call.clock.sleep(1)
        (error,) = call.errors
        assert isinstance(error, ConnectionEndedError)
        assert "'scripted' ended the connection" in str(error)


async def test_a_restart_that_fails_says_so_to_the_hooks_and_ends_the_call():
    refused = ModelError("refused")
    async with a_call(start_errors=[None, refused]) as call:
        call.model.fail(LIMIT)
        await call.clock.sleep(1)
        assert call.log[-1] == ("after", "timeout", refused)
        (error,) = call.errors
        assert isinstance(error, ConnectionEndedError)
        assert error.__cause__ is refused
        with pytest.raises(ConnectionEndedError):
            await call.connection.send_message(told("x"), call.messages[0])


async def test_connections_that_end_as_soon_as_they_are_open_are_opened_ever_later_and_then_no_more():
    async with a_call() as call:
        began = call.clock.now()
        while not call.errors:
            if call.model.connected:
                call.model.fail(LIMIT)
            await call.clock.sleep(0.1)
        assert len(call.model.starts) == SHORT_LIVES
        assert call.clock.now() - began > 7  # 0.5 + 1 + 2 + 4 s, and the moments between
        assert isinstance(call.errors[0], ConnectionEndedError)


async def test_results_of_tools_wait_for_a_connection_and_are_told_which_one_it_is():
    async with a_call() as call:
        call.connection.post(result("t1"))
        await call.clock.sleep(0.1)
        call.model.fail(LIMIT)
        await call.clock.sleep(0.0)
        call.connection.post(result("t2"))
        call.connection.post(result("t3"))
        await call.clock.sleep(1)
        sent = [
            (block.tool_use_id, block.content[0]["text"]) for message in call.model.sent for block in message.content
        ]
        assert sent == [("t1", "1"), ("t2", "2"), ("t3", "2")]


async def test_a_new_connection_is_not_told_twice_of_results_that_are_still_to_be_sent():
    async with a_call() as call:
        asked = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t1", "name": "book", "input": {}}}]}
        answered = {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "t1", "status": "success", "content": []}}],
        }
        call.model.fail(LIMIT)
        await call.clock.sleep(0.0)
        call.messages += [asked, answered]
        call.connection.post(result("t1"))
        await call.clock.sleep(1)
        assert call.model.starts[1].messages == [{"role": "user", "content": [{"text": "Hi"}]}]
        assert [block.tool_use_id for message in call.model.sent for block in message.content] == ["t1"]


async def test_what_was_heard_is_told_to_the_connection_that_spoke_and_to_no_other():
    async with a_call() as call:
        call.connection.post(Truncate("r1", 100.0))
        await call.clock.sleep(0.1)
        assert call.model.truncations == [("r1", 100.0)]
        call.connection.gate.close()
        call.connection.post(Truncate("r1", 200.0))
        call.model.fail(LIMIT)
        await call.clock.sleep(1)
        assert call.connection.generation == 2
        assert call.model.truncations == [("r1", 100.0)]


async def test_a_model_that_does_not_want_to_know_what_was_heard_does_not_end_the_call(caplog):
    async with a_call() as call:

        async def refuse(response_id, played_ms):
            raise ModelError("no such item")

        call.model.truncate = refuse
        call.connection.post(Truncate("r1", 100.0))
        call.connection.post(result())
        await call.clock.sleep(0.1)
        assert (call.errors, len(call.model.sent)) == ([], 1)
        assert "was not told how much of 'r1' was heard" in caplog.text
    async with a_call(truncatable=False) as call:
        call.connection.post(Truncate("r1", 100.0))
        await call.clock.sleep(0.1)
        assert call.errors == []


async def test_a_message_that_a_dying_connection_swallows_is_sent_to_the_next_and_not_in_its_history_too():
    async with a_call() as call:
        message = {"role": "user", "content": [{"text": "Book it"}]}
        call.messages.append(message)
        call.model.fail(LIMIT)  # the reader does not know yet
        await call.connection.send_message(told("Book it"), message)
        assert [block.text for sent in call.model.sent for block in sent.content] == ["Book it"]
        assert [len(start.messages) for start in call.model.starts] == [1, 1]
        assert call.errors == []


async def test_an_older_connection_is_not_heard_any_more():
    async with a_call(restartable=True) as call:
        call.connection.restart_within(0.0, 0.0)
        await call.clock.sleep(1)
        assert call.connection.generation == 2
        call.model.feed(BidiUsageEvent(input_tokens=1))
        await call.clock.sleep(0.1)
        assert call.taken == [BidiUsageEvent(input_tokens=1)]


async def test_a_scheduled_restart_gives_notice_and_waits_until_nobody_speaks():
    async with a_call(connection={"restart_after_s": 60}) as call:
        call.at_boundary = False
        await call.clock.sleep(59.9)
        assert call.emitted == [BidiConnectionWarningEvent(time_left_s=BOUNDARY_WAIT_S)]
        await call.clock.sleep(3)
        assert len(call.model.starts) == 1
        call.at_boundary = True
        await call.clock.sleep(1)
        assert len(call.model.starts) == 2
        assert call.log == [("before", "scheduled", None), ("after", "scheduled", None)]


async def test_a_scheduled_restart_waits_no_longer_than_its_bound():
    async with a_call(connection={"restart_after_s": 60}) as call:
        call.at_boundary = False
        await call.clock.sleep(60 + BOUNDARY_WAIT_S + 1)
        assert len(call.model.starts) == 2


async def test_a_provider_that_says_it_will_end_the_connection_is_left_before_it_does():
    async with a_call() as call:
        call.at_boundary = False
        call.connection.expect_end(5.0)
        await call.clock.sleep(3)
        assert len(call.model.starts) == 1
        await call.clock.sleep(1.5)
        assert len(call.model.starts) == 2


async def test_after_halt_nothing_is_heard_sent_or_restarted():
    async with a_call(connection={"restart_after_s": 60}) as call:
        await call.connection.halt()
        call.model.feed(BidiUsageEvent(input_tokens=1))
        call.model.fail(LIMIT)
        await call.clock.sleep(100)
        assert (call.taken, call.errors, len(call.model.starts)) == ([], [], 1)

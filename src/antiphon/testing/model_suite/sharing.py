"""Two calls over one live model object, one after the other and at once, as tests."""

from __future__ import annotations

import pytest

from antiphon.agent.live import BidiAgent
from antiphon.errors import AntiphonError, ConnectionEndedError
from antiphon.events import BidiConnectionRestartEvent, BidiResponseStartEvent, BidiUsageEvent
from antiphon.models.bidi import BidiModel
from antiphon.testing.clock import VirtualClock
from antiphon.testing.model_suite.support import Lacks
from antiphon.testing.model_suite.talk import LiveProvider, Talk, texts
from antiphon.tools.decorator import tool


class SharedModels(Lacks):
    """A part of `BidiModelContract`: a model has one connection, and whoever starts it takes it over."""

    async def test_a_second_call_over_a_model_knows_nothing_of_the_first(
        self, model: BidiModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        tools = "tools" not in self.lacks

        @tool
        def weather(city: str) -> str:
            """Tells the weather of a city.

            Args:
                city: Its name.
            """
            return f"sunny in {city}"

        config = model.get_config()
        if tools:
            provider.call_tools([("weather", {"city": "Paris"})])
        provider.say("Sunny.")
        first = Talk(BidiAgent(model, clock=clock, tools=[weather], system_prompt="Be secretive."), clock)
        async with first:
            await first.agent.send("What is the weather?")
            await first.sounds(1)
            await first.listen(3)
        used = first.agent.usage
        provider.say("Here I am.")
        second = Talk(BidiAgent(model, clock=clock), clock)
        async with second:
            assert provider.seeded() == []
            await second.agent.send("Are you there?")
            await second.answers(1)
            await second.listen(3)
            if "expiry" not in self.lacks:
                provider.expire()
                await second.until(lambda: bool(second.of(BidiConnectionRestartEvent)), "the restart")
                await second.until(lambda: provider.connections() == 3, "a third connection")
            provider.say("Still here.")
            await second.agent.send("And now?")
            await second.sounds(2)
            await second.listen(3)
            told = " ".join(text for _, text in provider.told())
        assert texts(second.agent) == ["u: Are you there?", "a: Here I am.", "u: And now?", "a: Still here."]
        assert "weather" not in told
        assert "Sunny" not in told
        assert "secretive" not in told
        ids = [{event.response_id for event in talk.of(BidiResponseStartEvent)} for talk in (first, second)]
        assert ids[0].isdisjoint(ids[1]), "ids of answers came twice"
        assert first.agent.usage == used
        if "usage" not in self.lacks:
            assert second.agent.usage.total_tokens == sum(e.total_tokens for e in second.of(BidiUsageEvent)) > 0
        assert model.get_config() == config
        assert provider.complaints() == []

    async def test_whoever_starts_a_model_that_is_in_use_takes_it_over_and_the_other_is_told(
        self, model: BidiModel, clock: VirtualClock, provider: LiveProvider
    ) -> None:
        provider.say("Sunny.")
        provider.say("Here I am.")
        second = Talk(BidiAgent(model, clock=clock), clock)
        first = Talk(BidiAgent(model, clock=clock), clock)
        await first.__aenter__()
        try:
            await first.agent.send("What is the weather?")
            await first.answers(1)
            await first.listen(3)
            async with second:
                # Nothing of the first call goes to the second one's connection, from the first moment on.
                for content in (first.sound_of_the_user(), "What is the weather now?"):
                    with pytest.raises(AntiphonError):
                        await first.agent.send(content)
                await first.until(lambda: first.error is not None, "the end")
                assert isinstance(first.error, ConnectionEndedError)
                await first.__aexit__(None, None, None)
                await second.agent.send("Are you there?")
                await second.answers(1)
                await second.listen(3)
                assert second.error is None
                told = " ".join(text for _, text in provider.told())
        finally:
            await first.agent.stop()
        assert provider.connections() == 2
        assert "weather" not in told
        assert not any(provider.heard()[1])
        assert texts(first.agent)[:2] == ["u: What is the weather?", "a: Sunny."]
        assert texts(second.agent) == ["u: Are you there?", "a: Here I am."]
        assert provider.complaints() == []

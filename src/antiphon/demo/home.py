"""What the demo's agent can do: lights, weather, and bookings."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from antiphon.tools.base import AgentTool
from antiphon.tools.decorator import tool

_WEATHER = {
    ("Paris", "today"): "rain, 9 degrees",
    ("Paris", "tomorrow"): "sunshine, 14 degrees",
    ("London", "today"): "fog, 7 degrees",
    ("London", "tomorrow"): "rain, 8 degrees",
    ("Rome", "today"): "sunshine, 17 degrees",
    ("Rome", "tomorrow"): "clouds, 16 degrees",
}
_CONFIRMATION_S = 60.0
"""How long the restaurant takes to confirm: longer than the process lives."""


def home(folder: Path, changed: Callable[[], None]) -> list[AgentTool]:
    """The three tools of a home.

    Args:
        folder: Where its state lies.
        changed: Called when a booking was written.
    """

    @tool
    def set_lights(room: Literal["kitchen", "bedroom", "hall"], on: bool) -> str:  # noqa: FBT001 - the model's argument
        """Turn the lights of a room on or off.

        Examples:
            turn on the kitchen lights
            switch the bedroom lights off
        """
        lights = read_lights(folder)
        lights[room] = on
        (folder / "lights.json").write_text(json.dumps(lights, indent=1), encoding="utf-8")
        return f"The {room} lights are {'on' if on else 'off'}."

    @tool
    def weather(city: Literal["Paris", "London", "Rome"], day: Literal["today", "tomorrow"] = "today") -> str:
        """Tell the weather in a city.

        Examples:
            what is the weather in Paris tomorrow
        """
        return f"In {city} {day}: {_WEATHER[city, day]}."

    @tool
    async def book_table(guests: int, hour: int) -> str:
        """Book a table in the restaurant.

        Args:
            guests: How many people come.
            hour: At what hour.

        Examples:
            please book a table for two at seven o'clock
        """
        with (folder / "bookings.txt").open("a", encoding="utf-8") as file:
            print(f"{guests} guests at {hour} o'clock", file=file, flush=True)
            os.fsync(file.fileno())
        changed()
        await asyncio.sleep(_CONFIRMATION_S)
        return f"A table for {guests} at {hour} is confirmed."

    return [set_lights, weather, book_table]


def read_lights(folder: Path) -> dict[str, bool]:
    """Which lights are on."""
    try:
        lights: dict[str, bool] = json.loads((folder / "lights.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return lights


def read_bookings(folder: Path) -> list[str]:
    """The bookings that were written."""
    try:
        return (folder / "bookings.txt").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []

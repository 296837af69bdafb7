"""A module with tools, for tests of loading them by name."""

from antiphon.tools.decorator import tool
from tests.tools.owner import PlainTool


@tool
def light(on: bool) -> str:
    """Switch the light."""
    return "on" if on else "off"


@tool(name="fan-speed")
def fan(speed: int) -> int:
    """Set the fan."""
    return speed


hand_made = PlainTool("hand_made")
the_same = light
_hidden = PlainTool("hidden")


def no_tool() -> None:
    """Not decorated."""


class Shelf:
    """Holds one more."""

    book = PlainTool("book")

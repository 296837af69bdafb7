"""For your own tests: contracts as suites, a clock that tests drive, and fakes that pass the suites."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from antiphon.testing.clock import VirtualClock
else:
    _NAMES = {
        "VirtualClock": "antiphon.testing.clock",
    }

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _NAMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_NAMES[name]), name)


__all__ = [
    "VirtualClock",
]

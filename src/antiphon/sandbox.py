"""Where tool code runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostSandbox:
    """The host itself: a tool can do whatever this process can.

    Attributes:
        isolated: False. Nothing is kept from a tool: not the file system, not the network, not the process's memory.
    """

    isolated: bool = False

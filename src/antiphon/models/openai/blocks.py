"""Blocks of an answer in order, out of a wire on which several may arrive at once. Pure."""

from __future__ import annotations

from typing import Any

from antiphon.models.base import StreamEvent


class BlockOrder:
    """One block after another: the oldest that is open is passed on as it comes, those after it wait until it ends.

    The shape of `StreamEvent` has one open block at a time; providers may send the arguments of parallel calls mixed.
    """

    def __init__(self) -> None:
        self._blocks: dict[object, list[StreamEvent]] = {}
        self._ended: set[object] = set()
        self._begun = False

    def begin(self) -> list[StreamEvent]:
        """The answer has begun, if it had not before."""
        if self._begun:
            return []
        self._begun = True
        return [{"messageStart": {"role": "assistant"}}]

    def open(self, key: object, start: dict[str, Any] | None = None) -> list[StreamEvent]:
        """A block begins, unless it has.

        Args:
            key: Names it in later calls.
            start: `{"toolUse": {"toolUseId", "name"}}` for a call.
        """
        if key in self._blocks or key in self._ended:
            return []
        told = self.begin()
        self._blocks[key] = []
        return told + self._put(key, {"contentBlockStart": {"start": start or {}}})

    def delta(self, key: object, delta: dict[str, Any]) -> list[StreamEvent]:
        """A piece of a block that is open; of one that has ended, nothing is taken."""
        if key not in self._blocks or key in self._ended:
            return []
        return self._put(key, {"contentBlockDelta": {"delta": delta}})

    def close(self, key: object) -> list[StreamEvent]:
        """A block has ended."""
        if key not in self._blocks or key in self._ended:
            return []
        told = self._put(key, {"contentBlockStop": {}})
        self._ended.add(key)
        while self._blocks and (first := next(iter(self._blocks))) in self._ended:
            del self._blocks[first]
            if self._blocks:  # the next one is passed on from here: first what waited
                following = next(iter(self._blocks))
                told += self._blocks[following]
                self._blocks[following] = []
        return told

    def finish(self) -> list[StreamEvent]:
        """Everything has ended."""
        return [event for key in list(self._blocks) for event in self.close(key)]

    def _put(self, key: object, event: StreamEvent) -> list[StreamEvent]:
        if next(iter(self._blocks)) == key:
            return [event]
        self._blocks[key].append(event)
        return []

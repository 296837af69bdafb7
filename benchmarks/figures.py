"""What a suite measures, and what of it should come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row of the table.

    Attributes:
        key: What the subjects call it.
        label: What people call it.
        unit: Printed after each number.
        target: What Antiphon should reach; None where nothing was promised.
        at_least: Whether more is better; else less is.
        of: The target is so many times what this subject has.
    """

    key: str
    label: str
    unit: str
    target: float | None = None
    at_least: bool = False
    of: str | None = None

    def met(self, value: float, measured: Mapping[str, Mapping[str, float]] | None = None) -> bool | None:
        """Whether `value` reaches the target; None without one.

        Args:
            value: What was measured.
            measured: The figures of each subject, for a target that is some times another's.
        """
        if self.target is None:
            return None
        target = self.target
        if self.of is not None:
            other = (measured or {}).get(self.of, {}).get(self.key)
            if other is None:
                return None
            target *= other
        return value >= target if self.at_least else value <= target


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A piece of work that a subject does in a process of its own.

    Attributes:
        name: What the subjects' modules call it.
        figures: What comes of it.
    """

    name: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Cases, and who can do them.

    Attributes:
        name: Names it on the command line.
        title: For people.
        cases: In the order in which they run.
        modules: By subject, the module that does the cases; one that lacks a case says so, and its cell stays empty.
        ours: The subjects that should reach the targets.
        base: The subject that all others are given as a multiple of.
    """

    name: str
    title: str
    cases: tuple[Case, ...]
    modules: Mapping[str, str]
    ours: tuple[str, ...] = ("antiphon",)
    base: str = "antiphon"

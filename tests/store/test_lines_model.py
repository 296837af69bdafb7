"""Random histories on the store in memory against a model that keeps whole rows."""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from antiphon.store import LineStore
from antiphon.store.core import StoreCore
from antiphon.store.memory import MemoryBackend
from antiphon.testing.store_suite.model import StoreMachine


class MemoryMachine(StoreMachine):
    def open(self, place: Path) -> LineStore:
        self._backend = getattr(self, "_backend", None) or MemoryBackend()
        return LineStore(StoreCore(self._backend, name="model"))


def test_any_history_reads_back_to_the_bit_in_every_row():
    run_state_machine_as_test(
        MemoryMachine,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

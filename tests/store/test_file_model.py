"""Random histories on the store in files against a model that keeps whole rows."""

from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from antiphon.filesystem import FileSystem
from antiphon.store.file import FileSessionStore
from antiphon.store.file.log import Log
from antiphon.testing.store_suite.model import StoreMachine


class Unflushed(FileSystem):
    """What is lost with the power is looked at elsewhere; here time matters more."""

    def sync(self, fd: int) -> None:
        pass

    sync_data = sync_folder = sync


class FileMachine(StoreMachine):
    def open(self, place: Path) -> FileSessionStore:
        self._place = place
        return FileSessionStore(place / "sessions", filesystem=Unflushed())

    def teardown(self) -> None:
        for path in self._place.rglob("*.log"):
            log, descriptor = Log(), path.open("rb")
            with descriptor:
                assert not log.catch_up(descriptor.fileno())
                assert log.end == path.stat().st_size, "a log holds whole frames only"
                assert not log.contents.lost
        super().teardown()


def test_any_history_reads_back_to_the_bit_in_every_row():
    run_state_machine_as_test(
        FileMachine,
        settings=settings(
            max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )

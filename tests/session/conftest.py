"""Every place for sessions."""

import pytest

from tests.session.places import DISK_PLACES, PLACES
from tests.store.conftest import postgres_dsn, postgres_server, schema  # noqa: F401 - fixtures


@pytest.fixture(params=[*PLACES, *DISK_PLACES], ids=lambda place: place.name)
def place(request, tmp_path):
    if request.param in PLACES:
        yield request.param()
    else:
        folder = tmp_path / "sessions"
        folder.mkdir()
        made = request.param(folder)
        yield made
        made.close()

"""Every place for sessions."""

import pytest

from tests.session.places import PLACES
from tests.store.conftest import postgres_dsn, postgres_server, schema  # noqa: F401 - fixtures


@pytest.fixture(params=PLACES, ids=[place.name for place in PLACES])
def place(request):
    return request.param()

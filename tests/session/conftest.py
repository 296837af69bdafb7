"""Every place for sessions."""

import pytest

from tests.session.places import PLACES


@pytest.fixture(params=PLACES, ids=[place.name for place in PLACES])
def place(request):
    return request.param()

"""A journal that another version wrote."""

import pytest

from antiphon.conversation.journal import Journal
from antiphon.errors import CorruptSnapshotError
from antiphon.jsonable import decode_json, encode_json
from antiphon.session.stored import journal_bytes, journal_data, read_journal


def test_a_journal_is_read_back():
    journal = Journal(mark=3)
    assert read_journal("open.json", journal_bytes(journal_data(journal), "line")) == (journal, "line")


@pytest.mark.parametrize("version", ["9.0", 2, None])
def test_a_journal_of_another_schema_is_left_aside_by_name(version):
    entry = {**decode_json(journal_bytes(journal_data(Journal()), None)), "schema_version": version}
    with pytest.raises(CorruptSnapshotError, match="schema"):
        read_journal("open.json", encode_json(entry))

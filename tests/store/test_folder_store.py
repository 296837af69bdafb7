"""The example of the page "Write a store" is a session store."""

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from antiphon.errors import CorruptStoreError
from antiphon.store import SessionStore, decode_row, encode_row
from antiphon.testing.store_contract import SessionStoreContract
from antiphon.testing.store_suite.support import exact, row, said, snapshot

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "folder_store.py"


def example() -> Any:
    """The module of the page."""
    name = "folder_store"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, EXAMPLE)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class TestFolderStore(SessionStoreContract):
    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Callable[[], SessionStore]:
        return lambda: example().FolderStore(tmp_path / "sessions")

    @pytest.fixture
    def reopen(self, open_store: Callable[[], SessionStore]) -> Callable[[], SessionStore]:
        return open_store


def test_the_example_has_sixty_lines_of_code():
    lines = EXAMPLE.read_text(encoding="utf-8").splitlines()
    code = [line for line in lines if line.strip() and not line.startswith(("import ", "from ", '"""'))]
    assert len(code) <= 60


def test_a_row_as_json_reads_back_to_the_bit():
    there = row(
        snapshot_id="r", status="failed", error={"n": -0.0}, usage={"n": 1}, journal={"b": b"\0"},
        snapshot=snapshot(said("a\0\U0001f600"), state={"n": 1.0}),
    )  # fmt: skip
    assert exact(decode_row(encode_row(there))) == exact(there)
    for damaged in (b"", b"[]", b"{}", encode_row(there)[:-20], encode_row(there).replace(b'"epoch"', b'"epoche"')):
        with pytest.raises(CorruptStoreError):
            decode_row(damaged)

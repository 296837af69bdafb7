"""Names for tests that want packages of their own, which are loaded with them."""

from __future__ import annotations

from importlib import import_module

from antiphon.errors import MissingExtraError

_PACKAGES = frozenset({"h11", "h2", "hypothesis", "pytest", "pytest_asyncio", "trustme", "websockets"})


def load(module: str, name: str) -> object:
    """`name` of `module`.

    Raises:
        MissingExtraError: If a package of the extra `testing` is not installed.
    """
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _PACKAGES:
            raise
        raise MissingExtraError(package.replace("_", "-"), "testing") from error

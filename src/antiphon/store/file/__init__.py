"""The session store in a folder."""

from antiphon.store.file.store import Damage, FileSessionStore, open_url

__all__ = ["Damage", "FileSessionStore", "open_url"]

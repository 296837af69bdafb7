"""Sessions: when an agent is saved, where, and how it comes back."""

from antiphon.session.base import SessionManager

__all__ = ["SessionManager"]

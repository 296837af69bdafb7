"""The embedded model for live conversations."""

from antiphon.models.bidi import BidiModel


class EmbeddedBidiModel(BidiModel):
    """Comes next."""

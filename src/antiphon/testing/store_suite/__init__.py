"""The parts of `antiphon.testing.SessionStoreContract`."""

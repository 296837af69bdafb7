"""The command `antiphon`. Needs the extra `cli`; `antiphon.cli.entry` says so where it is not installed."""

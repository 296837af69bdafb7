"""The suites that define a model: one for those that answer in turns, one for those that talk live."""

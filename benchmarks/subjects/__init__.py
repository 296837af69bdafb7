"""What is measured: one module for each subject and suite, run by that subject's own interpreter.

A module here imports nothing of this package but `benchmarks.load` and `benchmarks.child`, which need the standard library
only, so that an interpreter that has the peer and nothing else can run it.
"""

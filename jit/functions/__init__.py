"""Compiled functions and clocked programs: the objects that a caller holds.

Read `compiled_function` and `native_function`, then `stages`; `clocked_program` and `steppers` run
state.
"""

"""Stepping clocked programs: the computation of one tick, and of several ticks in one call.

In: a verified clocked program (state, operations, feedback). Out: plans that advance the state.
Read `split_step_and_observe` and `pack_state` (`step_plan` is beside this folder), then
`slp_vectorize`, `time_skew` and `fast_forward`, which do several ticks at once.
"""

"""A GPU emulator in NumPy: PTX in lockstep, all threads of many blocks at once, checked memory.
Read `run_grid` first.
"""

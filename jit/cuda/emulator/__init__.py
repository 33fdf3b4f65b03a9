"""A GPU emulator in NumPy: PTX executed in lockstep, all threads of many blocks at once, with checked memory. Read
`run_grid` first."""

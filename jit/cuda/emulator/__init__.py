"""A GPU in NumPy: PTX executed in lockstep, all threads of many blocks at once, its memory checked. See `machine`."""

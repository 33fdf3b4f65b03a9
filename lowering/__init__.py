"""Verified programs to kernels: graph passes, formulas and fusion, loop nests, loop passes and the plan of storage."""

"""Kernels for a GPU: loops on blocks and threads, tiles in shared memory, tensor cores."""

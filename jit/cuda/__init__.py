"""The CUDA target: CUDA C from GPU plans, its compilation, and its execution on a GPU or on the
emulator.
"""

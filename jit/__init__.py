"""Code generation and execution: plans of kernels to machine code or CUDA C, and calls of the
result.

Read `compile` and `targets`, then `llvm` or `cuda` (emission), `functions` (compiled functions and
clocked programs), `calls` (arguments and the direct entry point), `runtime` (threads and checks)
and `cache`.
"""

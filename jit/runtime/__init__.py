"""The runtime of compiled code: threads, the floating-point environment, and failed checks."""

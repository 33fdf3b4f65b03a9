"""C from kernels: the printer of expressions and statements that dialects of C share, and C99 of
plans, which needs no library.

In goes a plan whose kernels have neither vectors nor threads, out comes the text of a file. To be
read in this order: `spelling` (types and functions, a row each), `addresses`, `expressions`,
`statements`; then, of C99 alone, `c99`, `kernels` and `emit` (a plan).
"""

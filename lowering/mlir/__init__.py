"""Formulas to MLIR that other compilers run: `func`, `linalg`, `arith`, `math`, `tensor` and `scf`.

`linalg` writes a function, one `linalg.generic` for each formula and each reduction in it;
`scalars` has the operation of each scalar function. `cvm lower --to linalg` prints it.
"""

"""Text of formulas and kernels: a printer, and a parser that reads printed kernels back."""

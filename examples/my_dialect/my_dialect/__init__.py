"""The dialect my: operators, a type of elements, patterns, lowerings and passes for cvm."""

from my_dialect import operators as operators, percent as percent, rewrites as rewrites

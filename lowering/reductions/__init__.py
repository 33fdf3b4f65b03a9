"""Folds that are not sums of products: by blocks, lanes, rows and columns."""

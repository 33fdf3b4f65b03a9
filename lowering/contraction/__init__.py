"""Contractions: sums of products, matched in a nest, packed, and multiplied by tiles of registers.

In: a nest that sums products. Out: kernels that pack its operands, and one that multiplies them.
Read `match` for what a contraction is, `problem` and `strategies` for the choice, then
`micro_kernel`, `vnni_packing`, `pack_panels`, `macro_kernel` and `packed_product`; `tile_and_fuse`
joins two products and what lies between by rows, as in attention; `sign_offset` and `row_lanes` are
for bytes, `winograd`, `depthwise` and `direct_convolution` (of floats) for windows, `few_rows` for
a matrix times a vector or a few.
"""

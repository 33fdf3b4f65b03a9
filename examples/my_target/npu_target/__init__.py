"""The target npu, an accelerator for products of matrices, for cvm."""

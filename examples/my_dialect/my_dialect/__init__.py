"""The dialect my: operators and passes for cvm."""

"""The language server of `.cvm` programs: `document` knows what stands where in a text, `server`
speaks the protocol.

`cvm lsp` starts it on standard input and output; it needs the extra `editor` (pygls).
"""

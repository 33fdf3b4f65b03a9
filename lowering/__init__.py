"""Lowering: verified programs to kernels, by graph passes, formulas and fusion, loop nests and
passes over them.

In: a verified function. Out: a `Plan`, kernels in order over arrays that have places. Read
`pipeline` first: it lists every pass, for a CPU, for a GPU and for the tick of a clocked program;
`passes` says what a pass is and runs them. The rooms then in the order of the pipeline: `graph`,
`formulas` (with `math`), `loops`, `reductions`, `contraction`, `layout`, `storage`, `gpu` and
`stepping`. `analysis` answers their questions; `processor` describes the machine.
"""

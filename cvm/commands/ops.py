"""`cvm ops`: list the operators of each dialect, or print the page of one, from the operators'
classes.
"""

from argparse import Namespace

from cvm.dialect.spec.operator import OPERATORS
from cvm.dialect.support.suggest import did_you_mean
from cvm.terminal.operator_pages import by_dialect, listing, page
from cvm.terminal.usage import Usage


def ops(options: Namespace) -> int:
    if options.name is not None:
        OPERATORS.load(options.name.partition(".")[0])  # an error where its package fails
    table = by_dialect()
    if options.check:
        from cvm.testing.check_operators import check_operators

        return check_operators(
            [op for n, ops in table.items() for op in ops if options.name in (None, n, op.name)]
        )
    if options.name is None:
        print("\n\n".join(listing(d) for d in table))
    elif options.name in table:
        print(listing(options.name))
    elif options.name in OPERATORS:
        print(page(OPERATORS[options.name]))
    else:
        raise Usage(
            "there is no dialect or operator "
            f"{options.name}{did_you_mean(options.name, [*table, *OPERATORS])}"
        )
    return 0

"""`python -m cvm` is the command `cvm`."""

import sys

from cvm.cli import main

if __name__ == "__main__":
    sys.exit(main())

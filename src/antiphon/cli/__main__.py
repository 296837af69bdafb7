"""`python -m antiphon.cli`: the command, where it is not on the path."""

import sys

from antiphon.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())

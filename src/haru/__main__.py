"""`python -m haru`."""

import sys

from haru.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

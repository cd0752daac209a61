"""Run the command line as `python -m pegboard_kernel.cli`."""

import sys

from pegboard_kernel.cli import main

sys.exit(main())

"""Measure the server against the bare engine: `python tools/bench`, see README.md beside it."""

import sys
from pathlib import Path

# Run as a folder, Python knows this folder alone; the modules are named from the checkout.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.bench.main import main

if __name__ == "__main__":
    sys.exit(main())

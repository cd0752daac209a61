"""Keep standard input and output for the protocol, before anything else is imported."""

import os
import sys

_commands = os.dup(0)
_reports = os.dup(1)
_nothing = os.open(os.devnull, os.O_RDONLY)
os.dup2(_nothing, 0)
os.close(_nothing)
if sys.platform == "win32":
    import msvcrt

    for _descriptor in (_commands, _reports):
        msvcrt.setmode(_descriptor, os.O_BINARY)
# Whatever a library prints, in Python or below it, lands in the server's log.
os.dup2(2, 1)

from pegboard_kernel.child.main import main  # noqa: E402 - the descriptors come first

if __name__ == "__main__":
    main(sys.argv[1:], _commands, _reports)

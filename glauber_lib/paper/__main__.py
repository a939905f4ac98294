"""Run the notebooks of a profile: ``python -m glauber_lib.paper``."""

import sys

from glauber_lib.paper.profiles import show_every_letter
from glauber_lib.paper.runner import main

if __name__ == "__main__":  # and not in the workers that run notebooks side by side
    show_every_letter()
    sys.exit(main())

"""`python -m metaxlm` is the command line."""

from metaxlm.cli import main

main()

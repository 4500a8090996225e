"""`python -m regard`, and `torchrun -m regard`."""

from regard.cli import main

main()

"""`python -m regard`, and `torchrun -m regard`."""

from regard.cli.main import main

main()

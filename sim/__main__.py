"""`python -m sim` is `hetsim`."""

from sim.cli import main

if __name__ == "__main__":
    main()

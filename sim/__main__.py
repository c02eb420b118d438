"""`python -m sim` is `hetsim`."""

from sim.start import main

if __name__ == "__main__":
    main()

"""`python -m vicinal VERB ...`, and so `torchrun -m vicinal train ...`."""

from vicinal.cli.main import main

if __name__ == "__main__":
    main()

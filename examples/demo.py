"""Which loss is best on drawn characters? The same as `vicinal demo`, from a checkout.

python examples/demo.py --out runs/demo
"""

from __future__ import annotations

import typer

from vicinal.cli.demo import demo


def main() -> None:
    typer.run(demo)


if __name__ == "__main__":
    main()

"""`python -m ckpttool` is `ckpt`."""

import gc

from ckpttool.cli.app import application


def main() -> None:
    """Run the command line and exit with its code."""
    gc.disable()  # what a report is made of stays until the end; looking for what does not takes a tenth of the time
    application()(prog_name="ckpt")


if __name__ == "__main__":
    main()

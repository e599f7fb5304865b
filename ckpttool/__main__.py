"""`python -m ckpttool` is `ckpt`."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        import gc  # noqa: PLC0415  # all imports are inside, so that an early Ctrl-C ends without a traceback

        from ckpttool.cli.app import application  # noqa: PLC0415
        from ckpttool.cli.streams import stand_in_for_closed  # noqa: PLC0415

        stand_in_for_closed()
        gc.disable()  # what a report is made of stays until the end; looking for the rest takes a tenth of the time
        application()(prog_name="ckpt")
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)


if __name__ == "__main__":
    main()

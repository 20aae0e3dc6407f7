"""The command `haru`, also as `python -m haru`. Next to nothing is imported before Ctrl-C has a quiet end."""

from haru.interrupts import end_at_once


def main() -> int:
    """Runs the command line of this process; returns the exit status."""
    end_at_once()
    from haru.cli.main import main as run

    status = run()
    end_at_once()  # what is left is the interpreter's
    return status


if __name__ == "__main__":
    raise SystemExit(main())

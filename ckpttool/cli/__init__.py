"""The command line: options in, a report out, an exit code."""

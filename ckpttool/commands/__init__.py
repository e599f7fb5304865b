"""One file, one subcommand: a function that returns a report. What several share begins with an underscore."""

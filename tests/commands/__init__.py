"""Subcommands and the reports they return."""

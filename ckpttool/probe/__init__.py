"""Runs a user's training script in a child process and writes down what it builds, loads and asks for."""

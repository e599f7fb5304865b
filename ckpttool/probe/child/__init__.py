"""What runs inside the user's interpreter: it watches torch while the training script runs, and writes down facts.

Needs the standard library and torch alone, Python 3.9 and torch 2.4 or later, and nothing of the package around it.
"""

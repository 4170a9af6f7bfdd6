"""Recipes become runs: stages that do what is missing, and one table of results."""

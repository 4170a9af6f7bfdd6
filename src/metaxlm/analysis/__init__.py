"""From scores to tables, tests, verdicts, figures and one report; nothing here imports torch."""

"""Vocabulary, formulas and planners: pure, and a stranger to web and database."""

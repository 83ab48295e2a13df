"""Scenario and snapshot in, estimate out: arithmetic lives in formulas, order lives here."""

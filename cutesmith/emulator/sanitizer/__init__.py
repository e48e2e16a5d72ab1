"""Faults and races: every access checked, shadow cells, happens-before, findings in words."""

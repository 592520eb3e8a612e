"""Enforcement points: how they enrol, what they report, the machines that they are on."""

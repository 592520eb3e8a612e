"""Suites that measure, each beside its baseline in the same run.

A suite is a function from `Settings` to `Results`; `suites.py` names them, `report.py` writes what they found. Runs are
interleaved (A B A B), baselines are installed fresh, and a figure that could not be measured is absent and says why.
"""

"""Tenants' policy and its meaning: model, oracle, algebra of packet space, findings, formats.

Pure: no clock, no I/O, no randomness. Everything else in the project must agree with `oracle`.
"""

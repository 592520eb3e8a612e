"""What tenants may say and what it means: the model, the oracle, the algebra of packet space, findings, formats.

Pure: no clock, no I/O, no randomness. Everything else in the project must agree with `oracle`.
"""

"""Read and write access lists of other systems.

The table of formats is in registry.py.
"""

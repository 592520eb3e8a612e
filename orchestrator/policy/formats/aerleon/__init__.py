"""Aerleon (Capirca) policies, read through the `aerleon` library and written as its YAML.

library: the only module that imports it; definitions: names of networks and services; read: terms to clauses; write.
"""

"""The steps from an empty database to today's schema, in order.

Never changed once released: a new step is added.
"""

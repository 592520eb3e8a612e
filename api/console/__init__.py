"""The web console, a pure client of the REST API.

Nothing lives here yet: the package keeps its place.
"""

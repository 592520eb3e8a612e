"""Bodies of requests and answers.

Models that come in refuse what they do not know and say where it is.
"""

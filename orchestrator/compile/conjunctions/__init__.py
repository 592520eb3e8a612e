"""Compile rules over address groups as conjunctive matches, without a cross product."""

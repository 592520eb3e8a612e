"""Drawings as SVG text, made from values by pure functions. Colours are the style sheet's."""

"""Matches, instructions and other objects of OpenFlow as bytes, in the form in which a switch writes them back."""

"""OpenFlow matches, instructions and other objects as bytes, as switches write them back."""

"""The common part of packet filters' drivers.

driver.py     observe, apply, hits over whatever filter a `Tool` reads and writes
command.py    running the filter's programs
stamp.py      generation and digest as the words that stand inside the rule set
front.py      a cache in front of the filter, closed before the filter changes
listsfile.py  a file of the lists beside the filter, for what shares its connections
"""

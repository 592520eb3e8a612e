"""The common part of packet filters' drivers.

driver.py     observe, apply, hits over whatever filter a `Tool` reads and writes; the stamp as words in the rule set
command.py    running the filter's programs
front.py      a cache in front of the filter, closed before the filter changes
listsfile.py  a file of the lists beside the filter, for what shares its connections
"""

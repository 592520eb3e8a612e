"""The enforcement point: programs a device, reads it back, reports hits and health.

It pulls: it enrols, watches the program of its domain and closes the gap between that and the device, whatever happened
on the way. It carries no database and no web service.
"""

"""The enforcement point: brings a device to its program, reads back what it holds, reports hits and health.

It pulls: it enrols, watches the program of its domain and closes the gap between that and the device, whatever happened
on the way. It carries no database and no web service.
"""

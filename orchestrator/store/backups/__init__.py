"""A store as one file, and a store from one."""

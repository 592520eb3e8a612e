"""Routes, one module a group of resources."""

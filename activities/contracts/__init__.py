"""What the workflows may ask for: abstract activity classes with one request and one result type each.

Workflows import only this package (never an implementation, never a client); implementations subclass these classes and
repeat the decorator with the same name. Every activity's type begins with the step it belongs to. Wire types only ever grow
by fields with defaults.
"""

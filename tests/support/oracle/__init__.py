"""An oracle of leaks that shares no code, table or list with the agent.

``people`` invents persons and their identifiers, ``writings`` writes an identifier in another form, ``carriers`` puts
it into a message, ``search`` looks for it in the output, ``judge`` decides between a leak and a coincidence.
``python -m support.oracle`` runs any number of cases.
"""

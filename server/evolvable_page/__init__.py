"""The annex of the local page: what `evolvable ui` serves to the browser of the person at this
machine.
"""

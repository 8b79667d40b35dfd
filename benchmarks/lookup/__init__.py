"""The benchmark of lookup: how often it is right, how sure it is, how long it takes,
beside others.
"""

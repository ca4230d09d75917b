"""A rule of the diagnosis in which the explanations of votes compete by their likelihood, to compare others
with.
"""

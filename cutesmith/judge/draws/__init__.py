"""What the judge draws beside what a problem draws itself: `kinds` of inputs, their `values`, and the `cases` of both.

All of it runs in the trusted process of the problem. `watching` listens to the reference for constants that decide.
"""

"""From one recorded launch to a directory with a script that runs it alone.

The wrapper is read, never executed; the script that is written needs torch and nothing of ours.
"""

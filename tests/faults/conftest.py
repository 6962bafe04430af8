collect_ignore = ["kills.py", "environment.py", "run.py"]  # `make faults` runs them

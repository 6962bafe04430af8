collect_ignore = ["endpoints.py", "fuzzer.py", "run.py"]  # need the extra fuzz

"""Random programs that torch and Pullback must run alike; `python -m fuzzer --help`."""

"""What `measurement_quality.py` and `lockstep_bias.py` share: programs, neighbours, launches."""

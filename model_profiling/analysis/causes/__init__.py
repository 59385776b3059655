"""Causes of lost time: which operators belong to each, and what to do about them."""

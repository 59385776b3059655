"""Reads programs (.pte) and records (.etrecord): operators with shapes, cost and source, without torch."""

"""Servers on loopback for what DevFix does outside, each with the ways in which servers fail."""

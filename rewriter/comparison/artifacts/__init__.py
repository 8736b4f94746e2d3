"""Compares two artifacts wrapper by wrapper: launches, arguments, kernels and other lines."""

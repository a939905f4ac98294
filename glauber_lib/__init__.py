"""Glauber dynamics on masked language models."""

"""Engines that work beside the threads: what they copy or multiply lands later than it was asked for."""

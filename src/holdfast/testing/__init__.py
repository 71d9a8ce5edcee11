"""Shipped for those who write stores or workflows: the store contract, fault injection, value strategies."""

"""The bench: one protocol, measured beside the vendor's library, and the program that writes every published
number.
"""

"""Power and energy: meters, and windows long enough for them. Knows no engine."""

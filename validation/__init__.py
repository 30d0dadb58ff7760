"""What the instrument can do, shown on the real engine; `make validate` writes it down."""

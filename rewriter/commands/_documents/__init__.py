"""What commands print as JSON: one type for each document, and the functions that make them."""

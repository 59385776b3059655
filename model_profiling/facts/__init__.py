"""Facts, each declared once; every table, file and answer is made from them."""

"""Facts: each is declared once, and every table, file and answer is made from them."""

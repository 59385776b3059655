"""The steps of the product as functions that combine the other packages; the command line calls them."""

"""The stages of the product as functions, each gluing rooms together; the command line only calls these."""

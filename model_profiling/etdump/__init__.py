"""etdump."""

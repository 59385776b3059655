"""The parts of the campaign of attacks; `bench/attack_campaign.py` runs them."""

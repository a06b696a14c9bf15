"""Programs that run on several processes at once, and what starts them."""

"""Views, copies in another order, joins and splits."""

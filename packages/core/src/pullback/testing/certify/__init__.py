"""Every derivative of every op in every mode, against truths that share no formula with it.

``python -m pullback.testing certify`` runs it; ``command`` says how.
"""

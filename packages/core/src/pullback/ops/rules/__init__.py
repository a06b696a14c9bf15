"""What entries of several families share: dims and dtypes of a call, what may be written to."""

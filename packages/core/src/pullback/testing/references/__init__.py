"""What ops should give, in NumPy: oracles for values, by family. No other code imports them."""

"""Parts that commands share: arguments and results, text for terminals, and pictures."""

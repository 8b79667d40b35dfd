"""The optimizers, each a composition of reflect, select and improve over the same gate, budget, ledger and test."""

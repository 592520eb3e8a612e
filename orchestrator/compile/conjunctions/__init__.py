"""Rules over address groups without a cross product: conjunctive match, and what members of groups change."""

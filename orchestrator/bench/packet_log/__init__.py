"""What a flood of denied packets costs those that are permitted, reported by its rule or not."""

"""A .pt2 package: members, models, what was packed into it, facts of its libraries."""

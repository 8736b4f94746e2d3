"""What runs in processes of their own, with torch alone: nothing else of ours is imported."""

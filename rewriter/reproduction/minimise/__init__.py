"""Makes the sizes and values of a launch smaller while what is wrong with it remains."""

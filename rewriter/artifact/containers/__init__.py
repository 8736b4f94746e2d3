"""Files of torch that contain wrappers as text among other data: one module for each form."""

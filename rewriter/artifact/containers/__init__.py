"""Files of torch that hold wrappers as texts among other things: a module for each form."""

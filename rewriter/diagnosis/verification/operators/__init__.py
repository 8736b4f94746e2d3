"""How far rounding may carry each operation of a graph, by families of operators."""

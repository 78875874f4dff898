//! What imitates PyTorch's graph for who looks at it: the names of its steps. It costs nothing unless asked for, and no gradient
//! depends on it.

pub(crate) mod node_names;

//! What imitates PyTorch's graph for who looks at it: the names of its steps, the attributes that they saved, the calls that are
//! one step there and several here. No gradient depends on it.

pub(crate) mod call_macros;
pub(crate) mod composite_node;
pub(crate) mod node_names;
pub(crate) mod saved_attributes;

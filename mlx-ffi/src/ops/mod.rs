//! MLX's array operations, one line each, named and ordered as in mlx-c. Depends on the wrapping macro. Nothing is computed
//! here: each call adds a node to the graph. A call that MLX refuses (shapes that do not broadcast, an axis out of range,
//! …) is an [`crate::Error::Mlx`] with MLX's message. Indices out of range are not refused: check them before.

mod contract;
mod create;
mod elementwise;
mod index;
mod reduce;
mod shape;

pub use contract::*;
pub use create::*;
pub use elementwise::*;
pub use index::*;
pub use reduce::*;
pub use shape::*;

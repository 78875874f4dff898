//! Several processes that compute together: collectives over MLX's communication.
//!
//! MLX moves and reduces the data: over TCP as a ring, or by MPI, NCCL or JACCL. Beside it runs a control channel, a
//! [`Store`] of small values, by which processes find one another, agree that they do the same, and learn who is gone.
//! What waits for a peer ends with an error that names the rank and the operation, never by itself.
//!
//! Depends on tensors, and on the GPU backend for the way to MLX's arrays. The methods of [`Group`] begin collectives, in place
//! where that is asked for, and have no gradients; the functions, [`all_reduce`] and others, are ops of the table's family
//! `communication`, with gradients.
//!
//! ```
//! use lucid::distributed::{Config, Job, Reduce, Store};
//! use std::time::Duration;
//! # fn main() -> lucid::Result<()> {
//! // A job of one process; with more, each connects with its own rank, and rank 0 has the store.
//! let store = Store::listen("127.0.0.1:0".parse().unwrap(), "secret").unwrap();
//! let job = Job::connect(Config {
//!     host: "127.0.0.1".into(),
//!     port: store.address().port(),
//!     token: "secret".into(),
//!     rank: 0,
//!     world_size: 1,
//!     generation: 0,
//!     timeout: Duration::from_secs(10),
//!     listen: None,
//!     backend: "ring".into(),
//! })?;
//! let group = job.group("all", &[0])?;
//! let x = lucid::tensor([1.0, 2.0])?;
//! let sum = group.all_reduce(&x, Reduce::Sum, None, None)?.wait(None)?;
//! assert_eq!(sum.to_vec::<f32>()?, [1.0, 2.0]);
//! // With gradients.
//! let x = x.requires_grad_(true)?;
//! lucid::distributed::all_reduce(&x, &group, Reduce::Sum)?.sum(None, false, None)?.backward()?;
//! assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0, 1.0]);
//! # Ok(())
//! # }
//! ```

mod client;
mod collectives;
mod group;
mod open;
mod ops;
mod pending;
mod pieces;
mod store;
mod wire;
mod work;

pub use client::{Client, Member};
pub(crate) use collectives::ensure_reducible;
pub use group::{Config, Group, Job};
pub use lucid_ir::ops::communication::Reduce;
pub use mlx_ffi::distributed::is_available;
pub(crate) use ops::perform;
pub use ops::{all_gather, all_reduce, all_to_all, broadcast, reduce_scatter};
pub use store::Store;
#[doc(hidden)]
pub use work::set_interrupt;
pub use work::Work;

#[doc(hidden)]
pub use crate::dispatch::set_rehearsing;

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group({}: rank {} of {})", self.name(), self.rank(), self.size())
    }
}

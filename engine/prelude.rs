//! What programs use most: `use lucid::prelude::*`.

pub use crate::checkpoint;
pub use crate::data::{DataLoader, Dataset};
pub use crate::indexing::{ellipsis, Indexing};
pub use crate::nn::functional::{cross_entropy, mse_loss};
pub use crate::nn::{self, Forward, Module, Reduction};
pub use crate::optim::{self, Optimizer};
pub use crate::testing::assert_close;
pub use crate::{dims, func, no_grad, tensor, DType, Device, Error, Result, Scalar, Tensor};

//! The dtype in which a tensor takes its gradient, where that is not its own: what leaves are told, and what functions
//! with a gradient of their own declare of their results.
//!
//! It is looked for where a gradient goes, when it goes there, and only once any was declared in the process.

use super::graph::GraphNode;
use super::node::{Edge, Kind};
use crate::{DType, Error, Result, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};

static DECLARED: AtomicBool = AtomicBool::new(false);

/// The dtype that a gradient has which goes along the edge: `own`, or what was declared; any where that is none.
pub(super) fn taken(edge: &Edge, own: DType) -> Option<DType> {
    if !DECLARED.load(Ordering::Relaxed) {
        return Some(own);
    }
    match &edge.node.kind {
        Kind::Accumulate(leaf) => leaf.0.auto.heir().as_ref().unwrap_or(leaf).0.auto.grad_dtype().unwrap_or(Some(own)),
        Kind::Custom(custom) => custom.declared(edge.nr).unwrap_or(Some(own)),
        Kind::Op(_) | Kind::MultiOp(_) | Kind::Write(..) | Kind::SplitInfo(_) => Some(own),
    }
}

/// The gradient in that dtype.
///
/// # Errors
/// For a dtype that no gradient has.
pub(super) fn cast(edge: &Edge, g: Tensor, own: DType) -> Result<Tensor> {
    match taken(edge, own) {
        Some(dtype) if !dtype.is_differentiable() && dtype != own => {
            let why = format!("a gradient cannot be of {dtype}; set grad_dtype to a floating point or complex dtype");
            Err(Error::dtype(edge.node.op(), why, &[g.dtype(), dtype]))
        }
        Some(dtype) => g.cast(dtype),
        None => Ok(g),
    }
}

impl GraphNode {
    /// Declares in which dtype a function with a gradient of its own gets the gradient of each of its results; any
    /// where that is `None`. Once, before the node has run.
    #[doc(hidden)]
    pub fn declare_grad_dtypes(&self, dtypes: Vec<Option<DType>>) {
        if let Kind::Custom(custom) = &self.0.kind {
            custom.declare(dtypes);
            DECLARED.store(true, Ordering::Relaxed);
        }
    }
}

impl Tensor {
    /// The dtype of the gradient: this tensor's own, unless it was set or the function that made it declared another;
    /// `None` where it may be any.
    #[doc(hidden)]
    pub fn grad_dtype(&self) -> Option<DType> {
        match self.0.auto.own_edge() {
            Some(edge) => taken(&edge, self.dtype()),
            None => self.0.auto.grad_dtype().unwrap_or(Some(self.dtype())),
        }
    }

    /// Says in which dtype a leaf takes its gradient: what comes is cast to it, or taken as it is with `None`.
    ///
    /// # Errors
    /// For what is no leaf, and where there is a gradient of another dtype.
    #[doc(hidden)]
    pub fn set_grad_dtype(&self, dtype: Option<DType>) -> Result<()> {
        const OP: &str = "grad_dtype";
        if !self.is_leaf() {
            return Err(Error::runtime(OP, "grad_dtype can only be set on leaf tensors."));
        }
        if let (Some(dtype), Some(g)) = (dtype, self.grad())
            && g.dtype() != dtype
        {
            let why = format!(
                "Cannot set grad_dtype to {dtype} because there is already a gradient of {}. Please clear the gradient \
                 (.grad = None) before.",
                g.dtype()
            );
            return Err(Error::runtime(OP, why));
        }
        self.0.auto.set_grad_dtype(dtype);
        DECLARED.store(true, Ordering::Relaxed);
        Ok(())
    }
}

//! A primitive as a value, and what is known of its result beforehand: what the tape records, what the batching rules take apart and what `dispatch` runs.
//!
//! Depends on the families' enums, which the op table makes. Invariant: every family is named once here.

use crate::autograd;
use crate::ops::schema::Schema;
use crate::ops::{
    binary::BinaryOp, compare::select::SelectOp, compare::CompareOp, contract::ContractOp, conv::ConvOp,
    create::CreateOp, index::IndexOp, linalg::LinalgOp, loss::LossOp, nn::NnOp, norm::NormOp, pool::PoolOp,
    random::RandomOp, reduce::ReduceOp, reduce::Reduction, scan::ScanOp, sort::SortOp, transfer::TransferOp,
    unary::UnaryOp, view::ViewOp,
};
use crate::shape::Shape;
use crate::{DType, Result};

/// Shape and dtype of a result, known before any kernel runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Sizes.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl Meta {
    pub(crate) fn new(shape: &[usize], dtype: DType) -> Meta {
        Meta { shape: Shape::from_slice(shape), dtype }
    }
}

/// A primitive with its arguments: all that, with its inputs, says what is computed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Prim {
    Create(CreateOp),
    Random(RandomOp),
    Transfer(TransferOp),
    Unary(UnaryOp),
    Binary(BinaryOp),
    Compare(CompareOp),
    Select(SelectOp),
    Reduce(ReduceOp, Reduction),
    Scan(ScanOp),
    View(ViewOp),
    Index(IndexOp),
    Sort(SortOp),
    Contract(ContractOp),
    Linalg(LinalgOp),
    Conv(ConvOp),
    Pool(PoolOp),
    Nn(NnOp),
    Norm(NormOp),
    Loss(LossOp),
}

macro_rules! each_family {
    ($prim:expr, $op:ident => $body:expr) => {
        match $prim {
            Prim::Create($op) => $body,
            Prim::Random($op) => $body,
            Prim::Transfer($op) => $body,
            Prim::Unary($op) => $body,
            Prim::Binary($op) => $body,
            Prim::Compare($op) => $body,
            Prim::Select($op) => $body,
            Prim::Reduce($op, _) => $body,
            Prim::Scan($op) => $body,
            Prim::View($op) => $body,
            Prim::Index($op) => $body,
            Prim::Sort($op) => $body,
            Prim::Contract($op) => $body,
            Prim::Linalg($op) => $body,
            Prim::Conv($op) => $body,
            Prim::Pool($op) => $body,
            Prim::Nn($op) => $body,
            Prim::Norm($op) => $body,
            Prim::Loss($op) => $body,
        }
    };
}

impl Prim {
    /// The row of the op table.
    pub(crate) fn schema(&self) -> &'static Schema {
        each_family!(self, op => op.schema())
    }

    /// The gradients of the inputs, by the row's rule.
    pub(crate) fn gradient(&self, ctx: &autograd::Ctx<'_>) -> Result<autograd::Grads> {
        each_family!(self, op => op.gradient(ctx))
    }
}

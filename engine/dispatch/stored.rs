//! Primitives on dtypes that kernels only move and convert: wide unsigned integers and floats of 8 bits.
//!
//! Depends on the backends through [`Backend`](lucid_ir::backend::Backend). What moves elements runs on their bits; what computes
//! runs in [`DType::computed_in`]: unsigned integers as int64 with the same bits, 64-bit ones that are ordered with the top bit
//! flipped, floats as float32. Invariant: a backend sees none of these dtypes but in creation, casts, copies and views.

use super::{arrays, execute, multi_output, Meta, Metas, Prim, Storage, Wrapped};
use crate::meta::MetaBackend;
use crate::ops::binary::BinaryOp;
use crate::ops::compare::select::SelectOp;
use crate::ops::compare::CompareOp;
use crate::ops::create::CreateOp;
use crate::ops::index::{IndexOp, ScatterMode};
use crate::ops::unary::UnaryOp;
use crate::ops::view::ViewOp;
use crate::ops::OpRow;
use crate::{graph, profile, DType, Device, Error, Result, Scalar, Tensor};
use lucid_cpu::CpuBackend;
use lucid_ir::backend::{Array, Results};
use lucid_mlx::GpuBackend;
use smallvec::{smallvec, SmallVec};

/// What a primitive does with elements that are only stored.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// The backend itself takes them.
    Direct,
    /// It moves them.
    Moved,
    /// It computes with them; int64's arithmetic is that of unsigned integers.
    Computed,
    /// It asks which is larger.
    Ordered,
}

impl Way {
    fn of(prim: &Prim) -> Way {
        match prim {
            Prim::Create(_) | Prim::Transfer(_) | Prim::View(_) => Way::Direct,
            Prim::Select(SelectOp::Where) => Way::Moved,
            Prim::Index(op) => Way::of_index(op),
            Prim::Sort(_) | Prim::Order(_) | Prim::Binary(BinaryOp::Maximum | BinaryOp::Minimum) => Way::Ordered,
            Prim::Compare(CompareOp::Lt | CompareOp::Le | CompareOp::Gt | CompareOp::Ge) => Way::Ordered,
            _ => Way::Computed,
        }
    }

    fn of_index(op: &IndexOp) -> Way {
        match op {
            IndexOp::Scatter { mode, .. } | IndexOp::Reduce { mode, .. } => match mode {
                ScatterMode::Set => Way::Moved,
                ScatterMode::Add | ScatterMode::Prod => Way::Computed,
                ScatterMode::Max | ScatterMode::Min => Way::Ordered,
            },
            IndexOp::IndexPut { accumulate: true, .. } | IndexOp::StridedAdd { .. } => Way::Computed,
            _ => Way::Moved,
        }
    }

    /// The dtype that stands for a stored one.
    fn dtype(self, dtype: DType) -> DType {
        match self {
            Way::Direct => dtype,
            Way::Moved => dtype.moved_as(),
            Way::Computed | Way::Ordered => dtype.computed_in(),
        }
    }

    fn enter<B: Wrapped>(self, x: &B::Array) -> Result<B::Array> {
        let (from, to) = (x.dtype(), self.dtype(x.dtype()));
        match (self, from) {
            _ if from == to => Ok(x.clone()),
            (Way::Moved, _) | (Way::Computed, DType::U64) => recast::<B>(x, to),
            (Way::Ordered, DType::U64) => flip_top_bit::<B>(&recast::<B>(x, to)?),
            _ => B::cast(x, to),
        }
    }

    fn leave<B: Wrapped>(self, made: &B::Array, to: DType) -> Result<B::Array> {
        match (self, to) {
            _ if made.dtype() == to => Ok(made.clone()),
            (Way::Moved, _) | (Way::Computed, DType::U64) => recast::<B>(made, to),
            (Way::Ordered, DType::U64) => recast::<B>(&flip_top_bit::<B>(made)?, to),
            _ => B::cast(made, to),
        }
    }
}

/// The same bits as elements of another dtype of that size.
fn recast<B: Wrapped>(x: &B::Array, dtype: DType) -> Result<B::Array> {
    B::view(&ViewOp::Recast { from: x.dtype(), dtype }, x, x.layout().clone())
}

/// Numbers of 64 bits between the order of unsigned ones and that of signed ones.
fn flip_top_bit<B: Wrapped>(x: &B::Array) -> Result<B::Array> {
    let top = B::create(&CreateOp::Full { value: Scalar::Int(i64::MIN) }, &Meta::new(&[], DType::I64))?;
    B::binary(&BinaryOp::BitwiseXor, x, &top, &Meta::new(&x.layout().shape, DType::I64))
}

/// Does a primitive take or give elements that are only stored, and the backend not take it as it is?
#[inline]
pub(super) fn applies(prim: &Prim, inputs: &[&Tensor], out: &Meta) -> bool {
    (out.dtype.is_stored_only() || inputs.iter().any(|t| t.dtype().is_stored_only())) && Way::of(prim) != Way::Direct
}

/// [`execute`] where [`applies`] says so.
#[cold]
pub(super) fn run<B: Wrapped>(prim: &Prim, inputs: &[&Tensor], out: &Meta) -> Result<Storage> {
    let x = arrays::<B>(prim.name(), inputs)?;
    let unsigned = |dtype: DType| dtype.is_stored_only() && dtype.is_unsigned();
    match (prim, x.as_slice()) {
        (Prim::Unary(op), [x]) if unsigned(x.dtype()) => match op {
            UnaryOp::Relu | UnaryOp::Abs | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Round => {
                return B::copy(x).map(B::wrap);
            }
            UnaryOp::SignBit => {
                return B::create(&CreateOp::Full { value: Scalar::Bool(false) }, out).map(B::wrap);
            }
            _ => {}
        },
        _ => {}
    }
    let one = |x: &[&Tensor], out: &[Meta]| execute::<B>(prim, x, &out[0], false).map(|made| smallvec![made]);
    let made = computed::<B>(prim, &x, std::slice::from_ref(out), one)?.into_iter().next();
    made.ok_or_else(|| Error::runtime(prim.name(), "gave nothing"))
}

/// [`applies`] of a primitive with several results.
pub(super) fn applies_to_several(prim: &Prim, inputs: &[&Tensor], out: &[Meta]) -> bool {
    out.iter().any(|out| applies(prim, inputs, out))
}

/// [`run`] of a primitive with several results.
#[cold]
pub(super) fn run_multi<B: Wrapped>(prim: &Prim, inputs: &[&Tensor], out: &[Meta]) -> Result<Results<Storage>> {
    let x = arrays::<B>(prim.name(), inputs)?;
    computed::<B>(prim, &x, out, |x, out| multi_output::execute::<B>(prim, x, out))
}

/// What `run` makes of the dtypes that stand for stored ones, in the dtypes that were asked for.
fn computed<B: Wrapped>(
    prim: &Prim,
    x: &[&B::Array],
    out: &[Meta],
    run: impl FnOnce(&[&Tensor], &[Meta]) -> Result<Results<Storage>>,
) -> Result<Results<Storage>> {
    let way = Way::of(prim);
    let inner: SmallVec<[Tensor; 4]> =
        x.iter().map(|x| way.enter::<B>(x).map(|x| Tensor::from_storage(B::wrap(x)))).collect::<Result<_>>()?;
    let refs: SmallVec<[&Tensor; 4]> = inner.iter().collect();
    let metas: Metas = out.iter().map(|out| Meta { shape: out.shape.clone(), dtype: way.dtype(out.dtype) }).collect();
    let left = |(made, out): (Storage, &Meta)| match B::unwrap(&made) {
        Some(array) => way.leave::<B>(array, out.dtype).map(B::wrap),
        None => Ok(made),
    };
    run(&refs, &metas)?.into_iter().zip(out).map(left).collect()
}

/// Writes over `dst` itself what `op` would write into a copy of it; the tape is the caller's business.
pub(crate) fn index_into(op: &IndexOp, dst: &Tensor, rest: &[&Tensor]) -> Result<()> {
    fn run<B: Wrapped>(op: &IndexOp, dst: &Tensor, rest: &[&Tensor]) -> Result<()> {
        let all: SmallVec<[&Tensor; 4]> = std::iter::once(dst).chain(rest.iter().copied()).collect();
        let x = arrays::<B>(op.name(), &all)?;
        if !dst.dtype().is_stored_only() {
            return B::index_into(op, x[0], &x[1..]);
        }
        match Way::of_index(op) {
            Way::Moved => {
                let inner: SmallVec<[B::Array; 4]> =
                    x.iter().map(|x| Way::Moved.enter::<B>(x)).collect::<Result<_>>()?;
                let refs: SmallVec<[&B::Array; 4]> = inner[1..].iter().collect();
                B::index_into(op, &inner[0], &refs)
            }
            _ => {
                let made = execute::<B>(&Prim::Index(op.clone()), &all, &Meta::new(dst.shape(), dst.dtype()), false)?;
                B::unwrap(&made).map_or(Ok(()), |made| B::assign(x[0], made, true))
            }
        }
    }
    crate::determinism::check(|| op.schema(), dst.device())?;
    let begun = profile::begin();
    with_backend!(dst.device(), run(op, dst, rest))?;
    if graph::recording() {
        graph::note_index_into(op, dst, rest);
    }
    profile::end(begun, || op.schema(), std::iter::once(dst).chain(rest.iter().copied()), dst.shape());
    Ok(())
}

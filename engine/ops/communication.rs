//! Collectives as ops: every member of a group of processes runs them, in the same order.
//!
//! They run in `distributed`, through `dispatch`. Gradients are collectives too, which every member has to run. Invariant: a
//! result is a new tensor.

use super::macros::define_ops;
use crate::autograd::Ctx;
use crate::dispatch::{self, Meta, Prim};
use crate::distributed::Group;
use crate::shape::Shape;
use crate::{DType, Error, Result, Tensor};
use lucid_ir::communication_ops;
pub use lucid_ir::ops::communication::*;

communication_ops!(define_ops);

fn named(op: &'static str, how: &str) -> Result<Reduce> {
    Reduce::from_name(how).ok_or_else(|| Error::value(op, format!("there is no reduction {how}")))
}

fn run(op: CommunicationOp, x: &Tensor, shape: &[usize]) -> Result<Tensor> {
    dispatch::apply1(Prim::Communication(op), &[x], Meta::new(shape, x.dtype()))
}

fn all_reduce_body(x: &Tensor, group: &str, how: &str) -> Result<Tensor> {
    reduced(x, &GroupName::newest(group), named("all_reduce", how)?)
}

fn extreme_body(x: &Tensor, group: &str, how: &str) -> Result<Tensor> {
    let op = "all_reduce_extreme";
    match named(op, how)? {
        how @ (Reduce::Min | Reduce::Max) => reduced(x, &GroupName::newest(group), how),
        how => Err(Error::value(op, format!("takes MIN or MAX, not {}", how.name()))),
    }
}

/// One tensor of all members'.
pub(crate) fn reduced(x: &Tensor, group: &GroupName, how: Reduce) -> Result<Tensor> {
    crate::distributed::ensure_reducible("all_reduce", how, x.dtype())?;
    let group = group.clone();
    let op = match how {
        Reduce::Min | Reduce::Max => CommunicationOp::AllReduceExtreme { group, how },
        // Its gradient needs the others' factors.
        Reduce::Product if crate::autograd::is_followed(x) => {
            let all = gathered(x, &group)?;
            let count = all.shape()[0] as i64;
            return (1..count).try_fold(all.select(0, 0)?, |so_far, i| so_far.mul(&all.select(0, i)?));
        }
        Reduce::Sum | Reduce::Avg | Reduce::Product | Reduce::BitAnd | Reduce::BitOr | Reduce::BitXor => {
            CommunicationOp::AllReduce { group, how }
        }
    };
    run(op, x, x.shape())
}

fn all_reduce_gradient(g: &Tensor, group: &GroupName, how: Reduce) -> Result<Tensor> {
    match how {
        Reduce::Sum | Reduce::Avg => reduced(g, group, how),
        Reduce::Product | Reduce::Min | Reduce::Max | Reduce::BitAnd | Reduce::BitOr | Reduce::BitXor => {
            Err(Error::not_implemented("all_reduce", format!("ReduceOp.{} has no gradient", how.name())))
        }
    }
}

fn extreme_gradient(c: &Ctx<'_>, g: &Tensor, group: &GroupName) -> Result<Tensor> {
    let total = reduced(g, group, Reduce::Sum)?;
    let chosen = c.x(0)?.eq(&c.out()?)?.cast(g.dtype())?.detach()?;
    (&total * &chosen)?.div(&reduced(&chosen, group, Reduce::Sum)?, None)
}

fn all_gather_body(x: &Tensor, group: &str) -> Result<Tensor> {
    gathered(x, &GroupName::newest(group))
}

/// All members' tensors, along a new first dimension.
pub(crate) fn gathered(x: &Tensor, group: &GroupName) -> Result<Tensor> {
    let mut shape = Shape::from_slice(&[Group::named(group)?.size()]);
    shape.extend_from_slice(x.shape());
    run(CommunicationOp::AllGather { group: group.clone() }, x, &shape)
}

fn reduce_scatter_body(x: &Tensor, group: &str, how: &str) -> Result<Tensor> {
    scattered(x, &GroupName::newest(group), named("reduce_scatter", how)?)
}

/// This member's part of the reduction.
pub(crate) fn scattered(x: &Tensor, group: &GroupName, how: Reduce) -> Result<Tensor> {
    let op = "reduce_scatter";
    crate::distributed::ensure_reducible(op, how, x.dtype())?;
    Group::named(group)?.ensure_parts(op, x)?;
    run(CommunicationOp::ReduceScatter { group: group.clone(), how }, x, &x.shape()[1..])
}

fn reduce_scatter_gradient(g: &Tensor, group: &GroupName, how: Reduce) -> Result<Tensor> {
    match how {
        Reduce::Sum => gathered(g, group),
        Reduce::Avg => {
            let all = gathered(g, group)?;
            all.div(all.shape()[0] as f64, None)
        }
        Reduce::Product | Reduce::Min | Reduce::Max | Reduce::BitAnd | Reduce::BitOr | Reduce::BitXor => {
            let why = format!("ReduceOp.{} has no gradient here; use all_reduce", how.name());
            Err(Error::not_implemented("reduce_scatter", why))
        }
    }
}

fn broadcast_body(x: &Tensor, group: &str, src: i64) -> Result<Tensor> {
    let group = GroupName::newest(group);
    let size = Group::named(&group)?.size();
    let found = usize::try_from(src).ok().filter(|&src| src < size);
    let why = || Error::value("broadcast", format!("no member {src} in a group of {size}"));
    sent_by(x, &group, found.ok_or_else(why)?)
}

/// Member `src`'s tensor.
pub(crate) fn sent_by(x: &Tensor, group: &GroupName, src: usize) -> Result<Tensor> {
    run(CommunicationOp::Broadcast { group: group.clone(), src }, x, x.shape())
}

fn broadcast_gradient(g: &Tensor, group: &GroupName, src: usize) -> Result<Tensor> {
    let total = reduced(g, group, Reduce::Sum)?;
    match Group::named(group)?.rank() == src {
        true => Ok(total),
        // On the tape, since the gradient of a gradient is a collective of all members, too.
        false => total.masked_fill(&total.ones_like()?.cast(DType::Bool)?, 0.0),
    }
}

fn all_to_all_body(x: &Tensor, group: &str) -> Result<Tensor> {
    exchanged(x, &GroupName::newest(group))
}

/// Part `i` of the result is what member `i` has for this one.
pub(crate) fn exchanged(x: &Tensor, group: &GroupName) -> Result<Tensor> {
    Group::named(group)?.ensure_parts("all_to_all", x)?;
    run(CommunicationOp::AllToAll { group: group.clone() }, x, x.shape())
}

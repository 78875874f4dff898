//! Forward mode: tensors that carry a tangent, and what carries it on through every op, view and write.
//!
//! A *dual* tensor has a tangent `v` beside its elements, which lives as long as the level that it was made at. The process
//! has one level at a time, as in PyTorch, and each thread a stack of its own for nested transforms. Ops carry on the
//! tangents of the innermost level by ops of the levels around it, so that tangents have tangents of outer levels, and
//! derivatives by different levels do not mix. No op needs a rule of its own for `J v`: its gradient rule gives
//! `u ↦ Jᵀ u`, which is linear in `u`, so the transpose of that, which the tape gives, is `v ↦ J v`. Where `J` is its own
//! transpose (element-wise ops of real numbers) the rule is used as it is, and linear ops are run on the tangent.
//! Tangents are made of ops, so that they are on the tape where a gradient may be asked for. Invariant: a tangent has its
//! tensor's shape, device and strides, and shares memory with that of another only where the tensors share theirs.

use super::copy_slices::follow;
use super::dual_level::{self, around, around_tangents, at_each, below, current};
pub(crate) use super::dual_level::{active, without};
use super::dual_tensor::{bind, copied_as};
use super::multi_output::{saved_of_multi, MultiOp};
use super::node::{Ctx, Edge, InputMeta, Kind, Node, Saved, SavedTensor};
use super::record::{edge_of, requires_grad};
use super::{backward, modes, with_grad, BackwardOptions};
use crate::batching;
use crate::dispatch::{self, Meta, Prim, Storage};
use crate::ops::contract::ContractOp;
use crate::ops::reduce::ReduceOp;
use crate::ops::view::{expand_to, Source, ViewOp};
use crate::ops::OpRow;
use crate::shape::{Layout, Shape};
use crate::tensor::Inner;
use crate::{DType, Error, Result, Scalar, Tensor};
use lucid_ir::backend::Results;
use parking_lot::Mutex;
use smallvec::{smallvec, SmallVec};
use std::sync::{Arc, Weak};

/// A tensor's tangent.
#[derive(Clone)]
pub(crate) struct Tangent {
    /// The level that it belongs to; at others it counts for nothing.
    pub(crate) level: u64,
    /// `None` says that there is none, whatever the tensor is a view of.
    pub(crate) value: Option<Tensor>,
    /// Did a write bring it, so that views made before show parts of it?
    by_write: bool,
}

/// The tensors with tangents and their levels, and how many there may be before those gone are taken off the list.
static DUALS: Mutex<(Vec<Carrier>, usize)> = Mutex::new((Vec::new(), 0));

/// A tensor with a tangent of this level.
type Carrier = (u64, Weak<Inner>);

/// Takes all tangents of a level away.
pub(super) fn forget(level: u64) {
    let gone: Vec<_> = DUALS.lock().0.extract_if(.., |(own, _)| *own == level).collect();
    for dual in gone.iter().filter_map(|(_, dual)| dual.upgrade()) {
        drop(dual.auto.drop_tangent(level));
    }
}

impl Tensor {
    /// The tangent that this tensor carries at the open level, if any.
    ///
    /// # Errors
    /// What the views report that lead from a base's tangent to that of a view.
    pub fn tangent(&self) -> Result<Option<Tensor>> {
        tangent(self)
    }
}

/// The current level's entry of a tensor that is no batch.
fn entry(t: &Tensor) -> Option<Tangent> {
    t.0.auto.tangent(current())
}

pub(super) fn put(t: &Tensor, value: Option<Tensor>, by_write: bool) {
    adopt(t, Tangent { level: current(), value, by_write });
}

fn adopt(t: &Tensor, tangent: Tangent) {
    let level = tangent.level;
    drop(t.0.auto.put_tangent(tangent));
    let mut held = DUALS.lock();
    let (duals, limit) = &mut *held;
    if duals.len() >= *limit {
        duals.retain(|(_, dual)| dual.strong_count() > 0);
        *limit = (2 * duals.len()).max(64);
    }
    duals.push((level, Arc::downgrade(&t.0)));
}

/// The tangent that `t` carries at the current level.
///
/// # Errors
/// What the views report that lead from a base's tangent to this one.
pub(crate) fn tangent(t: &Tensor) -> Result<Option<Tensor>> {
    if !active() || t.is_sparse() {
        return Ok(None);
    }
    if let Some(batch) = t.storage().batch() {
        let value = tangent(&batch.value)?;
        return value.map(|value| around(|| batching::wrap_at(&value, batch.level))).transpose();
    }
    if let Some(entry) = entry(t) {
        return Ok(entry.value);
    }
    // A base that was written since has one of which this view shows a part.
    let Some(view) = &t.0.auto.view else { return Ok(None) };
    let Some(whole) = entry(&view.base).filter(|e| e.by_write).and_then(|e| e.value) else { return Ok(None) };
    let part = around_tangents(|| follow(&whole, &view.ops))?;
    put(t, Some(part.clone()), false);
    Ok(Some(part))
}

/// Does `t` carry a tangent, at any level?
pub(crate) fn carries(t: &Tensor) -> bool {
    let mut found = false;
    active() && at_each(|| tangent(t).map(|v| found |= v.is_some())).is_ok() && found
}

/// The tangents that `t` carries, of all levels at work.
pub(crate) fn tangents(t: &Tensor) -> Result<Vec<Tensor>> {
    let mut found = Vec::new();
    if active() {
        at_each(|| tangent(t).map(|v| found.extend(v)))?;
    }
    Ok(found)
}

/// The tangents that a node keeps with a result of its own, put back with it.
pub(crate) fn restore(t: &Tensor, kept: &[Tangent]) {
    for tangent in kept.iter().filter(|tangent| dual_level::is_open(tangent.level)) {
        drop(t.0.auto.put_tangent(tangent.clone()));
    }
}

/// Gives `to` what `from` carries, a tensor of the same elements.
pub(crate) fn hand_over(from: &Tensor, to: &Tensor) {
    if active() {
        from.0.auto.tangents().into_iter().for_each(|tangent| adopt(to, tangent));
    }
}

/// Gives `to`, a tensor of the same elements, the tangents of `from` at the levels at work.
pub(super) fn copy_tangents(from: &Tensor, to: &Tensor) -> Result<()> {
    if !active() {
        return Ok(());
    }
    at_each(|| tangent(from).map(|v| v.into_iter().for_each(|v| put(to, Some(v), false))))
}

/// Leaves `to` with the tangents that `from` carries, and no others, at the levels at work.
pub(super) fn take_tangents(from: &Tensor, to: &Tensor) {
    if active() {
        let all = at_each(|| {
            put(to, tangent(from)?, false);
            Ok(())
        });
        debug_assert!(all.is_ok());
    }
}

/// The tensor cut off from the tape, with its tangents.
///
/// # Errors
/// What the views report that lead from a base's tangent to that of a view.
pub fn cut(t: &Tensor) -> Result<Tensor> {
    if let Some(batch) = t.storage().batch() {
        return Ok(batch.with(cut(&batch.value)?));
    }
    let own = followable(t.detach()?);
    if active() && !t.is_sparse() {
        at_each(|| tangent(t).map(|v| v.into_iter().for_each(|v| put(&own, Some(v), false))))?;
    }
    Ok(own)
}

/// A tensor that was made in inference mode as one that the tape may follow.
pub(crate) fn followable(t: Tensor) -> Tensor {
    if !t.is_inference() {
        return t;
    }
    let own = Tensor::with_auto(t.storage().clone(), super::Auto::detached(false));
    hand_over(&t, &own);
    own
}

/// `x` with the dimension of a `vmap` level that it is not batched at in front, where a tangent of it is: then each sample has
/// a tangent of its own. `None` where none is.
pub(crate) fn spread(x: &Tensor, level: u64, size: usize) -> Result<Option<Tensor>> {
    if !active() {
        return Ok(None);
    }
    let batched = |v: &Tensor| batching::levels_of(v).iter().any(|&(own, _)| own == level);
    if !tangents(x)?.iter().any(batched) {
        return Ok(None);
    }
    let mut shape = Shape::from_slice(&[size]);
    shape.extend_from_slice(x.shape());
    let wide = below(0, || expand_to(x, &shape))?;
    at_each(|| match tangent(x)? {
        Some(v) => {
            let v = around(|| batching::unwrap_at(&v, level, size))?;
            bind(&wide, &v)
        }
        None => Ok(()),
    })?;
    Ok(Some(wide))
}

// ---- ops -------------------------------------------------------------------------------------------------------------

/// The result of a primitive, made by `plain`, with its tangents where inputs carry some: those of the current level by ops
/// at the levels around it.
#[cold]
pub(crate) fn record<F: FnOnce(Prim) -> Result<Tensor>>(prim: Prim, inputs: &[&Tensor], plain: F) -> Result<Tensor> {
    let given = inputs.iter().map(|t| tangent(t)).collect::<Result<Given>>()?;
    let without = |prim: Prim| {
        around(|| match active() {
            true => record(prim, inputs, plain),
            false => plain(prim),
        })
    };
    if given.iter().all(Option::is_none) || !prim.schema().differentiable {
        return without(prim);
    }
    let same = prim.clone();
    let out = without(prim)?;
    if !out.dtype().is_differentiable() {
        return Ok(out);
    }
    let made = crate::autocast::without(|| around_tangents(|| pushed(&same, inputs, &out, &given)))?;
    carry(&out, made)?;
    // Gradient rules that ask for the result get it with its tangents.
    if let Some(edge) = out.0.auto.own_edge() {
        if let Some(SavedTensor::Output(kept, ..)) = &mut edge.node.saved.lock().output {
            kept.1 = out.0.auto.tangents();
        }
    }
    Ok(out)
}

/// Gives a result its tangent, in memory as it is.
fn carry(out: &Tensor, made: Tensor) -> Result<()> {
    let same_layout =
        made.is_unshared() && made.strides() == out.strides() && made.storage_numel() == out.storage_numel();
    let own = if same_layout { made } else { around_tangents(|| copied_as(&made, out))? };
    put(out, Some(own), false);
    Ok(())
}

/// [`record`] of a primitive with several results.
#[cold]
pub(crate) fn record_multi<F: FnOnce(Prim) -> Result<Results<Tensor>>>(
    prim: Prim,
    inputs: &[&Tensor],
    plain: F,
) -> Result<Results<Tensor>> {
    let given = inputs.iter().map(|t| tangent(t)).collect::<Result<Given>>()?;
    let without = |prim: Prim| {
        around(|| match active() {
            true => record_multi(prim, inputs, plain),
            false => plain(prim),
        })
    };
    if given.iter().all(Option::is_none) || !prim.schema().differentiable {
        return without(prim);
    }
    let same = prim.clone();
    let outs = without(prim)?;
    let made = crate::autocast::without(|| {
        around_tangents(|| {
            let _name = modes::OpScope::none();
            let recording = records(inputs, &given);
            with_grad(recording, || {
                let node = multi_step(&same, inputs, &outs, &given)?;
                transposed(&same, &node, (inputs, &outs), &given, recording)
            })
        })
    })?;
    for (out, v) in outs.iter().zip(made) {
        if let Some(v) = v {
            carry(out, v)?;
        }
    }
    // Gradient rules that ask for a result get it with its tangents.
    if let Some(edge) = outs.iter().find_map(|out| out.0.auto.own_edge()) {
        for kept in edge.node.saved.lock().inputs.iter_mut().flatten() {
            if let SavedTensor::Output(kept, _, nr) = kept {
                kept.1 = outs.get(*nr as usize).map(|out| out.0.auto.tangents()).unwrap_or_default();
            }
        }
    }
    Ok(outs)
}

/// Is what is made of tangents on the tape?
fn records(inputs: &[&Tensor], given: &Given) -> bool {
    let wanted = |t: &Tensor| requires_grad(t);
    modes::grad_enabled() && (inputs.iter().any(|t| wanted(t)) || given.iter().flatten().any(wanted))
}

/// The tangents of an op's inputs.
type Given = SmallVec<[Option<Tensor>; 4]>;

/// `J v` for the result `out`.
fn pushed(prim: &Prim, inputs: &[&Tensor], out: &Tensor, given: &Given) -> Result<Tensor> {
    let _name = modes::OpScope::none();
    let recording = records(inputs, given);
    let real = out.dtype().is_float() && inputs.iter().zip(given).all(|(t, v)| v.is_none() || t.dtype().is_float());
    let meta = || Meta::new(out.shape(), out.dtype());
    with_grad(recording, || match (prim, given.as_slice()) {
        (Prim::Unary(_) | Prim::Binary(_) | Prim::Select(_), _) if real => pointwise(prim, inputs, out, given),
        (Prim::Transfer(_), [Some(v)]) if real => dispatch::apply1(prim.clone(), &[&cast_like(v, inputs[0])?], meta()),
        (Prim::Reduce(ReduceOp::Sum, _), [Some(v)]) => {
            dispatch::apply1(prim.clone(), &[&cast_like(v, inputs[0])?], meta())
        }
        (Prim::Fft(_), [Some(v)]) => dispatch::apply1(prim.clone(), &[&cast_like(v, inputs[0])?], meta()),
        (Prim::Contract(ContractOp::MatMul { .. }), [a, b]) => {
            let left =
                a.as_ref().map(|v| dispatch::apply1(prim.clone(), &[&cast_like(v, inputs[0])?, inputs[1]], meta()));
            let right =
                b.as_ref().map(|v| dispatch::apply1(prim.clone(), &[inputs[0], &cast_like(v, inputs[1])?], meta()));
            sum([left, right].into_iter().flatten(), out)
        }
        _ => {
            let node = step(prim, inputs, out, given)?;
            let made = transposed(prim, &node, (inputs, std::slice::from_ref(out)), given, recording)?;
            made.into_iter().next().flatten().map_or_else(|| out.zeros_like(), Ok)
        }
    })
}

/// A tangent may have another dtype than its tensor; rules are made for the tensor's.
fn cast_like(v: &Tensor, t: &Tensor) -> Result<Tensor> {
    if v.dtype().is_complex() && !t.dtype().is_complex() {
        return Err(Error::dtype("make_dual", "a real tensor cannot carry a complex tangent", &[t.dtype(), v.dtype()]));
    }
    v.cast(t.dtype())
}

fn sum(terms: impl Iterator<Item = Result<Tensor>>, out: &Tensor) -> Result<Tensor> {
    let add = |sum: Option<Tensor>, term: Result<Tensor>| match sum {
        Some(sum) => Ok(Some((sum + &term?)?)),
        None => term.map(Some),
    };
    let mut total = None;
    for term in terms {
        total = add(total, term)?;
    }
    total.map_or_else(|| out.zeros_like(), Ok)
}

/// A step as the tape would record it, for its rule: what needs a gradient is what carries a tangent.
fn step(prim: &Prim, inputs: &[&Tensor], out: &Tensor, given: &Given) -> Result<Arc<Node>> {
    let recording = modes::grad_enabled();
    let edges: SmallVec<[Option<Edge>; 2]> = inputs.iter().map(|t| if recording { edge_of(t) } else { None }).collect();
    let saves = prim.schema().saves;
    let needs = |i: usize| given.get(i).is_some_and(Option::is_some) || edges.get(i).is_some_and(Option::is_some);
    let keep = |(i, t): (usize, &&Tensor)| match saves.input(i, needs) {
        true => {
            let t = if recording { (*t).clone() } else { cut(t)? };
            let version = t.version();
            Ok(Some(SavedTensor::Input(t, version)))
        }
        false => Ok(None),
    };
    let kept = inputs.iter().enumerate().map(keep).collect::<Result<_>>()?;
    let output = saves.output(needs).then(|| {
        let storage: &Storage = out.storage();
        SavedTensor::Output(Box::new((storage.clone(), out.0.auto.tangents())), storage.version(), 0)
    });
    let metas = inputs.iter().map(|t| InputMeta::of(t)).collect();
    Ok(Node::new(Kind::Op(prim.clone()), edges, metas, Saved { inputs: kept, output, freed: false }))
}

/// [`step`] of a primitive with several results.
fn multi_step(prim: &Prim, inputs: &[&Tensor], outs: &[Tensor], given: &Given) -> Result<Arc<Node>> {
    let recording = modes::grad_enabled();
    let edges: SmallVec<[Option<Edge>; 2]> = inputs.iter().map(|t| if recording { edge_of(t) } else { None }).collect();
    let needs = |i: usize| given.get(i).is_some_and(Option::is_some) || edges.get(i).is_some_and(Option::is_some);
    let input = |t: &Tensor| {
        let t = if recording { t.clone() } else { cut(t)? };
        let version = t.version();
        Ok(SavedTensor::Input(t, version))
    };
    let result = |nr: usize| {
        let storage: &Storage = outs[nr].storage();
        let kept = Box::new((storage.clone(), outs[nr].0.auto.tangents()));
        Ok(SavedTensor::Output(kept, storage.version(), nr as u32))
    };
    let saved = saved_of_multi(prim.schema(), inputs, needs, input, result, outs.len())?;
    let metas = inputs.iter().map(|t| InputMeta::of(t)).collect();
    let op = MultiOp { prim: prim.clone(), results: outs.iter().map(InputMeta::of).collect() };
    Ok(Node::new(Kind::MultiOp(Box::new(op)), edges, metas, saved))
}

/// For ops whose Jacobian is diagonal: the rule, on each tangent.
fn pointwise(prim: &Prim, inputs: &[&Tensor], out: &Tensor, given: &Given) -> Result<Tensor> {
    let node = step(prim, inputs, out, given)?;
    let term = |(i, v): (usize, &Option<Tensor>)| {
        let v = v.as_ref()?;
        let mut wanted: SmallVec<[bool; 4]> = smallvec![false; inputs.len()];
        wanted[i] = true;
        let through = || {
            let grads = [Some(expand_to(&v.cast(out.dtype())?, out.shape())?)];
            let made = prim.gradient(&Ctx::new(&node, &grads, Some(&wanted)))?;
            let one = made.into_iter().nth(i).flatten().map_or_else(|| out.zeros_like(), Ok)?;
            expand_to(&one.cast(out.dtype())?, out.shape())
        };
        Some(through())
    };
    sum(given.iter().enumerate().filter_map(term), out)
}

/// For every op: the rule is linear in the gradients `u` of the results, and the tape transposes it. A result that has no
/// gradient has no tangent.
fn transposed(
    prim: &Prim,
    node: &Arc<Node>,
    (inputs, outs): (&[&Tensor], &[Tensor]),
    given: &Given,
    recording: bool,
) -> Result<SmallVec<[Option<Tensor>; 2]>> {
    let wanted: SmallVec<[bool; 4]> = given.iter().map(Option::is_some).collect();
    let unknown = |out: &Tensor| match out.dtype().is_differentiable() {
        true => Tensor::full_of(out.shape(), Scalar::ZERO, out.dtype(), out.device())?.requires_grad_(true).map(Some),
        false => Ok(None),
    };
    let grads = outs.iter().map(unknown).collect::<Result<SmallVec<[Option<Tensor>; 2]>>>()?;
    let u: SmallVec<[Tensor; 2]> = grads.iter().flatten().cloned().collect();
    super::transform_leaf::retire(&u);
    // Nothing that was recorded before `u` was made can lead to it.
    let since = Node::next_number();
    let made = modes::unpacked(|| {
        with_grad(true, || {
            let made = prim.gradient(&Ctx::new(node, &grads, Some(&wanted)))?;
            made.into_iter()
                .zip(&node.metas)
                .map(|(g, m)| g.map(|g| super::unbroadcast::unbroadcast(g, m, None)).transpose())
                .collect::<Result<Given>>()
        })
    })?;
    let mut roots: SmallVec<[Tensor; 2]> = SmallVec::new();
    let mut weights: SmallVec<[Option<Tensor>; 2]> = SmallVec::new();
    for ((g, v), t) in made.into_iter().zip(given).zip(inputs) {
        if let (Some(g), Some(v)) = (g, v) {
            if g.requires_grad() {
                roots.push(g);
                weights.push(Some(cast_like(v, t)?));
            }
        }
    }
    let mut found = Vec::new();
    if !roots.is_empty() {
        let keep = BackwardOptions { graph: recording, create_graph: recording };
        found = backward::grad_since(since, &roots, &u, &weights, keep)?;
    }
    let mut found = found.into_iter();
    let tangent = |(out, u): (&Tensor, &Option<Tensor>)| match u {
        Some(_) => found.next().flatten().map_or_else(|| out.zeros_like(), Ok).map(Some),
        None => Ok(None),
    };
    outs.iter().zip(&grads).map(tangent).collect()
}

// ---- views and writes --------------------------------------------------------------------------------------------------

/// Gives a view of `x` the same view of each tangent of `x`.
#[cold]
pub(crate) fn view(op: &ViewOp, x: &Tensor, shown: &Tensor) -> Result<()> {
    at_each(|| view_here(op, x, shown))
}

fn view_here(op: &ViewOp, x: &Tensor, shown: &Tensor) -> Result<()> {
    if entry(x).is_some_and(|e| e.value.is_none()) {
        put(shown, None, false);
        return Ok(());
    }
    let Some(mut v) = tangent(x)? else { return Ok(()) };
    let moved;
    let op = match op {
        // The layout is one of the storage, in which the tangent may begin elsewhere.
        ViewOp::AsStrided { layout, source } => {
            let begin = (layout.offset + v.layout().offset).checked_sub(x.layout().offset);
            let size = layout.span().saturating_sub(layout.offset);
            let own = 0..=v.storage_numel();
            match begin.filter(|&at| v.is_batched() || own.contains(&at) && own.contains(&(at + size))) {
                Some(offset) => {
                    let layout = Box::new(Layout { offset, ..(**layout).clone() });
                    moved = ViewOp::AsStrided { layout, source: source.clone() };
                    &moved
                }
                None if v.is_batched() => {
                    let why = "the view shows elements of the storage beyond those that have a tangent";
                    return Err(Error::runtime("as_strided", why));
                }
                // What else there is of the storage has zeros.
                None => {
                    v = around_tangents(|| {
                        let room = zeros_as(x, v.dtype())?;
                        room.copy_(&v).map(|()| room)
                    })?;
                    put(x, Some(v.clone()), false);
                    op
                }
            }
        }
        op => op,
    };
    let part = around_tangents(|| follow(&v, std::slice::from_ref(op)))?;
    put(shown, Some(part), false);
    Ok(())
}

/// Carries on that `value` has been written over all of `t`.
#[cold]
pub(crate) fn write(t: &Tensor, value: &Tensor) -> Result<()> {
    at_each(|| write_here(t, value))
}

fn write_here(t: &Tensor, value: &Tensor) -> Result<()> {
    let (old, new) = (tangent(t)?, tangent(value)?);
    // Samples that have tangents of their own need room for them.
    let narrow = |old: &Tensor, new: &Tensor| {
        let levels = batching::levels_of(old);
        batching::levels_of(new).iter().any(|level| !levels.contains(level))
    };
    match (old, new) {
        (None, None) => Ok(()),
        (Some(old), None) => around_tangents(|| old.fill_(Scalar::ZERO)),
        (Some(old), Some(new)) if !narrow(&old, &new) => around_tangents(|| old.copy_(&new)),
        (_, Some(new)) => {
            let base = t.0.auto.view.as_ref().map_or(t, |view| &view.base);
            let former = tangent(base)?;
            put(base, Some(around_tangents(|| room_as(base, former, &new))?), true);
            if !base.is_same(t) {
                // What it had before, as a view that had no tangent, counts no more.
                drop(t.0.auto.drop_tangent(current()));
            }
            let own = tangent(t)?.ok_or_else(|| Error::runtime("copy_", "a view has lost its base's tangent"))?;
            around_tangents(|| own.copy_(&new))
        }
    }
}

/// A tangent for `base` of zeros, or a copy of the `former` one, into which parts of `new` can be written: it is in memory
/// as `base` does, and is batched where `new` is.
fn room_as(base: &Tensor, former: Option<Tensor>, new: &Tensor) -> Result<Tensor> {
    let Some(former) = former else {
        let levels = batching::levels_of(new);
        if levels.is_empty() {
            return zeros_as(base, base.dtype());
        }
        let mut shape: Shape = levels.iter().rev().map(|&(_, size)| size).collect();
        shape.extend_from_slice(base.shape());
        let zeros = Tensor::full_of(&shape, Scalar::ZERO, base.dtype(), base.device())?;
        return copied_as(&batching::rewrapped_by(zeros, &levels)?, base);
    };
    let wide = |t: Tensor, &(level, size): &(u64, usize)| match batching::levels_of(&t).iter().any(|l| l.0 == level) {
        true => Ok(t),
        false => batching::wrap_at(&batching::unwrap_at(&t, level, size)?, level),
    };
    copied_as(&batching::levels_of(new).iter().rev().try_fold(former, wide)?, base)
}

/// Zeros that are in memory as `t` is, from the same place of their storage on.
pub(super) fn zeros_as(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if t.is_contiguous() && t.storage_numel() == t.numel() {
        return Tensor::full_of(t.shape(), Scalar::ZERO, dtype, t.device());
    }
    let all = Tensor::full_of(&[t.storage_numel()], Scalar::ZERO, dtype, t.device())?;
    let op = ViewOp::AsStrided { layout: Box::new(t.layout().clone()), source: Source::Plain };
    let view = dispatch::view(op, &all, t.layout().clone())?;
    Ok(Tensor::from_storage(view.storage().clone()))
}

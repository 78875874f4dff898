//! Writing the tape: ops, views, and in-place writes.
//!
//! A write through a view gives the *base* a new node; the views of that base find their own edge again when next asked,
//! by the count of changes that they have seen.

use super::autograd_meta::{Auto, Origin, ViewInfo};
use super::node::{Edge, InputMeta, Kind, Node, Saved, SavedTensor, SplitInfo};
use super::{forward, grad_enabled, inference_mode_enabled, Ctx};
use crate::batching;
use crate::dispatch::{Prim, Storage};
use crate::ops::view::{Source, ViewOp};
use crate::ops::OpRow;
use crate::ops::{contract::ContractOp, index, nn::NnOp, pool::PoolOp};
use crate::{DType, Error, Result, Scalar, Tensor};
use smallvec::{smallvec, SmallVec};
use std::sync::atomic::Ordering;
use std::sync::Arc;

/// A view's steps from its base beyond which they are merged into one.
const LONGEST_CHAIN: usize = 8;

/// Is a gradient recorded for what is computed from `t`? Looks at the base's writes first.
#[inline]
pub(crate) fn requires_grad(t: &Tensor) -> bool {
    match t.0.auto.view.is_none() && t.storage().is_array() {
        true => t.0.auto.requires_grad(),
        false => asks_others(t),
    }
}

/// [`requires_grad`] of what has its place on the tape by way of another tensor.
fn asks_others(t: &Tensor) -> bool {
    // The tape knows only what `vmap` computes with.
    if let Some(batch) = t.storage().batch() {
        return requires_grad(&batch.value);
    }
    if let Some(coo) = t.storage().coo() {
        return requires_grad(&coo.parts().values);
    }
    recorded(t) || t.0.auto.view.as_ref().is_some_and(|view| shows(t, view))
}

/// Has `t` a gradient of its own, as a leaf or by a node of the graph?
fn recorded(t: &Tensor) -> bool {
    if t.0.auto.view.is_some() {
        refresh(t);
    }
    t.0.auto.requires_grad()
}

/// Is it a view of a tensor that requires a gradient? Then it does too, also where no step leads there: PyTorch says so of
/// views that were made without recording.
fn shows(t: &Tensor, view: &ViewInfo) -> bool {
    !view.itself && t.dtype().is_differentiable() && (view.of_input || view.base.0.auto.requires_grad())
}

/// Where the gradient of `t` goes: its node, or the one that adds to the leaf.
pub(crate) fn edge_of(t: &Tensor) -> Option<Edge> {
    if let Some(batch) = t.storage().batch() {
        return edge_of(&batch.value);
    }
    if let Some(coo) = t.storage().coo() {
        return edge_of(&coo.parts().values);
    }
    if !recorded(t) {
        return None;
    }
    if let Some(edge) = t.0.auto.own_edge() {
        return Some(edge);
    }
    let node = t.0.auto.accumulate_node(|| {
        Node::new(Kind::Accumulate(t.clone()), SmallVec::new(), smallvec![InputMeta::of(t)], Saved::default())
    });
    Some(Edge { node, nr: 0 })
}

/// Refuses a view that the tape cannot follow, where it or its base was written since it was made.
pub(crate) fn check_followed(op: &'static str, t: &Tensor) -> Result<()> {
    match &t.0.auto.view {
        Some(view) if is_lost(t, view) => Err(Error::runtime(op, lost(view.origin()))),
        _ => Ok(()),
    }
}

/// The error that an op of `t` reports where its work gives `error`: PyTorch asks for the place of `t` on the tape before
/// it looks at other arguments.
#[cold]
pub(crate) fn before(op: &'static str, error: Box<Error>, t: &Tensor) -> Box<Error> {
    match grad_enabled() && requires_grad(t) {
        true => check_followed(op, t).err().unwrap_or(error),
        false => error,
    }
}

/// A write that nobody recorded counts too: PyTorch goes by the version.
fn is_lost(t: &Tensor, view: &ViewInfo) -> bool {
    let unfollowed = !matches!(view.origin(), Origin::Plain | Origin::Input | Origin::OfInput) && !view.itself;
    unfollowed
        && view.seen.load(Ordering::Acquire) != changes(&view.base)
        && (view.base.0.auto.requires_grad() || !t.0.auto.is_leaf())
}

/// How often a base of views was written, recorded or not. Recorded writes count once more, when they are recorded: a view
/// that is asked between a write and its record must look again.
fn changes(base: &Tensor) -> u32 {
    base.version().wrapping_add(base.0.auto.writes.load(Ordering::Acquire))
}

/// Says of a view that was made just now that it has seen all changes of its base: the last one wrote no element.
pub(crate) fn has_seen(t: &Tensor) {
    if let Some(view) = &t.0.auto.view {
        view.seen.store(changes(&view.base), Ordering::Release);
    }
}

/// A tensor that a binding gives to its user. What shows the elements of a tensor that the user never had, since an op made
/// it on its way, is no view to the user but a tensor of its own, as the results of PyTorch's ops are.
#[doc(hidden)]
pub fn handed_out(t: Tensor) -> Tensor {
    let hidden = |view: &ViewInfo| !view.itself && !view.base.0.auto.handed_out.load(Ordering::Relaxed);
    let t = match &t.0.auto.view {
        Some(view) if hidden(view) && !is_lost(&t, view) => {
            refresh(&t);
            t.alone_on_storage()
        }
        _ => t,
    };
    t.mark_handed_out();
    t
}

/// What was made of tensors that nobody has any more, as no view of them.
pub(crate) fn unviewed(t: Tensor) -> Tensor {
    if t.0.auto.view.is_none() {
        return t;
    }
    refresh(&t);
    t.alone_on_storage()
}

impl Tensor {
    /// A binding gives this very tensor to its user.
    #[doc(hidden)]
    pub fn mark_handed_out(&self) {
        self.0.auto.handed_out.store(true, Ordering::Relaxed);
    }
}

/// Gives a view whose base was written since a new edge: the view's steps over the base's.
fn refresh(t: &Tensor) {
    let Some(view) = &t.0.auto.view else { return };
    // A transform's inputs stay what they were when it made them.
    if matches!(view.origin(), Origin::Input | Origin::OfInput) || is_lost(t, view) {
        return;
    }
    let changes = changes(&view.base);
    if view.seen.load(Ordering::Acquire) == changes {
        return;
    }
    let mut edge = edge_of(&view.base);
    // While neither has a place on the tape nothing is settled: the base may get one.
    if edge.is_none() && t.0.auto.is_leaf() {
        return;
    }
    view.seen.store(changes, Ordering::Release);
    // Whoever asks did not call these steps. PyTorch makes one of them, of this name.
    let _none = super::modes::OpScope::none();
    let _name = super::modes::OpScope::of("as_strided", 0);
    let (mut layout, mut dtype) = (view.base.layout().clone(), view.base.dtype());
    for op in &view.ops {
        let meta = InputMeta { shape: layout.shape.clone(), dtype, device: t.device(), layout: None };
        let kind = Kind::Op(Prim::View(op.clone()));
        edge = Some(Edge { node: Node::new(kind, smallvec![edge], smallvec![meta], Saved::default()), nr: 0 });
        dtype = op.dtype(dtype);
        match op.layout(&layout) {
            Some(next) => layout = next,
            None => return,
        }
    }
    t.0.auto.set_edge(edge);
    t.0.auto.retain_again(t);
}

/// Is there anything to record of a primitive's result of that dtype? Of most small ops there is nothing.
#[inline]
pub(crate) fn is_recorded(inputs: &[&Tensor], dtype: DType) -> bool {
    forward::active() || (grad_enabled() && dtype.is_differentiable() && inputs.iter().any(|t| requires_grad(t)))
}

/// The result of a primitive, with its node where a gradient may be asked for.
#[inline]
pub(crate) fn record(prim: Prim, inputs: &[&Tensor], storage: Storage) -> Result<Tensor> {
    match forward::active() {
        true => forward::record(prim, inputs, |prim| record_step(prim, inputs, storage)),
        false => record_step(prim, inputs, storage),
    }
}

fn record_step(prim: Prim, inputs: &[&Tensor], storage: Storage) -> Result<Tensor> {
    let wanted = grad_enabled() && storage.dtype().is_differentiable() && inputs.iter().any(|t| requires_grad(t));
    if !wanted {
        return Ok(Tensor::from_storage(storage));
    }
    let schema = prim.schema();
    if !schema.differentiable {
        return Ok(Tensor::from_storage(storage));
    }
    inputs.iter().try_for_each(|t| check_followed(schema.name, t))?;
    // Pushed, since collecting into a vector of this kind costs as much as making what is collected.
    let (mut edges, mut metas) = (SmallVec::<[Option<Edge>; 2]>::new(), SmallVec::<[InputMeta; 2]>::new());
    inputs.iter().for_each(|t| edges.push(edge_of(t)));
    let needs = |j: usize| edges.get(j).is_some_and(Option::is_some);
    let mut saved = Saved::default();
    if inputs.iter().enumerate().any(|(i, _)| schema.saves.input(i, needs)) {
        let keep = |(i, t): (usize, &&Tensor)| schema.saves.input(i, needs).then(|| SavedTensor::input(t)).transpose();
        saved.inputs = inputs.iter().enumerate().map(keep).collect::<Result<_>>()?;
    }
    if schema.saves.output(needs) {
        saved.output = Some(SavedTensor::output(&storage, 0)?);
    }
    let of: Option<fn(usize, &Tensor) -> InputMeta> = match &prim {
        // Means over volumes have row-major gradients in PyTorch.
        Prim::Pool(PoolOp::Average { .. }) if storage.layout().ndim() > 4 => None,
        Prim::Conv(_) | Prim::Pool(_) => Some(|_, t| InputMeta::of_images(t)),
        Prim::Nn(NnOp::Linear) => Some(InputMeta::of_factor),
        // The gradient of one matrix for a batch is a sum, which is by rows.
        Prim::Contract(ContractOp::MatMul { columns: [_, true] }) if storage.layout().ndim() > 2 => {
            Some(InputMeta::of_factor)
        }
        _ => None,
    };
    inputs.iter().enumerate().for_each(|(i, t)| metas.push(of.map_or_else(|| InputMeta::of(t), |of| of(i, t))));
    let node = Node::new(Kind::Op(prim), edges, metas, saved);
    Ok(Tensor::with_auto(storage, Auto::recorded(Edge { node, nr: 0 })))
}

/// A view, which remembers its base, with its node where a gradient may be asked for.
pub(crate) fn record_view(op: ViewOp, x: &Tensor, storage: Storage) -> Result<Tensor> {
    let wanted = grad_enabled() && requires_grad(x);
    if wanted {
        check_followed(op.name(), x)?;
    }
    if !forward::active() {
        return Ok(record_step_of_view(op, x, storage, wanted));
    }
    let same = op.clone();
    let shown = record_step_of_view(op, x, storage, wanted);
    forward::view(&same, x, &shown).map(|()| shown)
}

fn record_step_of_view(op: ViewOp, x: &Tensor, storage: Storage, wanted: bool) -> Tensor {
    // A view that was made without recording has no edge, and yet steps from it are recorded.
    let edge = wanted.then(|| edge_of(x));
    let (base, mut ops, seen, of) = match &x.0.auto.view {
        Some(v) => (v.base.clone(), v.ops.clone(), changes(&v.base), v.origin()),
        None => (x.clone(), SmallVec::new(), changes(x), Origin::Plain),
    };
    let of_input = of == Origin::Input || x.0.auto.view.as_ref().is_some_and(|v| v.of_input);
    let origin = match of {
        _ if !grad_enabled() => Origin::NoGrad,
        Origin::Input => Origin::OfInput,
        of => of,
    };
    let mut auto = match edge {
        Some(edge) => {
            let kind = Kind::Op(Prim::View(op.clone()));
            let node = Node::new(kind, smallvec![edge], smallvec![InputMeta::of(x)], Saved::default());
            Auto::recorded(Edge { node, nr: 0 })
        }
        None => Auto::default(),
    };
    ops.push(op);
    let merges = ops.len() > LONGEST_CHAIN && base.dtype() == storage.dtype();
    if merges && base.layout().is_contiguous() && base.layout().offset == 0 {
        ops = smallvec![ViewOp::AsStrided { layout: Box::new(storage.layout().clone()), source: Source::Plain }];
    }
    // A view of what was made outside of inference mode is no more than it.
    auto.inference = x.is_inference();
    auto.made_where(&x.0.auto);
    if !auto.inference {
        auto.view = Some(Box::new(ViewInfo::new(base, ops, seen, false, of_input, origin)));
    }
    Tensor::with_auto(storage, auto)
}

/// Views of `x` that `cut` makes, pieces along an axis that cover it, as the results of one node: its gradient is one
/// pass over all of them, where a node for each would make one pass each.
pub(crate) fn record_pieces(
    x: &Tensor,
    pieces: SplitInfo,
    cut: impl FnOnce(&SplitInfo) -> Result<Vec<Tensor>>,
) -> Result<Vec<Tensor>> {
    if x.is_batched() || !grad_enabled() {
        let made = cut(&pieces)?;
        // What the tape knows of a piece of samples is a view by itself, but PyTorch refuses the same writes.
        if grad_enabled() {
            made.iter().for_each(|t| made_by(batching::bare(t), Origin::SplitInfo));
        }
        return Ok(made);
    }
    // What the pieces' tangents are made of is recorded, too.
    let made = super::modes::with_grad(forward::active(), || cut(&pieces))?;
    made.iter().for_each(|t| made_by(t, Origin::SplitInfo));
    if !requires_grad(x) {
        return Ok(made);
    }
    check_followed("split", x)?;
    let (edge, meta) = (edge_of(x), InputMeta::of(x));
    let node = Node::new(Kind::SplitInfo(pieces), smallvec![edge], smallvec![meta], Saved::default());
    for (nr, t) in (0..).zip(&made) {
        t.0.auto.set_edge(Some(Edge { node: Arc::clone(&node), nr }));
    }
    Ok(made)
}

/// Says that `t`, a view that was made just now, is an input of the transform that is at work.
pub(crate) fn as_input(t: Tensor) -> Tensor {
    made_by(&t, Origin::Input);
    t
}

fn made_by(t: &Tensor, origin: Origin) {
    if let Some(view) = &t.0.auto.view {
        view.set_origin(origin);
    }
}

/// A result of a custom function that is an input or a view of something, as a tensor of its own: a view that the tape does
/// not let anybody write to, since the write would go past the function's gradient. `several`: with other results.
///
/// # Errors
/// What the view reports.
#[doc(hidden)]
pub fn custom_view(out: &Tensor, is_input: bool, several: bool) -> Result<Tensor> {
    if out.is_batched() || out.is_sparse() {
        return out.detach();
    }
    let shown = if is_input { &super::modes::with_grad(false, || out.alias())? } else { out };
    let Some(info) = &shown.0.auto.view else { return out.detach() };
    let origin = if several { Origin::SplitInfo } else { Origin::Custom };
    let seen = info.seen.load(Ordering::Acquire);
    let info = ViewInfo::new(info.base.clone(), info.ops.clone(), seen, info.itself, info.of_input, origin);
    let mut auto = Auto::detached(out.is_inference());
    auto.view = Some(Box::new(info));
    Ok(Tensor::with_auto(out.storage().clone(), auto))
}

/// The pieces that [`record_pieces`] has just made as tensors that are no views, though they are in one storage: writes are
/// counted for each alone, and the tape sees none of the others'.
pub(crate) fn apart(pieces: Vec<Tensor>) -> Vec<Tensor> {
    let alone = |t: Tensor| {
        if t.is_batched() || t.is_sparse() {
            return t;
        }
        let auto = t.0.auto.own_edge().map_or_else(|| Auto::detached(t.is_inference()), Auto::recorded);
        let own = Tensor::with_auto(t.storage().apart(), auto);
        forward::hand_over(&t, &own);
        own
    };
    pieces.into_iter().map(alone).collect()
}

/// The pieces' gradients side by side; zeros for a piece that nothing used.
pub(crate) fn pieces_gradient(ctx: &Ctx<'_>, pieces: &SplitInfo) -> Result<super::Grads> {
    let g = ctx.g();
    let zeros = |size: usize| {
        let mut shape = ctx.shape(0).clone();
        match pieces.drops_axis {
            true => drop(shape.remove(pieces.axis)),
            false => shape[pieces.axis] = size,
        }
        Tensor::full_of(&shape, Scalar::ZERO, g.dtype(), g.device())
    };
    let of = |(i, &size): (usize, &usize)| ctx.grads.get(i).cloned().flatten().map_or_else(|| zeros(size), Ok);
    let grads = pieces.sizes.iter().enumerate().map(of).collect::<Result<Vec<_>>>()?;
    let axis = pieces.axis as isize;
    let joined = if pieces.drops_axis { index::stack(&grads, axis)? } else { index::cat(&grads, axis)? };
    Ok([Some(joined)].into_iter().collect())
}

/// Refuses in-place writes that the tape could not follow.
pub(crate) fn check_in_place(op: &'static str, t: &Tensor, value: &Tensor) -> Result<()> {
    if t.is_inference() && !inference_mode_enabled() {
        let why =
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to get a \
                   normal tensor before doing inplace update.";
        return Err(Error::runtime(op, why));
    }
    if !grad_enabled() {
        return Ok(());
    }
    if let Some(view) = &t.0.auto.view
        && view.origin() != Origin::Plain
        && (requires_grad(t) || requires_grad(&view.base) || requires_grad(value))
    {
        return Err(Error::runtime(op, unfollowed(view.origin())));
    }
    if requires_grad(value) {
        check_followed(op, value)?;
    }
    let leaf = |t: &Tensor| requires_grad(t) && t.is_leaf();
    if leaf(t) {
        let why =
            "a leaf Variable that requires grad is being used in an in-place operation; use no_grad() or .detach()";
        return Err(Error::runtime(op, why));
    }
    // The base may be a leaf without a gradient, of which this view, or one between, was made a leaf with one.
    let of_leaf = |v: &ViewInfo| v.base.is_leaf() && requires_grad(if v.itself { &v.base } else { t });
    if t.0.auto.view.as_ref().is_some_and(|v| of_leaf(v)) {
        let why = "a view of a leaf Variable that requires grad is being used in an in-place operation; use no_grad()";
        return Err(Error::runtime(op, why));
    }
    if requires_grad(value) && !t.dtype().is_differentiable() {
        let dtypes: [DType; 2] = [t.dtype(), value.dtype()];
        return Err(Error::dtype(op, "a value with a gradient cannot be written to this dtype", &dtypes));
    }
    Ok(())
}

/// Why a view has no place on the tape any more.
fn lost(origin: Origin) -> &'static str {
    match origin {
        Origin::SplitInfo => {
            "the tensor is a view that a function of several views made, such as split or unbind, and its base or another view \
             of its base has been modified inplace. You should replace the inplace operation by an out-of-place one."
        }
        Origin::Custom => {
            "the tensor is a view and its base or another view of its base has been modified inplace. This view was created \
             inside a custom Function (or because an input was returned as-is) and the autograd logic to handle view+inplace \
             would override the custom backward associated with the custom Function, leading to incorrect gradients. You can \
             fix this by cloning the output of the custom Function."
        }
        Origin::Plain | Origin::Input | Origin::OfInput | Origin::NoGrad => {
            "A view was created in no_grad mode and its base or another view of its base has been modified inplace with grad \
             mode enabled. Move both the view and the inplace either inside the no_grad block (if you don't want the inplace \
             to be tracked) or outside (if you want the inplace to be tracked)."
        }
    }
}

/// Why a view cannot be written to while gradients are recorded.
fn unfollowed(origin: Origin) -> &'static str {
    match origin {
        Origin::SplitInfo => {
            "the tensor is a view that a function of several views made, such as split or unbind, and is being modified \
             inplace. Such functions do not allow the output views to be modified inplace. You should replace the inplace \
             operation by an out-of-place one."
        }
        Origin::Custom => {
            "the tensor is a view and is being modified inplace. This view was created inside a custom Function (or because \
             an input was returned as-is) and the autograd logic to handle view+inplace would override the custom backward \
             associated with the custom Function, leading to incorrect gradients. You can fix this by cloning the output of \
             the custom Function."
        }
        Origin::Input => {
            "a leaf Variable that requires grad is being used in an in-place operation: an input of the function being \
             transformed. Please write to a clone of it."
        }
        Origin::OfInput => {
            "a view of a leaf Variable that requires grad is being used in an in-place operation: of an input of the \
             function being transformed. Please write to a clone of it."
        }
        Origin::Plain | Origin::NoGrad => {
            "A view was created in no_grad mode and is being modified inplace with grad mode enabled. Move both the view \
             and the inplace either inside the no_grad block (if you don't want the inplace to be tracked) or outside (if \
             you want the inplace to be tracked)."
        }
    }
}

/// Records that `value` has been written over all of `t`. Where it is `copied` others may have it, too; else `t` takes its
/// place on the tape.
pub(crate) fn record_write(t: &Tensor, value: &Tensor, copied: bool) -> Result<()> {
    if forward::active() {
        forward::write(t, value)?;
    }
    record_step_of_write(t, value, copied);
    Ok(())
}

/// Lets `write` fill an expanded tensor through another view, and records it as a write to the tensor itself: PyTorch does not
/// go backward through that.
pub(crate) fn record_fill(
    op: &'static str,
    t: &Tensor,
    value: &Tensor,
    write: impl FnOnce() -> Result<()>,
) -> Result<()> {
    check_in_place(op, t, value)?;
    super::modes::with_grad(false, write)?;
    record_step_of_write(t, value, false);
    Ok(())
}

fn record_step_of_write(t: &Tensor, value: &Tensor, copied: bool) {
    if !grad_enabled() || !(requires_grad(t) || requires_grad(value)) {
        return;
    }
    let (target, ops): (&Tensor, SmallVec<[ViewOp; 1]>) = match &t.0.auto.view {
        Some(view) => (&view.base, view.ops.clone()),
        None => (t, SmallVec::new()),
    };
    let value_edge = edge_of(value);
    let edge = match (&value_edge, ops.is_empty()) {
        // The whole tensor is new: nothing of its former history matters.
        (Some(edge), true) if !copied => edge.clone(),
        _ => {
            let edges = smallvec![edge_of(target), value_edge];
            let metas = smallvec![InputMeta::of(target), InputMeta::of(value)];
            let base = (!ops.is_empty()).then(|| Box::new(target.layout().clone()));
            Edge { node: Node::new(Kind::Write(ops, base), edges, metas, Saved::default()), nr: 0 }
        }
    };
    target.0.auto.set_edge(Some(edge));
    target.0.auto.retain_again(target);
    target.0.auto.writes.fetch_add(1, Ordering::AcqRel);
}

//! What a primitive demands of its operands: the check of graphs that come from outside.
//!
//! The ops check their arguments before they make a primitive, and kernels rely on that. A graph that was recorded needs no
//! second check; one that was read from a file, or instantiated for other sizes, has not been through the ops.
//! Invariant: what [`check`] accepts, kernels run without reading or writing outside of the operands.

mod rules;

use super::{Graph, Info, Step, Value};
use crate::dispatch::{self, Prim};
use crate::shape::{self, Layout, Shape};
use crate::{DType, Device, Error, Result, Tensor};
use lucid_ir::ops::create::CreateOp;
use lucid_ir::ops::pool::PoolOp;
use lucid_ir::ops::transfer::TransferOp;
use lucid_ir::ops::view::ViewOp;
use lucid_ir::Meta;
use rules::{expands, fits, fits_multi, last_element, sliceable};
use smallvec::SmallVec;

/// The most dimensions of a value.
const DIMENSIONS: usize = 64;

/// Checks each step of a graph against what its primitive demands, and each view against the storage that it shows.
///
/// `own`: was the graph recorded by this process, so that indices of elements that a kernel gives another are what it found?
///
/// # Errors
/// [`Error::Runtime`] with the step.
pub(super) fn check(graph: &Graph, own: bool) -> Result<()> {
    graph.verify()?;
    for (value, info) in graph.infos.iter().enumerate() {
        let counted = info.shape.len() <= DIMENSIONS
            && info.strides.len() == info.shape.len()
            && shape::contiguous_strides_checked(&info.shape).is_some()
            && info.numel().checked_mul(info.dtype.size()).is_some_and(|bytes| bytes <= isize::MAX as usize);
        let rooted = graph.infos.get(info.root as usize).is_some_and(|root| root.root == info.root);
        if !counted || !rooted {
            return Err(Error::runtime("graph", format!("%{value} has impossible sizes {:?}", &info.shape[..])));
        }
    }
    // The same steps over arrays without memory say where each result is.
    let mut made: Vec<Option<Tensor>> = graph.infos.iter().map(|_| None).collect();
    for &value in graph.inputs.iter().chain(graph.constants.iter().map(|(v, _)| v)) {
        let info = graph.info(value)?;
        if info.root != value {
            return Err(Error::runtime("graph", format!("%{value}, an input, is a part of another value")));
        }
        made[value as usize] = Some(hollow(info)?);
    }
    for (at, step) in graph.steps.iter().enumerate() {
        if let Step::Op { prim: prim @ Prim::Pool(PoolOp::Take | PoolOp::Put { .. }), .. } = step
            && !own
        {
            let why = "takes elements from where another step says, which a file may not have";
            return Err(Error::runtime("graph", format!("step {at}, {}: {why}", prim.name())));
        }
        let why = match check_step(graph, step, &mut made) {
            Ok(true) => continue,
            Ok(false) => "does not do what the graph says of it".to_string(),
            Err(error) => error.to_string(),
        };
        let name = match step {
            Step::Op { prim, .. } | Step::MultiOp { prim, .. } => prim.name(),
            Step::View { op, .. } => op.name(),
            Step::IndexInto { op, .. } => op.name(),
            Step::Assign { .. } => "assign",
            Step::Draw { .. } => "draw",
            Step::Eval { .. } => "eval",
            Step::Host { .. } => "host",
        };
        return Err(Error::runtime("graph", format!("step {at}, {name}: {why}")));
    }
    Ok(())
}

/// An array without memory that has the layout of a value.
fn hollow(info: &Info) -> Result<Tensor> {
    let plain = dispatch::create_plain(
        Prim::Create(CreateOp::Full { value: 0.into() }),
        Meta { shape: info.shape.clone(), dtype: info.dtype },
        Device::Meta,
    )?;
    restrided(&plain, &info.strides)
}

/// The same elements, with these strides, which have no gaps.
///
/// # Errors
/// [`Error::Runtime`] where no order of the dimensions gives these strides.
pub(super) fn restrided(t: &Tensor, strides: &[usize]) -> Result<Tensor> {
    if t.strides() == strides {
        return Ok(t.clone());
    }
    let mut order: SmallVec<[usize; 8]> = (0..strides.len()).collect();
    order.sort_by_key(|&axis| (std::cmp::Reverse(strides[axis]), t.shape()[axis] == 1));
    let mut back: SmallVec<[isize; 8]> = SmallVec::from_elem(0, order.len());
    order.iter().enumerate().for_each(|(to, &from)| back[from] = to as isize);
    let order: SmallVec<[isize; 8]> = order.iter().map(|&axis| axis as isize).collect();
    let copied = t.permute(&order)?.copy()?.permute(&back)?;
    let same = |(axis, (a, b)): (usize, (&usize, &usize))| a == b || t.shape()[axis] <= 1;
    match t.numel() == 0 || copied.strides().iter().zip(strides).enumerate().all(same) {
        true => as_strided(&copied, strides),
        false => Err(Error::shape("graph", "a value with gaps between its elements", &[t.shape(), strides])),
    }
}

/// The same array with strides that differ where a dimension has one element, or none.
fn as_strided(t: &Tensor, strides: &[usize]) -> Result<Tensor> {
    let layout = Layout { shape: Shape::from_slice(t.shape()), strides: strides.into(), offset: 0 };
    let op = ViewOp::AsStrided { layout: Box::new(layout.clone()), source: lucid_ir::ops::view::Source::Plain };
    Ok(Tensor::from_storage(dispatch::run_view(&op, t, layout)?))
}

fn check_step(graph: &Graph, step: &Step, made: &mut [Option<Tensor>]) -> Result<bool> {
    let get = |made: &[Option<Tensor>], v: Value| {
        let t = made.get(v as usize).and_then(Clone::clone);
        t.ok_or_else(|| Error::runtime("graph", format!("%{v} is not there")))
    };
    match step {
        Step::Op { prim, inputs, out, meta, key } => {
            let infos = inputs.iter().map(|&v| graph.info(v)).collect::<Result<SmallVec<[&Info; 4]>>>()?;
            let info = graph.info(*out)?;
            let random = matches!(prim, Prim::Random(op) if !op.is_sample() && infos.is_empty());
            if info.device == Device::Meta || (key.is_some() && !random) || fits(prim, &infos, info) != Some(true) {
                return Ok(false);
            }
            let moves = matches!(prim, Prim::Transfer(TransferOp::Move { .. }));
            if !moves && infos.iter().any(|x| x.device != info.device) {
                return Ok(false);
            }
            let result = if moves {
                if !Layout::contiguous(&info.shape).strides.iter().eq(info.strides.iter()) {
                    return Ok(false);
                }
                hollow(info)?
            } else {
                let held = inputs.iter().map(|&v| get(made, v)).collect::<Result<SmallVec<[Tensor; 4]>>>()?;
                let refs: SmallVec<[&Tensor; 4]> = held.iter().collect();
                Tensor::from_storage(dispatch::run(prim, &refs, meta, Device::Meta, false)?)
            };
            let same = result.strides() == &info.strides[..] && result.storage_offset() == info.offset;
            made[*out as usize] = Some(result);
            Ok(same)
        }
        Step::MultiOp { prim, inputs, outs, metas } => {
            let infos = inputs.iter().map(|&v| graph.info(v)).collect::<Result<SmallVec<[&Info; 4]>>>()?;
            let made_as = outs.iter().map(|&v| graph.info(v)).collect::<Result<SmallVec<[&Info; 4]>>>()?;
            let Some(device) = made_as.first().map(|info| info.device).filter(|&device| device != Device::Meta) else {
                return Ok(false);
            };
            let one = infos.iter().chain(&made_as).all(|info| info.device == device);
            if !one || !fits_multi(prim, &infos, metas) {
                return Ok(false);
            }
            let held = inputs.iter().map(|&v| get(made, v)).collect::<Result<SmallVec<[Tensor; 4]>>>()?;
            let refs: SmallVec<[&Tensor; 4]> = held.iter().collect();
            let results = dispatch::run_multi(prim, &refs, metas, Device::Meta)?;
            let mut same = true;
            for ((&out, info), result) in outs.iter().zip(made_as).zip(results) {
                let result = Tensor::from_storage(result);
                same &= result.strides() == &info.strides[..] && result.storage_offset() == info.offset;
                made[out as usize] = Some(result);
            }
            Ok(same)
        }
        Step::View { op, of, out, layout } => {
            let (x, info) = (get(made, *of)?, graph.info(*out)?);
            let derived = match op {
                ViewOp::AsStrided { layout: own, .. } => Some((**own).clone()),
                ViewOp::Recast { from, .. } if *from != x.dtype() => None,
                ViewOp::AsReal if !x.dtype().is_complex() => None,
                ViewOp::AsComplex if x.dtype() != DType::F32 => None,
                _ if !applicable(op, x.shape()) => None,
                ViewOp::Reshape { .. }
                | ViewOp::Permute { .. }
                | ViewOp::Expand { .. }
                | ViewOp::Slice { .. }
                | ViewOp::AsReal
                | ViewOp::AsComplex
                | ViewOp::Recast { .. } => op.layout(x.layout()),
            };
            let Some(derived) = derived else { return Ok(false) };
            // Views of nothing may start anywhere; what is shown must be inside of the storage.
            let bytes = x.storage().storage_bytes() / op.dtype(x.dtype()).size();
            let same = derived.shape == layout.shape
                && (derived.strides == layout.strides || layout.numel() == 0)
                && (derived.offset == layout.offset || layout.numel() == 0)
                && layout.strides.len() == layout.shape.len()
                && info.offset == layout.offset
                && info.root == graph.info(*of)?.root;
            if !same || last_element(layout).is_none_or(|last| last > bytes) {
                return Ok(false);
            }
            made[*out as usize] = Some(Tensor::from_storage(dispatch::run_view(op, &x, layout.clone())?));
            Ok(true)
        }
        Step::Assign { dst, src } => {
            let (dst, src) = (graph.info(*dst)?, graph.info(*src)?);
            Ok(dst.shape == src.shape && dst.dtype == src.dtype && dst.device == src.device && writable(dst))
        }
        Step::IndexInto { op, dst, rest } => {
            let dst = graph.info(*dst)?;
            let mut infos: SmallVec<[&Info; 4]> = SmallVec::from_slice(&[dst]);
            for &value in rest {
                infos.push(graph.info(value)?);
            }
            let one = infos.iter().all(|x| x.device == dst.device);
            Ok(one && writable(dst) && fits(&Prim::Index(op.clone()), &infos, dst) == Some(true))
        }
        Step::Draw { .. } | Step::Eval { .. } => Ok(true),
        Step::Host { .. } => Ok(false),
    }
}

/// Does each element have a place of its own?
fn writable(info: &Info) -> bool {
    let mut dims: SmallVec<[(usize, usize); 8]> =
        info.strides.iter().copied().zip(info.shape.iter().copied()).filter(|&(_, n)| n > 1).collect();
    dims.sort_unstable();
    let mut reach = 1usize;
    dims.into_iter().all(|(step, n)| {
        let apart = step >= reach;
        reach = step.saturating_mul(n - 1).saturating_add(reach);
        apart
    })
}

/// Can the view be taken of this shape at all?
fn applicable(op: &ViewOp, shape: &[usize]) -> bool {
    match op {
        ViewOp::Reshape { shape: to } => shape::numel(to) == shape::numel(shape),
        ViewOp::Permute { axes } => {
            let mut sorted: SmallVec<[usize; 8]> = axes.iter().copied().collect();
            sorted.sort_unstable();
            sorted.into_iter().eq(0..shape.len())
        }
        ViewOp::Expand { shape: to } => expands(shape, to),
        ViewOp::Slice { dims } => dims.iter().all(|dim| sliceable(dim, shape)),
        ViewOp::AsStrided { .. } | ViewOp::AsReal | ViewOp::AsComplex | ViewOp::Recast { .. } => true,
    }
}

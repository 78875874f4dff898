//! Functions with a gradient of their own: one node, any number of results.
//!
//! What `lucid.autograd.Function` is built on, and what a Rust program uses to put a kernel of its own on the tape.

use super::autograd_meta::Auto;
use super::forward;
use super::graph::GraphNode;
use super::hooks::GradList;
use super::host_refs::{self, HostRef};
use super::node::{Edge, InputMeta, Kind, Node, Saved, SavedTensor};
use super::record::{check_followed, edge_of, requires_grad};
use super::{grad_enabled, Ctx, Grads};
use crate::ops::Combine;
use crate::tensor::signed;
use crate::{DType, Error, Result, Scalar, Tensor};
use parking_lot::Mutex;
use smallvec::{smallvec, SmallVec};
use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// The gradient of a custom function: from the gradients of its results, with the tensors it saved, to those of its
/// inputs (one each, `None` where there is none). A result that nothing used has `None`, or zeros with `materialize`.
pub type Backward = Arc<dyn Fn(&CustomNode, &[Option<Tensor>]) -> Result<GradList> + Send + Sync>;

/// What a custom function's gradient sees of its node.
pub struct CustomNode(Arc<Node>);

impl CustomNode {
    /// The tensors that the function saved.
    ///
    /// # Errors
    /// As [`GraphNode::saved`].
    pub fn saved(&self) -> Result<Vec<Option<Tensor>>> {
        GraphNode(Arc::clone(&self.0)).saved()
    }

    /// Does input `i` need a gradient?
    pub fn needs(&self, i: usize) -> bool {
        self.0.edges.get(i).is_some_and(Option::is_some)
    }
}

/// A custom function on the tape.
pub(crate) struct Custom {
    pub(crate) name: &'static str,
    outputs: SmallVec<[InputMeta; 2]>,
    materialize: bool,
    /// Until a garbage collector has taken it out.
    backward: Mutex<Option<Backward>>,
    /// What it holds of an embedding language.
    pub(super) host: OnceLock<HostRef>,
    /// The dtypes in which it gets the gradients of its results, where they were declared.
    dtypes: OnceLock<Vec<Option<DType>>>,
}

/// How a custom function is recorded.
pub struct Record<'a> {
    /// Its name, for messages and `grad_fn`.
    pub name: &'a str,
    /// What it was called with.
    pub inputs: &'a [Tensor],
    /// Which results pass no gradient.
    pub non_differentiable: &'a [bool],
    /// What its gradient needs; inputs, results, or others.
    pub saved: &'a [Option<Tensor>],
    /// Give zeros for the gradients of unused results?
    pub materialize: bool,
    /// The gradient.
    pub backward: Backward,
}

/// Puts `outputs`, computed without recording, on the tape as the results of a function with a gradient of its own. The
/// results are the same tensors; nothing happens where no input requires a gradient or recording is off. Gives the node.
///
/// # Errors
/// What hooks on saved tensors report.
///
/// ```
/// use lucid::autograd::{custom, Record};
/// use lucid::{no_grad, Device, Tensor};
/// # fn main() -> lucid::Result<()> {
/// let x = Tensor::from_slice(&[2.0f32], &[1], Device::Cpu)?.requires_grad_(true)?;
/// let y = no_grad(|| &x * &x)?;
/// let saved = [Some(x.clone())];
/// custom(&[y.clone()], Record {
///     name: "Square",
///     inputs: &[x.clone()],
///     non_differentiable: &[false],
///     saved: &saved,
///     materialize: true,
///     backward: std::sync::Arc::new(|node, g| {
///         let x = node.saved()?[0].clone().unwrap();
///         Ok([Some(((g[0].as_ref().unwrap() * &x)? * 2.0)?)].into_iter().collect())
///     }),
/// })?;
/// y.sum(None, false, None)?.backward()?;
/// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [4.0]);
/// # Ok(())
/// # }
/// ```
pub fn custom(outputs: &[Tensor], record: Record<'_>) -> Result<Option<GraphNode>> {
    if !grad_enabled() || !record.inputs.iter().any(requires_grad) {
        return Ok(None);
    }
    let passes = |i: usize, t: &Tensor| {
        !record.non_differentiable.get(i).copied().unwrap_or(false) && t.dtype().is_differentiable()
    };
    let metas = outputs.iter().map(InputMeta::of).collect();
    let keep = |t: &Option<Tensor>| match t {
        None => Ok(None),
        Some(t) => match outputs.iter().position(|o| o.is_same(t)) {
            Some(nr) => SavedTensor::output(t.storage(), nr as u32).map(Some),
            None => SavedTensor::input(t).map(Some),
        },
    };
    let inputs = record.saved.iter().map(keep).collect::<Result<_>>()?;
    let custom = Custom {
        name: intern(record.name),
        outputs: metas,
        materialize: record.materialize,
        backward: Mutex::new(Some(record.backward)),
        host: OnceLock::new(),
        dtypes: OnceLock::new(),
    };
    record.inputs.iter().try_for_each(|t| check_followed(custom.name, t))?;
    let edges = record.inputs.iter().map(edge_of).collect();
    let of = record.inputs.iter().map(InputMeta::of).collect();
    let node = Node::new(Kind::Custom(Arc::new(custom)), edges, of, Saved { inputs, ..Saved::default() });
    for (i, t) in outputs.iter().enumerate() {
        if passes(i, t) {
            t.0.auto.set_edge(Some(Edge { node: Arc::clone(&node), nr: i as u32 }));
        }
    }
    Ok(Some(GraphNode(node)))
}

/// Puts `out`, computed without recording, on the tape as what a step of that name makes of `inputs`. `backward`
/// gives the gradient of each of them.
pub(super) fn step(out: &Tensor, name: &str, inputs: &[&Tensor], backward: Backward) -> Result<()> {
    // The tape knows only what `vmap` computes with.
    let bare = |mut t: &Tensor| {
        while let Some(batch) = t.storage().batch() {
            t = &batch.value;
        }
        t.clone()
    };
    let inputs: SmallVec<[Tensor; 2]> = inputs.iter().map(|t| bare(t)).collect();
    let record =
        Record { name, inputs: &inputs, non_differentiable: &[false], saved: &[], materialize: false, backward };
    custom(&[bare(out)], record).map(drop)
}

/// Puts `out`, computed without recording, on the tape as what a step of that name makes of `inputs`, through which no
/// gradient is asked for: it reports `refusal`.
///
/// # Errors
/// [`Error::NotImplemented`] where an input carries a tangent, which nothing carries on either.
pub(crate) fn refusing(
    op: &'static str,
    out: &Tensor,
    name: &str,
    inputs: &[&Tensor],
    refusal: fn() -> Box<Error>,
) -> Result<()> {
    if out.dtype().is_differentiable() && inputs.iter().any(|t| super::forward::carries(t)) {
        let why = "Trying to use forward AD with a function that does not support it because it has no derivative";
        return Err(Error::not_implemented(op, why));
    }
    step(out, name, inputs, Arc::new(move |_, _| Err(refusal())))
}

/// Puts `out`, computed without recording, on the tape as what a step of that name makes of `inputs`, all with gradient 0.
pub(crate) fn flat(out: &Tensor, name: &str, inputs: &[&Tensor]) -> Result<()> {
    let zeros = |node: &CustomNode, _: &[Option<Tensor>]| {
        let zero = |(i, m): (usize, &InputMeta)| match node.needs(i) {
            true => Tensor::full_of(&m.shape, Scalar::ZERO, m.dtype, m.device).map(Some),
            false => Ok(None),
        };
        node.0.metas.iter().enumerate().map(zero).collect()
    };
    step(out, name, inputs, Arc::new(zeros))
}

/// Puts `out`, computed without recording, on the tape as what a step of that name makes of `inputs`, none of which gets a
/// gradient from it.
pub(crate) fn leading_nowhere(out: &Tensor, name: &str, inputs: &[&Tensor]) -> Result<()> {
    step(out, name, inputs, Arc::new(|node, _| Ok(node.0.edges.iter().map(|_| None).collect())))
}

/// Refuses an argument that requires a gradient where the function has none for it.
///
/// # Errors
/// [`Error::Runtime`] where it does and gradients are recorded.
pub(crate) fn refuse_recorded(op: &'static str, torch: &str, name: &str, argument: Option<&Tensor>) -> Result<()> {
    if !grad_enabled() || !argument.is_some_and(requires_grad) {
        return Ok(());
    }
    let why = format!(
        "The function '{torch}' is not differentiable with respect to argument '{name}'. This input cannot have \
         requires_grad True; detach() it."
    );
    Err(Error::runtime(op, why))
}

impl Custom {
    /// Of one result.
    fn of_one(name: &'static str, result: InputMeta, backward: Backward) -> Custom {
        let (backward, host, dtypes) = (Mutex::new(Some(backward)), OnceLock::new(), OnceLock::new());
        Custom { name, outputs: smallvec![result], materialize: false, backward, host, dtypes }
    }

    /// How many results there are.
    pub(crate) fn results(&self) -> usize {
        self.outputs.len()
    }

    /// Says which objects of an embedding language its gradient holds.
    pub(super) fn set_host(&self, host: HostRef) {
        host_refs::count_registered();
        let _first = self.host.set(host);
    }

    /// Takes its gradient out, where that holds objects of an embedding language.
    pub(super) fn take_backward(&self) -> Option<Box<dyn std::any::Any>> {
        self.host.get()?;
        let taken = self.backward.try_lock()?.take()?;
        Some(Box::new(taken))
    }

    /// Declares in which dtype it gets the gradient of each result.
    pub(super) fn declare(&self, dtypes: Vec<Option<DType>>) {
        let _first = self.dtypes.set(dtypes);
    }

    /// What was declared of result `nr`.
    pub(super) fn declared(&self, nr: u32) -> Option<Option<DType>> {
        self.dtypes.get()?.get(nr as usize).copied()
    }

    pub(crate) fn gradient(&self, ctx: &Ctx<'_>) -> Result<Grads> {
        let given = |(i, m): (usize, &InputMeta)| match ctx.grads.get(i).cloned().flatten() {
            None if self.materialize => Tensor::full_of(&m.shape, Scalar::ZERO, m.dtype, m.device).map(Some),
            g => Ok(g),
        };
        let given: Vec<Option<Tensor>> = self.outputs.iter().enumerate().map(given).collect::<Result<_>>()?;
        let backward = self.backward.lock().clone();
        let backward = backward.ok_or_else(|| Error::runtime(self.name, "its gradient was collected as garbage"))?;
        let out = backward(&CustomNode(Arc::clone(ctx.node)), &given)?;
        let n = ctx.len();
        if out.len() != n {
            let why = format!("returned an incorrect number of gradients (expected {n}, got {})", out.len());
            return Err(Error::runtime(self.name, why));
        }
        for (i, g) in out.iter().enumerate() {
            let Some(g) = g else { continue };
            let shape = ctx.shape(i);
            let fits = crate::shape::broadcast(self.name, g.shape(), shape).is_ok_and(|s| s.as_slice() == g.shape());
            if !fits {
                let why = format!(
                    "returned an invalid gradient at index {i} - got {:?} but expected shape compatible with {shape:?}",
                    g.shape()
                );
                return Err(Error::shape(self.name, why, &[g.shape(), shape]));
            }
            if g.dtype().is_complex() && !ctx.node.metas[i].dtype.is_complex() {
                let why = format!("returned an invalid gradient at index {i}: it is complex and the input is not");
                return Err(Error::dtype(self.name, why, &[g.dtype(), ctx.node.metas[i].dtype]));
            }
            if g.device() != ctx.device(i) {
                let why = format!("returned an invalid gradient at index {i}: it is on another device");
                return Err(Error::device(self.name, why, &[g.device(), ctx.device(i)]));
            }
        }
        Ok(out)
    }
}

/// A gradient that depends on an input at piecewise_linear alone, tied to that input's place on the tape: its own gradient there is zeros,
/// as PyTorch has it, where it would else lead nowhere.
pub(crate) fn tied(g: Tensor, of: &Arc<Node>, i: usize) -> Tensor {
    let Some(Some(edge)) = of.edges.get(i) else { return g };
    if g.is_sparse() {
        return g;
    }
    // The tape knows only what `vmap` computes with.
    if let Some(batch) = g.storage().batch() {
        return batch.with(tied(batch.value.clone(), of, i));
    }
    let meta = of.metas[i].clone();
    let zeros = meta.clone();
    let backward: Backward = Arc::new(move |_, grads| {
        let zeros = Tensor::full_of(&zeros.shape, Scalar::ZERO, zeros.dtype, zeros.device)?;
        Ok([grads.first().cloned().flatten(), Some(zeros)].into_iter().collect())
    });
    let name = GraphNode(Arc::clone(of)).name();
    let name = intern(&format!("{}Backward0", name.trim_end_matches(|c: char| c.is_ascii_digit())));
    let own = InputMeta::of(&g);
    let custom = Custom::of_one(name, own.clone(), backward);
    let edges = smallvec![edge_of(&g), Some(edge.clone())];
    let node = Node::new(Kind::Custom(Arc::new(custom)), edges, smallvec![own, meta], Saved::default());
    let tied = Tensor::with_auto(g.storage().clone(), Auto::recorded(Edge { node, nr: 0 }));
    forward::hand_over(&g, &tied);
    tied
}

/// What an op is to read of `t` that writes over it: `t` itself, unless it shows windows that overlap. PyTorch writes the
/// gradient of such an op over that of the tensor in which the windows are, where the gradient of what reads them is added up;
/// so of each element the last one that shows it is followed.
#[doc(hidden)]
pub fn rewritten(t: &Tensor) -> Option<Tensor> {
    if t.0.auto.view.is_none() || !t.layout().may_overlap() || t.layout().repeats() || !grad_enabled() {
        return None;
    }
    let edge = edge_of(t).filter(|_| !t.is_batched() && !t.is_sparse())?;
    let (layout, meta) = (t.layout().clone(), InputMeta::of(t));
    let backward: Backward = Arc::new(move |_, grads| {
        let Some(Some(g)) = grads.first() else { return Ok([None].into_iter().collect()) };
        let (size, strides) = (signed(&layout.shape), signed(&layout.strides));
        let line = |n: usize| crate::ops::create::arange_of(n, g.device());
        let (order, memory) = (line(g.numel())?, line(layout.span() - layout.offset)?);
        let places = memory.as_strided(&size, &strides, Some(0))?.reshape(&[-1])?;
        let last = memory.zeros_like()?.scatter_reduce(0, &places, &order, Combine::Amax, true)?.gather(0, &places)?;
        let shows = last.eq(&order)?.reshape(&size)?;
        Ok([Some(g.where_else_zero(&shows)?)].into_iter().collect())
    });
    let name = "AsStridedBackward0";
    let custom = Custom::of_one(name, meta.clone(), backward);
    let node = Node::new(Kind::Custom(Arc::new(custom)), smallvec![Some(edge)], smallvec![meta], Saved::default());
    let read = Tensor::with_auto(t.storage().clone(), Auto::recorded(Edge { node, nr: 0 }));
    forward::hand_over(t, &read);
    Some(read)
}

/// A name that lives as long as the process; each is kept once.
fn intern(name: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock();
    let names = names.get_or_insert_default();
    match names.get(name) {
        Some(found) => found,
        None => {
            let kept: &'static str = Box::leak(name.into());
            names.insert(kept);
            kept
        }
    }
}

impl Tensor {
    /// Says that this tensor's elements were written in place, without recording, and that on the tape they are `value`
    /// now. For functions with a gradient of their own that write their inputs.
    ///
    /// # Errors
    /// [`Error::Runtime`] for a leaf that requires gradients.
    #[doc(hidden)]
    pub fn written_as(&self, value: &Tensor) -> Result<()> {
        super::check_in_place("mark_dirty", self, value)?;
        super::record_write(self, value, false)
    }
}

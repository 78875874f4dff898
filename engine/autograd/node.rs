//! The tape's graph: nodes, edges, what they saved, and what a rule sees of them.
//!
//! Edges point from results to what they came from. A node owns its edges and the inputs it saved; a result it saved is
//! kept as bare storage, since the tensor owns the node. Dropping a node unlinks its ancestors with a stack of its own.

use super::autograd_meta::Auto;
use super::custom::Custom;
use super::forward::{self, Tangent};
use super::hooks::Extra;
use super::modes::{self, with_grad, GradLayoutRule, SavedTensorHooks, Unpack};
use super::multi_output::MultiOp;
use crate::dispatch::{Prim, Storage};
use crate::shape::{Axes, Layout, Shape};
use crate::tensor::signed;
use crate::{error::Trace, MemoryFormat};
use crate::{DType, Device, Error, Result, Scalar, Tensor};
use parking_lot::Mutex;
use smallvec::{smallvec, SmallVec};
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use crate::ops::view::ViewOp;

/// The gradients of a node's inputs; `None` where none is needed.
pub(crate) type Grads = SmallVec<[Option<Tensor>; 3]>;

/// Where a gradient goes: a result of a node.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) nr: u32,
}

/// What a node does with a gradient.
pub(crate) enum Kind {
    /// The rule of a primitive of one result.
    Op(Prim),
    /// The rule of a primitive of several results, with what is known of each. Seldom, so in memory of its own.
    MultiOp(Box<MultiOp>),
    /// Adds it to a leaf.
    Accumulate(Tensor),
    /// A write of input 1 over what these view ops show of input 0, with the layout of that where there are any.
    Write(SmallVec<[ViewOp; 1]>, Option<Box<Layout>>),
    /// Joins the gradients of all pieces of its input.
    SplitInfo(SplitInfo),
    /// A function with a gradient of its own.
    Custom(Arc<Custom>),
}

/// How a tensor was cut into the pieces that are a node's results.
pub(crate) struct SplitInfo {
    pub(crate) axis: usize,
    /// The pieces' sizes along the axis.
    pub(crate) sizes: Vec<usize>,
    /// Did the pieces, of size 1, lose the axis?
    pub(crate) drops_axis: bool,
}

/// What must be known of an input to bring its gradient into shape.
#[derive(Clone)]
pub(crate) struct InputMeta {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(crate) device: Device,
    /// The layout of the gradient, where the rule may give it otherwise than PyTorch does. Seldom, so in memory of its own.
    pub(crate) layout: Option<Box<GradLayout>>,
}

/// The layout of a gradient.
#[derive(Clone)]
pub(crate) enum GradLayout {
    /// Each element in a place of its own, without gaps.
    Dense,
    /// In a format.
    In(MemoryFormat),
    /// With the dimensions in this order, the outermost first.
    Ordered(Axes),
}

impl GradLayout {
    /// The layout of the gradient of an input; `None` as the rule makes it.
    fn of(t: &Tensor, rule: GradLayoutRule) -> Option<GradLayout> {
        Some(match rule {
            GradLayoutRule::AsMade => return None,
            GradLayoutRule::Dense => GradLayout::Dense,
            GradLayoutRule::RowMajor => GradLayout::In(MemoryFormat::Contiguous),
            GradLayoutRule::Columns | GradLayoutRule::AsInput if t.is_batched() || t.is_sparse() || t.ndim() < 2 => {
                return None
            }
            GradLayoutRule::Columns => {
                let mut order: Axes = (0..t.ndim()).collect();
                order.swap(t.ndim() - 2, t.ndim() - 1);
                GradLayout::Ordered(order)
            }
            GradLayoutRule::AsInput => match t.layout() {
                like if like.is_contiguous() || !like.is_dense() => GradLayout::In(MemoryFormat::Contiguous),
                like => GradLayout::Ordered(like.memory_order().into_iter().rev().collect()),
            },
        })
    }
}

impl InputMeta {
    pub(crate) fn of(t: &Tensor) -> InputMeta {
        let (shape, dtype, device) = (Shape::from_slice(t.shape()), t.dtype(), t.device());
        let layout = match modes::grad_layout_rule() {
            GradLayoutRule::AsMade => None,
            rule => GradLayout::of(t, rule).map(Box::new),
        };
        InputMeta { shape, dtype, device, layout }
    }

    /// Of a result that no tensor has yet.
    pub(crate) fn of_result(made: &Storage) -> InputMeta {
        InputMeta { shape: made.layout().shape.clone(), dtype: made.dtype(), device: made.device(), layout: None }
    }

    /// Of an input of an op on images: its gradient gets its format.
    pub(crate) fn of_images(t: &Tensor) -> InputMeta {
        match t.layout().suggested_format() {
            MemoryFormat::Contiguous => InputMeta::of(t),
            _ if t.is_batched() => InputMeta::of(t),
            format => InputMeta { layout: Some(Box::new(GradLayout::In(format))), ..InputMeta::of(t) },
        }
    }

    /// Of an input of a linear map: PyTorch multiplies by the transposed weight, and gives what is column-major a gradient
    /// that does.
    pub(crate) fn of_factor(i: usize, t: &Tensor) -> InputMeta {
        let columns = match (i, t.shape(), t.strides()) {
            (0, &[rows, _], &[down, right]) => right == rows && down == 1 && !t.is_contiguous(),
            (1, &[_, cols], &[down, right]) => down != cols || right != 1,
            _ => false,
        };
        match columns && !t.is_batched() {
            true => InputMeta { layout: Some(Box::new(GradLayout::Ordered(smallvec![1, 0]))), ..InputMeta::of(t) },
            false => InputMeta::of(t),
        }
    }
}

/// A tensor that the tape keeps. Small, since every node has room for several and most keep inputs or nothing.
#[derive(Clone)]
pub(crate) enum SavedTensor {
    /// An input, at the version it had.
    Input(Tensor, u32),
    /// A result of the node itself: bare storage, since the tensor owns the node, and the tangents that it carried.
    Output(Box<(Storage, Vec<Tangent>)>, u32, u32),
    /// What a hook packed, and where the tensor stood on the tape.
    Packed(Box<(Unpack, Place)>),
}

/// Where a packed tensor stood.
#[derive(Clone)]
pub(crate) enum Place {
    /// Nowhere: it needed no gradient.
    Off,
    /// There.
    At(Edge),
    /// It was this result of the node that keeps it.
    Own(u32),
}

impl SavedTensor {
    /// Keeps an input, through the hooks that are set.
    pub(crate) fn input(t: &Tensor) -> Result<SavedTensor> {
        if t.is_inference() && !super::transforms::is_captured(t) {
            let why = "Inference tensors cannot be saved for backward. To work around you can make a clone to get a \
                       normal tensor and use it in autograd.";
            return Err(Error::runtime("autograd", why));
        }
        t.storage().keep();
        match modes::packing().filter(|_| t.number().is_none()) {
            None => Ok(SavedTensor::Input(t.clone(), t.version())),
            Some(packing) => {
                SavedTensor::packed(packing, &t.detach()?, super::edge_of(t).map_or(Place::Off, Place::At))
            }
        }
    }

    /// Keeps result `nr` of the node in the making.
    pub(crate) fn output(storage: &Storage, nr: u32) -> Result<SavedTensor> {
        storage.keep();
        match modes::packing() {
            None => Ok(SavedTensor::Output(Box::new((storage.clone(), Vec::new())), storage.version(), nr)),
            Some(packing) => SavedTensor::packed(packing, &Tensor::from_storage(storage.clone()), Place::Own(nr)),
        }
    }

    fn packed(packing: SavedTensorHooks, t: &Tensor, place: Place) -> Result<SavedTensor> {
        match packing {
            SavedTensorHooks::Hook(pack) => {
                let unpack = with_grad(false, || pack(t))?;
                if unpack.host.is_some() {
                    super::host_refs::count_registered();
                }
                Ok(SavedTensor::Packed(Box::new((unpack, place))))
            }
            SavedTensorHooks::Refused(why) => Err(Error::runtime("saved_tensors_hooks", why)),
        }
    }

    /// The same, gone through a hook.
    pub(crate) fn packed_by(&self, node: &Arc<Node>, pack: &modes::Pack) -> Result<SavedTensor> {
        let packing = SavedTensorHooks::Hook(Arc::clone(pack));
        let t = self.get(node)?.detach()?;
        match self {
            SavedTensor::Input(own, _) => {
                SavedTensor::packed(packing, &t, super::edge_of(own).map_or(Place::Off, Place::At))
            }
            SavedTensor::Output(_, _, nr) => SavedTensor::packed(packing, &t, Place::Own(*nr)),
            SavedTensor::Packed(_) => {
                let why = "Calling register_hooks on a saved tensor whose hooks have already been set. Hint: only one pair of \
                           hooks is allowed at a time.";
                Err(Error::runtime(node.op(), why))
            }
        }
    }

    /// The tensor, with its history.
    pub(crate) fn get(&self, node: &Arc<Node>) -> Result<Tensor> {
        let own = |storage: Storage, nr: u32| {
            if !storage.dtype().is_differentiable() {
                return Tensor::from_storage(storage);
            }
            let edge = Edge { node: Arc::clone(node), nr };
            Tensor::with_auto(storage, Auto::recorded(edge))
        };
        match self {
            SavedTensor::Input(t, version) => check(node, t.storage(), *version).map(|()| t.clone()),
            SavedTensor::Output(kept, version, nr) => {
                let (storage, tangents) = &**kept;
                check(node, storage, *version)?;
                let t = own(storage.clone(), *nr);
                forward::restore(&t, tangents);
                Ok(t)
            }
            SavedTensor::Packed(packed) => {
                let (unpack, place) = &**packed;
                let t = (unpack.call)()?;
                Ok(match place {
                    Place::Off => t.detach()?,
                    Place::Own(nr) => own(t.storage().clone(), *nr),
                    Place::At(edge) => Tensor::with_auto(t.storage().clone(), Auto::recorded(edge.clone())),
                })
            }
        }
    }
}

fn check(node: &Node, storage: &Storage, saved: u32) -> Result<()> {
    let found = storage.version();
    match found == saved {
        true => Ok(()),
        false => {
            let (op, shape) = (node.op(), storage.layout().shape.to_vec());
            Err(Box::new(Error::VersionMismatch { op, shape, saved, found, trace: Trace::here() }))
        }
    }
}

const DETACHED: &str =
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_(). This is not \
                        supported, please use out-of-place `.detach()` instead";

/// What the tape keeps for a node's rule.
#[derive(Default)]
pub(crate) struct Saved {
    pub(crate) inputs: SmallVec<[Option<SavedTensor>; 2]>,
    pub(crate) output: Option<SavedTensor>,
    pub(crate) freed: bool,
}

/// One node of the graph.
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// The op that the user called, where it is made of this and other primitives.
    pub(crate) called: Option<modes::OpCall>,
    /// Later nodes run first, as in PyTorch; counted per thread.
    pub(crate) seq: u64,
    pub(crate) edges: SmallVec<[Option<Edge>; 2]>,
    pub(crate) metas: SmallVec<[InputMeta; 2]>,
    pub(crate) saved: Mutex<Saved>,
    pub(crate) extra: Extra,
    /// What it was called with, where that says more than the row's defaults.
    pub(crate) told: OnceLock<crate::compat::saved_attributes::Call>,
}

impl Node {
    /// A node that is recorded now.
    pub(crate) fn new(
        kind: Kind,
        edges: SmallVec<[Option<Edge>; 2]>,
        metas: SmallVec<[InputMeta; 2]>,
        saved: Saved,
    ) -> Arc<Node> {
        let (called, seq) = match kind {
            // Leaves take their gradients as soon as these are complete.
            Kind::Accumulate(_) => (None, u64::MAX),
            Kind::Op(_) | Kind::MultiOp(_) | Kind::Write(..) | Kind::SplitInfo(_) | Kind::Custom(_) => {
                modes::numbered()
            }
        };
        let extra = Extra::default();
        if modes::anomaly().0 && seq != u64::MAX {
            extra.set_trace(modes::trace());
        }
        Arc::new(Node { kind, called, seq, edges, metas, saved: Mutex::new(saved), extra, told: OnceLock::new() })
    }

    /// The number that this thread's next node gets.
    pub(crate) fn next_number() -> u64 {
        modes::next_number()
    }

    /// The op's name, for messages.
    pub(crate) fn op(&self) -> &'static str {
        match &self.kind {
            Kind::Op(prim) => self.called.map_or(prim.name(), |called| called.name),
            Kind::MultiOp(op) => self.called.map_or(op.prim.name(), |called| called.name),
            Kind::Accumulate(_) => "accumulate_grad",
            // A write over a whole tensor that has no history of its own: `uniform_`.
            Kind::Write(ops, _) if ops.is_empty() => self.called.map_or("copy_slices", |called| called.name),
            Kind::Write(..) => "copy_slices",
            Kind::SplitInfo(_) => self.called.map_or("split", |called| called.name),
            Kind::Custom(custom) => custom.name,
        }
    }

    /// Is it a step of a function that is linear but for piecewise_linear, so that its gradient depends on its inputs at the piecewise_linear alone? Those
    /// whose rules say so themselves, as relu's does, are not meant.
    pub(crate) fn piecewise_linear(&self) -> bool {
        match &self.kind {
            Kind::Op(Prim::Pool(_)) => true,
            Kind::Op(_) => self.called.is_some_and(|called| called.given & modes::piecewise_linear(true) != 0),
            Kind::Accumulate(_) | Kind::MultiOp(_) | Kind::Write(..) | Kind::SplitInfo(_) | Kind::Custom(_) => false,
        }
    }

    /// Lets go of the saved tensors.
    pub(crate) fn free(&self) {
        let mut saved = self.saved.lock();
        let had = saved.output.is_some() || !saved.inputs.is_empty();
        let old = std::mem::take(&mut *saved);
        saved.freed = had || old.freed;
        drop(saved);
        drop(old);
    }

    /// Saved tensor `i`; `None` where nothing was saved there.
    pub(crate) fn saved(self: &Arc<Node>, i: usize) -> Result<Option<Tensor>> {
        let Some(kept) = self.kept(i)? else { return Ok(None) };
        let saved = kept.get(self)?;
        self.check_attached(i, &kept).map(|()| Some(saved))
    }

    /// What stands for it. Unpacking may run hooks that come back to this node: not under the lock.
    pub(super) fn kept(&self, i: usize) -> Result<Option<SavedTensor>> {
        let saved = self.saved.lock();
        match saved.inputs.get(i).cloned().flatten() {
            None if saved.freed => Err(self.freed()),
            kept => Ok(kept),
        }
    }

    /// Refuses input `i`, a result of another node, that was cut off from the tape after it was saved: its history is missing.
    fn check_attached(&self, i: usize, kept: &SavedTensor) -> Result<()> {
        let (Kind::Op(_) | Kind::MultiOp(_), SavedTensor::Input(t, _), Some(Some(edge))) =
            (&self.kind, kept, self.edges.get(i))
        else {
            return Ok(());
        };
        match !matches!(edge.node.kind, Kind::Accumulate(_)) && t.0.auto.is_leaf() {
            true => Err(Error::runtime(self.op(), DETACHED)),
            false => Ok(()),
        }
    }

    pub(crate) fn freed(&self) -> Box<Error> {
        let why = "Trying to backward through the graph a second time (or directly access saved tensors after they have \
                   already been freed). Saved intermediate values of the graph are freed when you call .backward() or \
                   autograd.grad(). Specify retain_graph=True if you need to backward through the graph a second time or \
                   if you need to access saved tensors after calling backward.";
        Error::runtime(self.op(), why)
    }

    fn unlink(&mut self, stack: &mut SmallVec<[Owned; 8]>) {
        for edge in &mut self.edges {
            if let Some(edge) = edge.take() {
                stack.push(Owned::Node(edge.node));
            }
        }
        let saved = self.saved.get_mut();
        for kept in saved.inputs.iter_mut().chain([&mut saved.output]) {
            match kept.take() {
                None => {}
                Some(SavedTensor::Input(t, _)) => stack.push(Owned::Tensor(t)),
                Some(SavedTensor::Packed(packed)) => {
                    if let Place::At(edge) = packed.1 {
                        stack.push(Owned::Node(edge.node));
                    }
                }
                Some(SavedTensor::Output(kept, ..)) => {
                    stack.extend(kept.1.into_iter().filter_map(|t| t.value).map(Owned::Tensor));
                }
            }
        }
    }
}

/// What a dropped node or tensor held, for the iterative drop.
pub(super) enum Owned {
    Node(Arc<Node>),
    Tensor(Tensor),
}

impl Drop for Node {
    fn drop(&mut self) {
        let mut stack = SmallVec::new();
        self.unlink(&mut stack);
        while let Some(owned) = stack.pop() {
            match owned {
                // A leaf knows of the node that adds to it, so that it could not be emptied in place; it holds nothing.
                Owned::Node(node) if matches!(node.kind, Kind::Accumulate(_)) => drop(node),
                Owned::Node(node) => if_last(node, |node| node.unlink(&mut stack)),
                Owned::Tensor(t) => if_last(t.0, |inner| inner.auto.unlink(&mut stack)),
            }
        }
    }
}

/// Drops a handle, after `f` where it is the last one. In place, if that may be: nodes are large, and moving one out costs
/// more than all else here.
pub(super) fn if_last<T>(mut handle: Arc<T>, f: impl FnOnce(&mut T)) {
    if let Some(last) = Arc::get_mut(&mut handle) {
        return f(last);
    }
    // Somebody knows of it without keeping it, or releases it at this moment.
    if let Some(mut last) = Arc::into_inner(handle) {
        f(&mut last);
    }
}

/// What a rule sees: incoming gradients, saved tensors, shapes.
pub(crate) struct Ctx<'a> {
    pub(crate) node: &'a Arc<Node>,
    pub(crate) grads: &'a [Option<Tensor>],
    /// Which inputs' gradients are asked for, where that is not for all that have one.
    pub(crate) wanted: Option<&'a [bool]>,
    /// What a hook has given back, by the number of the input, or `RESULT`: a rule may ask twice, the hook is asked once.
    unpacked: RefCell<SmallVec<[(usize, Tensor); 1]>>,
}

const RESULT: usize = usize::MAX;

impl<'a> Ctx<'a> {
    pub(crate) fn new(node: &'a Arc<Node>, grads: &'a [Option<Tensor>], wanted: Option<&'a [bool]>) -> Ctx<'a> {
        Ctx { node, grads, wanted, unpacked: RefCell::new(SmallVec::new()) }
    }

    /// The gradient of the result.
    #[allow(clippy::unreachable)] // See below.
    pub(crate) fn g(&self) -> &Tensor {
        // The backward pass visits a node only with a gradient for its (single) result.
        self.grads.iter().flatten().next().unwrap_or_else(|| unreachable!("a node is walked with a gradient"))
    }

    /// Does input `i` need a gradient?
    pub(crate) fn needs(&self, i: usize) -> bool {
        match self.wanted {
            Some(wanted) => wanted.get(i).copied().unwrap_or(false),
            None => self.node.edges.get(i).is_some_and(Option::is_some),
        }
    }

    /// Number of inputs.
    pub(crate) fn len(&self) -> usize {
        self.node.metas.len()
    }

    /// Input `i`'s shape.
    pub(crate) fn shape(&self, i: usize) -> &Shape {
        &self.node.metas[i].shape
    }

    /// Input `i`'s device.
    pub(crate) fn device(&self, i: usize) -> Device {
        self.node.metas[i].device
    }

    /// Zeros like input `i`.
    pub(crate) fn zeros(&self, i: usize) -> Result<Tensor> {
        let meta = &self.node.metas[i];
        Tensor::full_of(&meta.shape, Scalar::ZERO, meta.dtype, meta.device)
    }

    /// Saved input `i`.
    pub(crate) fn x(&self, i: usize) -> Result<Tensor> {
        let kept = self.node.kept(i)?.ok_or_else(|| self.missing())?;
        let found = self.unpack(i, &kept)?;
        self.node.check_attached(i, &kept).map(|()| found)
    }

    pub(super) fn unpack(&self, at: usize, kept: &SavedTensor) -> Result<Tensor> {
        if !matches!(kept, SavedTensor::Packed(_)) {
            return kept.get(self.node);
        }
        let found = self.unpacked.borrow().iter().find(|(own, _)| *own == at).map(|(_, t)| t.clone());
        if let Some(found) = found {
            return Ok(found);
        }
        let t = kept.get(self.node)?;
        self.unpacked.borrow_mut().push((at, t.clone()));
        Ok(t)
    }

    /// Saved inputs from `first` on.
    pub(crate) fn rest(&self, first: usize) -> Result<Vec<Tensor>> {
        (first..self.len()).map(|i| self.x(i)).collect()
    }

    /// The saved result, on the tape as this node's own.
    pub(crate) fn out(&self) -> Result<Tensor> {
        let (kept, freed) = {
            let saved = self.node.saved.lock();
            (saved.output.clone(), saved.freed)
        };
        match kept {
            Some(kept) => self.unpack(RESULT, &kept),
            None if freed => Err(self.node.freed()),
            None => Err(self.missing()),
        }
    }

    pub(super) fn missing(&self) -> Box<Error> {
        Error::runtime(self.node.op(), "the gradient rule asked for a tensor that was not saved")
    }

    pub(crate) fn not_differentiable(&self) -> Result<Grads> {
        let why = "derivative is not implemented";
        Err(Error::not_implemented(self.node.op(), why))
    }

    // ---- for reductions ----------------------------------------------------------------------------------------------

    fn reduction(&self) -> Result<&crate::ops::reduce::Reduction> {
        match &self.node.kind {
            Kind::Op(Prim::Reduce(_, how)) => Ok(how),
            _ => Err(Error::runtime(self.node.op(), "is not a reduction")),
        }
    }

    /// The reduced axes.
    pub(crate) fn axes(&self) -> Result<Axes> {
        self.reduction().map(|how| how.axes.clone())
    }

    /// The reduced axes as arguments.
    pub(crate) fn reduction_dims(&self) -> Result<SmallVec<[isize; 4]>> {
        self.reduction().map(|how| signed(&how.axes))
    }

    /// Did the reduction keep its axes?
    pub(crate) fn keeps_dims(&self) -> bool {
        self.reduction().is_ok_and(|how| how.keepdim)
    }

    /// A reduction's result repeated over what was reduced.
    pub(crate) fn spread(&self, t: &Tensor) -> Result<Tensor> {
        let shape = self.shape(0);
        let kept = crate::shape::reduced_shape(shape, &self.reduction()?.axes, true);
        crate::ops::view::expand_to(&crate::ops::view::reshape_to(t, &kept)?, shape)
    }

    /// The gradient of an extremum, evenly to the elements that equal it. NaN equals nothing, so all get NaN then, unless
    /// it is the extremum of all elements by `max`, `min` or `median`: theirs goes to the NaN, as in PyTorch.
    pub(crate) fn spread_to_ties(&self, g: &Tensor) -> Result<Tensor> {
        let (x, top) = (self.x(0)?, self.spread(&self.out()?)?);
        let mut ties = x.eq(&top)?;
        if matches!(self.node.op(), "max_all" | "min_all" | "median" | "nanmedian") {
            ties = ties.logical_or(&x.isnan()?.logical_and(&top.isnan()?)?)?;
        }
        let ties = ties.cast(g.dtype())?;
        let count = self.spread(&ties.sum(Some(&self.reduction_dims()?), self.keeps_dims(), None)?)?;
        (self.spread(g)? * &ties)? / &count
    }
}

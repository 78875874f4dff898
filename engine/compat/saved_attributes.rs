//! What the tape remembers of the call that a node was recorded in, for who looks at the graph.
//!
//! Only arguments that differ from the row's default: most calls have nothing to tell. Tensors are not kept alive by it, and
//! are told of ops alone that are made of others: by them what these saved is found. Gradient rules do not read it.

use crate::autograd::{edge_of, requires_grad, GraphNode, Kind, Node, SavedTensor};
use crate::ops::schema::{Param, Saves};
use crate::ops::{NormOrder, OpRow, Operand, Sections};
use crate::tensor::Inner;
use crate::{Result, Scalar, Tensor};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock, Weak};

/// An argument that is no tensor.
#[derive(Clone, Debug, PartialEq)]
pub enum SavedArg {
    /// None was given.
    Nothing,
    /// True or false.
    Truth(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A number of any kind.
    Number(Scalar),
    /// Integers: dimensions or sizes.
    Ints(Box<[i64]>),
    /// A word.
    Text(Box<str>),
}

/// An argument as a node has it.
#[derive(Clone)]
pub(crate) enum SavedAttribute {
    Arg(SavedArg),
    Tensor(Weak<Inner>, ArgSource),
    /// No argument: which of the call's results it is, where that is not the first.
    Result(u32),
}

/// Where a tensor that an op was called with came from.
#[derive(Clone, Copy)]
pub(crate) enum ArgSource {
    /// Its dtype has no gradient.
    NotDifferentiable,
    /// It needed no gradient.
    NoGrad,
    /// It was this result of the node at that address, which the op's steps keep where its gradient goes there.
    Node(usize, u32),
}

/// A tensor that an op is called with.
pub(crate) fn argument(t: &Tensor) -> SavedAttribute {
    let came = match requires_grad(t).then(|| edge_of(t)).flatten() {
        Some(edge) => ArgSource::Node(Arc::as_ptr(&edge.node).addr(), edge.nr),
        None if t.dtype().is_differentiable() => ArgSource::NoGrad,
        None => ArgSource::NotDifferentiable,
    };
    SavedAttribute::Tensor(Arc::downgrade(&t.0), came)
}

/// The arguments of a call, by name.
pub(crate) type Call = Arc<[(&'static str, SavedAttribute)]>;

/// The same while it is gathered.
pub(crate) type SavedAttributes = SmallVec<[(&'static str, SavedAttribute); 4]>;

/// The same of one in whose place a number could be: it may be of any dtype.
pub(crate) fn operand(t: &Tensor) -> SavedAttribute {
    match argument(t) {
        SavedAttribute::Tensor(weak, ArgSource::NotDifferentiable) => SavedAttribute::Tensor(weak, ArgSource::NoGrad),
        known => known,
    }
}

/// What a call has to tell whose arguments are all tensors or defaults.
fn nothing() -> Call {
    static NOTHING: OnceLock<Call> = OnceLock::new();
    Arc::clone(NOTHING.get_or_init(|| Arc::new([])))
}

/// What is told of what gave itself another name on its way: that it was called.
fn renamed() -> Call {
    static RENAMED: OnceLock<Call> = OnceLock::new();
    Arc::clone(RENAMED.get_or_init(|| Arc::new([])))
}

/// What an op gave, to find the nodes that it recorded.
pub(crate) trait Made {
    /// Calls `f` with each tensor, and with the number of the result that it is, from `at` on: those of a list count where they
    /// are `named`, as what one step of PyTorch's gives.
    fn each(&self, at: u32, named: bool, f: &mut dyn FnMut(u32, &Tensor));
}

impl Made for bool {
    fn each(&self, _at: u32, _named: bool, _f: &mut dyn FnMut(u32, &Tensor)) {}
}

impl Made for Tensor {
    #[inline]
    fn each(&self, at: u32, _named: bool, f: &mut dyn FnMut(u32, &Tensor)) {
        f(at, self);
    }
}

impl Made for Vec<Tensor> {
    fn each(&self, at: u32, named: bool, f: &mut dyn FnMut(u32, &Tensor)) {
        (at..).zip(self).for_each(|(i, t)| f(if named { i } else { at }, t));
    }
}

impl<T: Made> Made for (Tensor, T) {
    fn each(&self, at: u32, named: bool, f: &mut dyn FnMut(u32, &Tensor)) {
        f(at, &self.0);
        self.1.each(at + 1, named, f);
    }
}

impl Made for Option<Tensor> {
    fn each(&self, at: u32, _named: bool, f: &mut dyn FnMut(u32, &Tensor)) {
        self.iter().for_each(|t| f(at, t));
    }
}

/// Lets the nodes of what an op gave know what it was called with. `tell` is asked where there is one, and whether the tensors
/// are to be among it: those of an op that is `made_of` others, or that took several steps.
#[inline]
pub(crate) fn tell(
    made: &impl Made,
    named: bool,
    op: &'static str,
    made_of: bool,
    tell: impl FnOnce(bool) -> SavedAttributes,
) {
    if !crate::autograd::grad_enabled() {
        return;
    }
    let mut tell = Some(tell);
    let mut call: Option<Call> = None;
    made.each(0, named, &mut |at, t| {
        if !requires_grad(t) {
            return;
        }
        let Some(edge) = t.0.auto.own_edge() else { return };
        let Some(called) = &edge.node.called else { return };
        if called.name != op {
            // An op may give back what another one made.
            if crate::autograd::called().is_some_and(|now| now.since == called.since) {
                let _first = edge.node.told.set(renamed());
            }
            return;
        }
        if let Some(tell) = tell.take() {
            let told = tell(made_of || edge.node.seq != called.since);
            call = Some(if told.is_empty() { nothing() } else { told.into_iter().collect() });
        }
        if let Some(call) = &call {
            let own = match at {
                0 => Arc::clone(call),
                _ => call.iter().cloned().chain([("", SavedAttribute::Result(at))]).collect(),
            };
            // One node may be of several results.
            let _first = edge.node.told.set(own);
        }
    });
}

impl Node {
    /// What was told under that name; the row's default where nothing was. None for a step within another op's.
    fn told_as(&self, name: &str) -> Option<SavedArg> {
        let told = self.told.get().filter(|told| !Arc::ptr_eq(told, &renamed()))?;
        let row = crate::ops::schemas().find(|row| row.name == self.op().trim_end_matches('_'))?;
        let own = told.iter().find_map(|(own, known)| match known {
            SavedAttribute::Arg(told) if *own == name => Some(told.clone()),
            SavedAttribute::Arg(_) | SavedAttribute::Tensor(..) | SavedAttribute::Result(_) => None,
        });
        let param = || row.params.iter().find(|p| p.name == name && is_told(p));
        let told = own.or_else(|| SavedArg::of_default(param()?.default?));
        // PyTorch knows of one convolution, of whatever number of dimensions.
        let dims = row.name.chars().find_map(|c| c.to_digit(10)).map_or(0, |n| n as usize);
        match (row.family, name, told) {
            ("order", "descending", _) => None,
            ("conv", "transposed", None) => Some(SavedArg::Truth(row.name.contains("transpose"))),
            ("conv", "output_padding", None) => Some(SavedArg::Ints(std::iter::repeat_n(0, dims).collect())),
            ("conv" | "pool", _, Some(SavedArg::Ints(one))) if one.len() == 1 => {
                Some(SavedArg::Ints(std::iter::repeat_n(one[0], dims).collect()))
            }
            ("view", "dim", Some(SavedArg::Ints(one))) if one.len() == 1 => Some(SavedArg::Int(one[0])),
            (_, _, told) => told,
        }
    }

    /// The tensor that the op was called with under that name, while it lives.
    fn argument(&self, name: &str) -> Option<Tensor> {
        let told = self.told.get()?;
        let find = |name: &str| {
            told.iter().find_map(|(own, known)| match known {
                SavedAttribute::Tensor(weak, _) if *own == name => weak.upgrade().map(Tensor),
                SavedAttribute::Tensor(..) | SavedAttribute::Arg(_) | SavedAttribute::Result(_) => None,
            })
        };
        // In PyTorch it is `input` to few: convolutions and norms.
        find(name).or_else(|| if name == "self" { find("input") } else { None })
    }

    /// The indices that sorted or chose what the op gave, in the result's shape.
    ///
    /// # Errors
    /// As [`Node::saved`].
    pub(crate) fn saved_indices(self: &Arc<Node>) -> Result<Option<Tensor>> {
        match &self.kind {
            Kind::MultiOp(op) if self.told.get().is_some() && op.prim.schema().saves == Saves::Indices => {
                self.saved(self.metas.len() + 1)
            }
            _ => Ok(None),
        }
    }

    /// That tensor, unless it is gone, where this node or one that the same call recorded before it saved it or all of its elements.
    ///
    /// # Errors
    /// As [`Node::saved`].
    pub(crate) fn saved_argument(self: &Arc<Node>, name: &str) -> Result<Option<Tensor>> {
        let told = self.told.get().into_iter().flat_map(|told| told.iter());
        let names = |own: &str| own == name || (own, name) == ("input", "self");
        if !told.into_iter().any(|(own, known)| names(own) && matches!(known, SavedAttribute::Tensor(..))) {
            return Ok(None);
        }
        // What nobody has any more was not saved, or is freed.
        let argument = self.argument(name);
        let same = |t: &Tensor, own: &Tensor| t.is_same(own) || t.is_view_of(own) && t.numel() == own.numel();
        let is_it = |t: &Tensor| argument.as_ref().is_some_and(|own| same(t, own));
        let (mut nodes, mut at) = (vec![Arc::clone(self)], 0);
        while let Some(node) = nodes.get(at).map(Arc::clone) {
            at += 1;
            let place = {
                let saved = node.saved.lock();
                if saved.freed {
                    return Err(self.freed());
                }
                saved.inputs.iter().position(|kept| matches!(kept, Some(SavedTensor::Input(t, _)) if is_it(t)))
            };
            if let Some(i) = place {
                return node.saved(i).map(|_| argument);
            }
            let within =
                |other: &Arc<Node>| other.is_within(self) && !nodes.iter().any(|known| Arc::ptr_eq(known, other));
            let earlier: Vec<_> = node.edges.iter().flatten().map(|e| &e.node).filter(|n| within(n)).cloned().collect();
            if nodes.len() < MOST_STEPS {
                nodes.extend(earlier);
            }
        }
        Ok(None)
    }
}

/// How many steps of one call are searched at most.
const MOST_STEPS: usize = 64;

/// May it be told: is it no tensor, and none of what only says where and in what dtype the result is made?
fn is_told(param: &Param) -> bool {
    let kinds =
        ["Operand", "Number", "Bool", "Int", "Start", "Float", "Dim", "Dims", "Sizes", "Sections", "Text", "Order"];
    kinds.contains(&param.kind.trim_start_matches("Opt"))
}

impl GraphNode {
    /// The names of what the node knows of its call: PyTorch's of the arguments that are no tensors, and `self_sym_sizes`,
    /// the sizes of the first tensor. PyTorch has those that its own formula needs, here it is all of them.
    pub fn told_names(&self) -> Vec<&'static str> {
        let row = crate::ops::schemas().find(|row| row.name == self.0.op());
        let arguments = row.into_iter().flat_map(|row| row.params).map(|p| p.name);
        let names = arguments.chain(["self_sym_sizes"]);
        let mut names: Vec<_> = names.filter(|name| self.told(name).is_some()).collect();
        let of_input = row.is_some_and(|row| matches!(row.family, "conv" | "norm"));
        let tensors = self.0.told.get().into_iter().flat_map(|told| told.iter()).map(|(name, _)| *name);
        // What a primitive saved goes by its inputs.
        let tensors = tensors.filter(|name| !name.is_empty() && self.whole().is_none());
        let tensors = tensors.map(|name| if name == "input" && !of_input { "self" } else { name });
        names.extend(tensors.filter(|name| matches!(self.0.saved_argument(name), Ok(Some(_)) | Err(_))));
        names.extend(matches!(self.0.saved_indices(), Ok(Some(_)) | Err(_)).then_some("indices"));
        names
    }

    /// What the node knows of its call under one of those names, `NAME_sym_sizes` of a tensor, or `self_sym_numel`, how many
    /// elements the first one has. Dimensions are as they were given, from the end where they are negative.
    pub fn told(&self, name: &str) -> Option<SavedArg> {
        if let Some(told) = self.0.told_as(name) {
            return Some(told);
        }
        if let Some(of) = name.strip_suffix("_sym_numel") {
            let Some(SavedArg::Ints(sizes)) = self.told(&format!("{of}_sym_sizes")) else { return None };
            return Some(SavedArg::Int(sizes.iter().product()));
        }
        let list = |list: &[usize]| SavedArg::Ints(list.iter().map(|&n| n as i64).collect());
        if let Some(of) = name.strip_suffix("_sym_strides") {
            let saved = self.0.argument(of).or_else(|| self.saved_as(of).ok()??);
            return saved.map(|t| list(t.strides()));
        }
        if let Some(of) = name.strip_suffix("_sym_sizes_opt") {
            return self.0.argument(of).map(|t| list(t.shape()));
        }
        let of = name.strip_suffix("_sym_sizes")?;
        if let Some(argument) = self.0.argument(of) {
            return Some(list(argument.shape()));
        }
        let i = (0..self.0.metas.len()).find(|&i| self.input_name(i) == Some(of))?;
        Some(list(&self.0.metas[i].shape))
    }
}

/// An argument as it is told; `None` where it is a tensor.
pub(crate) trait Tells {
    fn told(&self) -> Option<SavedArg>;
}

/// An argument under its name. PyTorch has two for how a dimension is split.
#[inline]
pub(crate) fn known(name: &'static str, argument: &impl Tells) -> Option<(&'static str, SavedAttribute)> {
    let told = argument.told()?;
    let name = match (name, &told) {
        ("split_size_or_sections", SavedArg::Int(_)) => "split_size",
        ("split_size_or_sections", _) => "split_sizes",
        _ => name,
    };
    Some((name, SavedAttribute::Arg(told)))
}

macro_rules! tells {
    ($($ty:ty: $v:ident => $told:expr;)*) => {
        $(impl Tells for $ty {
            #[inline]
            fn told(&self) -> Option<SavedArg> {
                let $v = self;
                Some($told)
            }
        })*
    };
}
tells! {
    bool: v => SavedArg::Truth(*v);
    i64: v => SavedArg::Int(*v);
    isize: v => SavedArg::Int(*v as i64);
    f64: v => SavedArg::Float(*v);
    Scalar: v => SavedArg::Number(*v);
    &[isize]: v => SavedArg::Ints(v.iter().map(|&n| n as i64).collect());
    &str: v => SavedArg::Text((*v).into());
    Sections<'_>: v => match v {
        Sections::Count(n) => SavedArg::Int(*n),
        Sections::List(list) => SavedArg::Ints(list.iter().map(|&n| n as i64).collect()),
    };
    NormOrder: v => match v {
        NormOrder::Number(p) => SavedArg::Float(*p),
        NormOrder::Fro => SavedArg::Text("fro".into()),
        NormOrder::Nuc => SavedArg::Text("nuc".into()),
    };
}

impl Tells for Operand<'_> {
    #[inline]
    fn told(&self) -> Option<SavedArg> {
        match self {
            Operand::Tensor(_) => None,
            Operand::Scalar(s) => Some(SavedArg::Number(*s)),
        }
    }
}

impl<T: Tells> Tells for Option<T> {
    #[inline]
    fn told(&self) -> Option<SavedArg> {
        match self {
            Some(v) => v.told(),
            None => Some(SavedArg::Nothing),
        }
    }
}

impl SavedArg {
    /// A row's default, as the op table has it in Rust.
    pub(crate) fn of_default(text: &str) -> Option<SavedArg> {
        // As the compiler writes it, with spaces between all parts.
        let plain: String = text.chars().filter(|c| !c.is_whitespace() || text.starts_with('"')).collect();
        let text = plain.as_str();
        let quoted = || text.strip_prefix('"')?.strip_suffix('"');
        match text {
            "None" => Some(SavedArg::Nothing),
            "true" => Some(SavedArg::Truth(true)),
            "false" => Some(SavedArg::Truth(false)),
            _ => match (text.parse(), text.parse(), quoted()) {
                (Ok(n), _, _) => Some(SavedArg::Int(n)),
                (_, Ok(x), _) => Some(SavedArg::Float(x)),
                (_, _, Some(word)) => Some(SavedArg::Text(word.into())),
                _ => {
                    let list = text.strip_prefix("&[")?.strip_suffix(']')?;
                    let numbers = list.split(',').map(str::trim).filter(|n| !n.is_empty()).map(str::parse);
                    numbers
                        .collect::<std::result::Result<Vec<i64>, _>>()
                        .ok()
                        .map(|numbers| SavedArg::Ints(numbers.into()))
                }
            },
        }
    }
}

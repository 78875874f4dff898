//! The smallest set of primitives, and the others in its terms.
//!
//! A dozen primitives suffice: [`SMALLEST`], with movement (views), casts and constants. [`decompose`] rewrites a graph into
//! them; what it leaves, [`reason`] says why. It is the reference that kernels are compared with and the least that a new
//! backend has to have; nothing of it is fast. A comparison is a number 0 or 1, a choice a product of the elements'
//! bits with it. Depends on the public ops, which it records over tensors without memory.

mod curves;
mod elements;
mod structure;

use super::contract::restrided;
use super::{Graph, Info, Recorder, Step, Value, Values};
use crate::dispatch::{self, Prim};
use crate::shape::Layout;
use crate::{DType, Device, Error, Result, Tensor};
use lucid_ir::ops::nn::{ElementFn, NnOp};
use lucid_ir::ops::{
    binary::BinaryOp, compare::CompareOp, conv::ConvOp, create::CreateOp, index::IndexOp, linalg::LinalgOp,
    order::OrderOp, pool::PoolOp, reduce::ReduceOp, scan::ScanOp, transfer::TransferOp, unary::UnaryOp,
};
use lucid_ir::Meta;
use std::collections::HashMap;

/// The names of the primitives that all others are made of.
pub const SMALLEST: [&str; 12] =
    ["log2", "exp2", "sin", "sqrt", "reciprocal", "add", "mul", "remainder", "lt", "sum", "amax", "copy"];

/// Is it one of the smallest set, or a movement, a cast or a constant?
pub fn is_smallest(prim: &Prim) -> bool {
    match prim {
        Prim::Unary(op) => {
            matches!(op, UnaryOp::Log2 | UnaryOp::Exp2 | UnaryOp::Sin | UnaryOp::Sqrt | UnaryOp::Reciprocal)
        }
        Prim::Binary(op) => matches!(op, BinaryOp::Add | BinaryOp::Mul | BinaryOp::Remainder),
        Prim::Compare(op) => matches!(op, CompareOp::Lt),
        Prim::Reduce(op, _) => matches!(op, ReduceOp::Sum | ReduceOp::Max),
        Prim::Create(op) => matches!(op, CreateOp::Full { .. } | CreateOp::Arange { .. }),
        Prim::Transfer(op) => match op {
            TransferOp::Copy | TransferOp::Cast { .. } | TransferOp::Move { .. } => true,
        },
        Prim::View(_) => true,
        Prim::Random(_)
        | Prim::Select(_)
        | Prim::Scan(_)
        | Prim::Index(_)
        | Prim::Sort(_)
        | Prim::Contract(_)
        | Prim::Linalg(_)
        | Prim::Order(_)
        | Prim::Recurrent(_)
        | Prim::Decomposition(_)
        | Prim::Fft(_)
        | Prim::Conv(_)
        | Prim::Pool(_)
        | Prim::Nn(_)
        | Prim::Norm(_)
        | Prim::Normalization(_)
        | Prim::Loss(_)
        | Prim::Quantize(_)
        | Prim::Quantized(_)
        | Prim::Communication(_) => false,
    }
}

/// Why a primitive is not made of the smallest set. What is said of an op is true of it; of one that is not named here, that
/// there is no rule.
pub fn reason(prim: &Prim) -> &'static str {
    match prim {
        Prim::Random(_) => "the counter-based generator works on the bits of integers",
        Prim::Linalg(
            LinalgOp::LdlSolve { .. }
            | LinalgOp::Eigenvalues
            | LinalgOp::SingularValues
            | LinalgOp::PseudoInverse { .. }
            | LinalgOp::Exponential
            | LinalgOp::Inverse
            | LinalgOp::SolveMatrices
            | LinalgOp::SolveTriangular { .. },
        )
        | Prim::Decomposition(_) => "factorisations are iterations, whose steps depend on the elements",
        Prim::Fft(_) => "complex numbers are pairs, which the smallest set has no primitive for",
        Prim::Communication(_) => "it moves elements between processes",
        Prim::Quantize(_) | Prim::Quantized(_) => "packed words are taken apart bit by bit",
        Prim::Binary(
            BinaryOp::BitwiseAnd
            | BinaryOp::BitwiseOr
            | BinaryOp::BitwiseXor
            | BinaryOp::LeftShift
            | BinaryOp::RightShift
            | BinaryOp::CopySign
            | BinaryOp::NextAfter,
        ) => "it works on the bits of numbers",
        Prim::Binary(BinaryOp::Gcd | BinaryOp::Lcm) => "Euclid's iteration, whose steps depend on the elements",
        Prim::Nn(NnOp::Elementwise { f: ElementFn::NanToNum, .. }) => "a choice of infinities is no product",
        Prim::Pool(
            PoolOp::MaxIndices { .. }
            | PoolOp::MaxPick { .. }
            | PoolOp::MaxScatter { .. }
            | PoolOp::AverageSpread { .. }
            | PoolOp::Take
            | PoolOp::Put { .. },
        )
        | Prim::Conv(ConvOp::InputGradient { .. } | ConvOp::WeightGradient { .. })
        | Prim::Index(
            IndexOp::Scatter { .. } | IndexOp::Reduce { .. } | IndexOp::IndexPut { .. } | IndexOp::StridedAdd { .. },
        ) => "it writes where elements, or windows that overlap, say",
        Prim::Scan(ScanOp::Prod { .. } | ScanOp::Recur { .. })
        | Prim::Order(OrderOp::CumMax { .. } | OrderOp::CumMin { .. }) => {
            "each element depends on the one before it by more than a sum"
        }
        _ => "there is no rule for it in the smallest set, or none for operands of these dtypes",
    }
}

/// Rewrites all steps that can be into the smallest set. Gives the names of those that stay, each with the reason.
///
/// # Errors
/// What recording the parts reports.
///
/// # Examples
/// ```
/// use lucid::graph::decompose::decompose;
/// use lucid::graph::{Program, Recorder};
/// use lucid::{tensor, testing::assert_close};
/// let x = tensor([0.5, -1.0])?;
/// let recorder = Recorder::begin(&[x.clone()], false)?;
/// let y = x.tanh()?;
/// let made = recorder.value_of(&y);
/// let mut graph = recorder.finish()?.graph;
/// graph.outputs = made.into_iter().collect();
/// assert!(decompose(&mut graph)?.is_empty());
/// assert!(!graph.to_string().contains("tanh"));
/// let program = Program::new(graph, &[])?;
/// let mut run = program.begin(&[x])?;
/// run.run(None)?;
/// assert_close(&run.value(program.graph().outputs[0])?, [0.46211716, -0.7615942]);
/// # lucid::Result::<()>::Ok(())
/// ```
pub fn decompose(graph: &mut Graph) -> Result<Vec<(&'static str, &'static str)>> {
    let mut left = Vec::new();
    let steps = std::mem::take(&mut graph.steps);
    let split = graph.split;
    for (at, step) in steps.into_iter().enumerate() {
        if at == split {
            graph.split = graph.steps.len();
        }
        let (prim, inputs, outs, metas) = match &step {
            Step::Op { prim, inputs, out, meta, .. } if !is_smallest(prim) => {
                (prim, inputs, std::slice::from_ref(out), std::slice::from_ref(meta))
            }
            Step::MultiOp { prim, inputs, outs, metas } => (prim, inputs, &outs[..], &metas[..]),
            Step::Op { .. }
            | Step::View { .. }
            | Step::Assign { .. }
            | Step::IndexInto { .. }
            | Step::Draw { .. }
            | Step::Eval { .. }
            | Step::Host { .. } => {
                graph.steps.push(step);
                continue;
            }
        };
        match parts(graph, prim, inputs, metas, outs)? {
            Some(sub) => {
                let rows = inputs.iter().map(|&v| row_major(graph, v)).collect::<Result<Values>>()?;
                splice(graph, sub, &rows, outs)?;
            }
            None => {
                left.push((prim.name(), reason(prim)));
                graph.steps.push(step);
            }
        }
    }
    graph.split = graph.split.min(graph.steps.len());
    graph.verify()?;
    Ok(left)
}

/// The value as one that is row-major in a storage of its own, copied where it is not.
fn row_major(graph: &mut Graph, value: Value) -> Result<Value> {
    let info = graph.info(value)?.clone();
    let strides = Layout::contiguous(&info.shape).strides;
    if info.root == value && info.offset == 0 && info.strides == strides {
        return Ok(value);
    }
    let out = graph.infos.len() as Value;
    let meta = Meta { shape: info.shape.clone(), dtype: info.dtype };
    graph.infos.push(Info { strides, offset: 0, root: out, ..info });
    let inputs = std::iter::once(value).collect();
    graph.steps.push(Step::Op { prim: Prim::Transfer(TransferOp::Copy), inputs, out, meta, key: None });
    Ok(out)
}

/// The parts of one step, as a graph whose inputs are the step's and whose results have the layouts of the step's.
fn parts(graph: &Graph, prim: &Prim, inputs: &[Value], metas: &[Meta], outs: &[Value]) -> Result<Option<Graph>> {
    let hollow = |info: &Info| {
        let meta = Meta { shape: info.shape.clone(), dtype: info.dtype };
        dispatch::create_plain(Prim::Create(CreateOp::Full { value: 0.into() }), meta, Device::Meta)
    };
    let x = inputs.iter().map(|&v| hollow(graph.info(v)?)).collect::<Result<Vec<Tensor>>>()?;
    let recorder = Recorder::begin(&x, true)?;
    let made = crate::no_grad(|| expand(prim, &x, metas))?;
    let Some(made) = made else { return Ok(None) };
    let mut outputs = Vec::new();
    // Kept until all have been asked for: values go by their tensors.
    let mut held = Vec::new();
    for ((made, meta), &out) in made.iter().zip(metas).zip(outs) {
        let same = made.shape() == &meta.shape[..] && made.dtype() == meta.dtype;
        if !same {
            let why = format!("{} decomposes to {:?} {}", prim.name(), made.shape(), made.dtype());
            return Err(Error::runtime("decompose", why));
        }
        // A storage of its own, as the step's result has.
        let own = crate::no_grad(|| restrided(&made.copy()?, &graph.info(out)?.strides))?;
        let value = recorder.value_of(&own).ok_or_else(|| Error::runtime("decompose", "a result was not recorded"))?;
        outputs.push(value);
        held.push(own);
    }
    let mut sub = recorder.finish()?.graph;
    sub.outputs = outputs;
    let device = graph.info(outs[0])?.device;
    sub.place(device)?;
    Ok(Some(sub))
}

/// Puts the parts in the place of the step.
fn splice(graph: &mut Graph, sub: Graph, inputs: &[Value], outs: &[Value]) -> Result<()> {
    let Graph { infos, inputs: given, constants, steps, outputs, .. } = sub;
    let mut to: HashMap<Value, Value> = given.into_iter().zip(inputs.iter().copied()).collect();
    to.extend(outputs.iter().copied().zip(outs.iter().copied()));
    let first = graph.infos.len() as Value;
    let mut fresh = Vec::new();
    for (v, info) in infos.into_iter().enumerate() {
        let v = v as Value;
        if let std::collections::hash_map::Entry::Vacant(place) = to.entry(v) {
            place.insert(first + fresh.len() as Value);
            fresh.push(info);
        } else if let Some(at) = outputs.iter().position(|&output| output == v) {
            graph.infos[outs[at] as usize] = info;
        }
    }
    graph.infos.extend(fresh);
    let map = |v: Value| to.get(&v).copied().unwrap_or(v);
    let begin = first as usize;
    for info in &mut graph.infos[begin..] {
        info.root = map(info.root);
    }
    let roots: Values = outs.iter().map(|&out| map(graph.infos[out as usize].root)).collect();
    for (&out, root) in outs.iter().zip(roots) {
        // What shows the step's result shows the storage that it is in now.
        for info in graph.infos[..begin].iter_mut().filter(|info| info.root == out) {
            info.root = root;
        }
        graph.infos[out as usize].root = root;
    }
    graph.constants.extend(constants.into_iter().map(|(v, t)| (map(v), t)));
    for mut step in steps {
        step.rename(map);
        match &mut step {
            Step::Op { out, .. } | Step::View { out, .. } => *out = map(*out),
            Step::MultiOp { outs, .. } => outs.iter_mut().for_each(|out| *out = map(*out)),
            Step::Assign { .. }
            | Step::IndexInto { .. }
            | Step::Draw { .. }
            | Step::Eval { .. }
            | Step::Host { .. } => {}
        }
        graph.steps.push(step);
    }
    Ok(())
}

/// A primitive in terms of the smallest set; `None` where there are none.
fn expand(prim: &Prim, x: &[Tensor], metas: &[Meta]) -> Result<Option<Vec<Tensor>>> {
    let wide = |dtype: DType| matches!(dtype, DType::F32 | DType::F64);
    let plain = |dtype: DType| wide(dtype) || matches!(dtype, DType::Bool | DType::I64);
    // Of nothing, reductions over positions would be of nothing too.
    let meta = &metas[0];
    let empty = crate::shape::numel(&meta.shape) == 0 || x.iter().any(|t| t.numel() == 0);
    if empty || !plain(meta.dtype) || !x.iter().all(|t| plain(t.dtype())) {
        return Ok(None);
    }
    let one = match prim {
        Prim::Order(op) => return structure::order(op, &x[0]),
        Prim::Normalization(op) => return structure::normalization(op, x),
        Prim::Unary(_) | Prim::Binary(_) | Prim::Compare(_) | Prim::Select(_) => {
            let real = x.iter().any(|t| wide(t.dtype())) || matches!(prim, Prim::Compare(_) | Prim::Select(_));
            if real {
                elements::expand(prim, x, meta)
            } else {
                Ok(None)
            }
        }
        Prim::Create(_)
        | Prim::Reduce(..)
        | Prim::Scan(_)
        | Prim::Index(_)
        | Prim::Sort(_)
        | Prim::Contract(_)
        | Prim::Conv(_)
        | Prim::Pool(_)
        | Prim::Nn(_)
        | Prim::Norm(_)
        | Prim::Loss(_) => structure::expand(prim, x, meta),
        Prim::Random(_)
        | Prim::Transfer(_)
        | Prim::View(_)
        | Prim::Linalg(_)
        | Prim::Recurrent(_)
        | Prim::Decomposition(_)
        | Prim::Fft(_)
        | Prim::Quantize(_)
        | Prim::Quantized(_)
        | Prim::Communication(_) => Ok(None),
    };
    one.map(|one| one.map(|one| vec![one]))
}

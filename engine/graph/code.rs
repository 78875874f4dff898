//! Graphs as trees of plain values, and graphs for sizes that vary.
//!
//! Depends on [`lucid_ir::codec`]. A [`Template`] is made of recordings of one computation at several sizes: where their trees
//! differ in a number, that number is a polynomial of the sizes, found from some recordings and confirmed by the others.
//! Invariant: a template gives a graph only for sizes between the smallest and the largest ones that were recorded, and
//! only one that [`contract`](super::contract) accepts.

use super::{contract, Graph, Info, KeyFrom, Step, Value};
use crate::{Error, Generator, Result, Tensor};
use lucid_ir::codec::{Arg, Codec, Form, Polynomial};
use smallvec::SmallVec;

impl Codec for Info {
    fn encode(&self) -> Arg {
        let Info { shape, strides, offset, dtype, device, root } = self;
        Arg::List(vec![
            shape.encode(),
            strides.encode(),
            offset.encode(),
            dtype.encode(),
            device.encode(),
            root.encode(),
        ])
    }

    fn decode(arg: &Arg) -> Option<Info> {
        let [shape, strides, offset, dtype, device, root] = arg.exactly()?;
        Some(Info {
            shape: Codec::decode(shape)?,
            strides: Codec::decode(strides)?,
            offset: Codec::decode(offset)?,
            dtype: Codec::decode(dtype)?,
            device: Codec::decode(device)?,
            root: Codec::decode(root)?,
        })
    }
}

impl Codec for KeyFrom {
    fn encode(&self) -> Arg {
        Arg::List(vec![self.draw.encode(), self.child.encode()])
    }

    fn decode(arg: &Arg) -> Option<KeyFrom> {
        let [draw, child] = arg.exactly()?;
        Some(KeyFrom { draw: Codec::decode(draw)?, child: Codec::decode(child)? })
    }
}

impl Codec for Step {
    fn encode(&self) -> Arg {
        match self {
            Step::Op { prim, inputs, out, meta, key } => {
                // The key itself is drawn anew in each run.
                let prim = match key {
                    Some(_) => super::recorder::with_key(prim, crate::random::Key([0, 0])),
                    None => prim.clone(),
                };
                Arg::tag("op", [prim.encode(), inputs.encode(), out.encode(), meta.encode(), key.encode()])
            }
            Step::MultiOp { prim, inputs, outs, metas } => {
                Arg::tag("multi_op", [prim.encode(), inputs.encode(), outs.encode(), Arg::of(metas)])
            }
            Step::View { op, of, out, layout } => {
                Arg::tag("view", [op.encode(), of.encode(), out.encode(), layout.encode()])
            }
            Step::Assign { dst, src } => Arg::tag("assign", [dst.encode(), src.encode()]),
            Step::IndexInto { op, dst, rest } => Arg::tag("index_into", [op.encode(), dst.encode(), rest.encode()]),
            Step::Draw { draw } => Arg::tag("draw", [draw.encode()]),
            Step::Eval { values, wait } => Arg::tag("eval", [values.encode(), wait.encode()]),
            Step::Host { call } => Arg::tag("host", [call.encode()]),
        }
    }

    fn decode(arg: &Arg) -> Option<Step> {
        Some(match arg.tagged()? {
            ("op", [prim, inputs, out, meta, key]) => Step::Op {
                prim: Codec::decode(prim)?,
                inputs: Codec::decode(inputs)?,
                out: Codec::decode(out)?,
                meta: Codec::decode(meta)?,
                key: Codec::decode(key)?,
            },
            ("multi_op", [prim, inputs, outs, metas]) => Step::MultiOp {
                prim: Codec::decode(prim)?,
                inputs: Codec::decode(inputs)?,
                outs: Codec::decode(outs)?,
                metas: metas.all()?.into(),
            },
            ("view", [op, of, out, layout]) => Step::View {
                op: Codec::decode(op)?,
                of: Codec::decode(of)?,
                out: Codec::decode(out)?,
                layout: Codec::decode(layout)?,
            },
            ("assign", [dst, src]) => Step::Assign { dst: Codec::decode(dst)?, src: Codec::decode(src)? },
            ("index_into", [op, dst, rest]) => {
                Step::IndexInto { op: Codec::decode(op)?, dst: Codec::decode(dst)?, rest: Codec::decode(rest)? }
            }
            ("draw", [draw]) => Step::Draw { draw: Codec::decode(draw)? },
            ("eval", [values, wait]) => Step::Eval { values: Codec::decode(values)?, wait: Codec::decode(wait)? },
            ("host", [call]) => Step::Host { call: Codec::decode(call)? },
            _ => return None,
        })
    }
}

/// A graph as a plain value, beside what has no plain value.
#[derive(Clone)]
pub(super) struct Code {
    pub(super) arg: Arg,
    pub(super) constants: Vec<Tensor>,
    pub(super) draws: Vec<Option<Generator>>,
}

impl Code {
    pub(super) fn of(graph: &Graph) -> Code {
        let constants: Vec<Value> = graph.constants.iter().map(|(v, _)| *v).collect();
        let arg = Arg::List(vec![
            Arg::of(&graph.infos),
            Arg::of(&graph.inputs),
            Arg::of(&constants),
            Arg::of(&graph.steps),
            graph.split.encode(),
            Arg::of(&graph.outputs),
        ]);
        Code { arg, constants: graph.constants.iter().map(|(_, t)| t.clone()).collect(), draws: graph.draws.clone() }
    }

    /// The graph for these sizes, checked; `own` as in [`contract::check`].
    ///
    /// # Errors
    /// [`Error::Runtime`] where it is none.
    pub(super) fn graph(&self, symbols: &[usize], own: bool) -> Result<Graph> {
        let fail = |why: &str| Error::runtime("graph", format!("{why} (sizes {symbols:?})"));
        let arg = self.arg.at(symbols).ok_or_else(|| fail("a size overflows"))?;
        let graph = self.decoded(&arg).ok_or_else(|| fail("this is no encoding of a graph"))?;
        for (value, t) in &graph.constants {
            let info = graph.info(*value)?;
            if info.shape[..] != *t.shape() || info.dtype != t.dtype() || info.strides[..] != *t.strides() {
                return Err(fail("a constant is of another shape or dtype than the graph says"));
            }
        }
        contract::check(&graph, own)?;
        Ok(graph)
    }

    fn decoded(&self, arg: &Arg) -> Option<Graph> {
        let [infos, inputs, constants, steps, split, outputs] = arg.exactly()?;
        let constants: Vec<Value> = constants.all()?;
        if constants.len() != self.constants.len() {
            return None;
        }
        Some(Graph {
            infos: infos.all()?,
            inputs: inputs.all()?,
            constants: constants.into_iter().zip(self.constants.iter().cloned()).collect(),
            steps: steps.all()?,
            split: Codec::decode(split)?,
            outputs: outputs.all()?,
            draws: self.draws.clone(),
            composites: Vec::new(),
        })
    }
}

/// A graph for sizes that vary.
#[derive(Clone)]
pub struct Template {
    pub(super) code: Code,
    /// Per symbol the smallest and the largest size.
    pub(super) ranges: Vec<(usize, usize)>,
}

impl Template {
    /// Of recordings of one computation: the sizes of each, and its graph before any pass.
    ///
    /// # Errors
    /// [`Error::Runtime`] with what differs between the recordings and is no formula of the sizes.
    pub fn new(samples: &[(Vec<usize>, &Graph)]) -> Result<Template> {
        let fail = |why: String| Error::runtime("graph", why);
        let Some((first, _)) = samples.first() else { return Err(fail("no recording was given".into())) };
        if samples.iter().any(|(sizes, _)| sizes.len() != first.len()) || first.len() > 8 {
            return Err(fail("recordings have between 0 and 8 sizes that vary, all the same ones".into()));
        }
        let codes: Vec<Code> = samples.iter().map(|(_, graph)| Code::of(graph)).collect();
        let sizes: Vec<&[usize]> = samples.iter().map(|(sizes, _)| &sizes[..]).collect();
        let monomials = monomials(first.len());
        let trees: Vec<&Arg> = codes.iter().map(|code| &code.arg).collect();
        let arg = unify(&trees, &sizes, &monomials).map_err(fail)?;
        for code in &codes[1..] {
            let same = code.constants.len() == codes[0].constants.len()
                && code.constants.iter().zip(&codes[0].constants).all(|(a, b)| equal(a, b));
            if !same {
                return Err(fail("a constant that the program makes depends on the sizes".into()));
            }
        }
        let range = |i: usize| {
            let of = sizes.iter().map(|sizes| sizes[i]);
            (of.clone().min().unwrap_or(0), of.max().unwrap_or(0))
        };
        let ranges = (0..first.len()).map(range).collect();
        let Code { constants, draws, .. } = codes[0].clone();
        Ok(Template { code: Code { arg, constants, draws }, ranges })
    }

    /// Per symbol the smallest and the largest size.
    pub fn ranges(&self) -> &[(usize, usize)] {
        &self.ranges
    }

    /// The graph for these sizes, checked.
    ///
    /// # Errors
    /// [`Error::Runtime`] where a size is outside of its range, or the graph would not do what its primitives demand.
    pub fn at(&self, sizes: &[usize]) -> Result<Graph> {
        let inside = |(n, (low, high)): (&usize, &(usize, usize))| n >= low && n <= high;
        if sizes.len() != self.ranges.len() || !sizes.iter().zip(&self.ranges).all(inside) {
            let why = format!("the graph is for sizes in {:?}, got {sizes:?}", self.ranges);
            return Err(Error::runtime("graph", why));
        }
        self.code.graph(sizes, true)
    }
}

fn equal(a: &Tensor, b: &Tensor) -> bool {
    let bytes = |t: &Tensor| t.to_bytes().ok();
    a.shape() == b.shape() && a.dtype() == b.dtype() && a.device() == b.device() && bytes(a) == bytes(b)
}

type Monomial = SmallVec<[u8; 4]>;

/// The products of up to three symbols, powers up to two, the constant first.
fn monomials(symbols: usize) -> Vec<Monomial> {
    let mut all: Vec<Monomial> = vec![Monomial::new()];
    let mut last = all.clone();
    for _ in 0..3 {
        let mut next = Vec::new();
        for of in &last {
            for symbol in of.last().copied().unwrap_or(0)..symbols as u8 {
                if of.iter().filter(|&&s| s == symbol).count() < 2 {
                    let mut longer = of.clone();
                    longer.push(symbol);
                    next.push(longer);
                }
            }
        }
        all.extend(next.iter().cloned());
        last = next;
    }
    all
}

/// One tree of the trees of several recordings.
fn unify(trees: &[&Arg], sizes: &[&[usize]], monomials: &[Monomial]) -> std::result::Result<Arg, String> {
    let first = trees[0];
    if trees[1..].iter().all(|tree| *tree == first) && !matches!(first, Arg::List(_)) {
        return Ok(first.clone());
    }
    match first {
        Arg::List(list) => {
            let lists: Option<Vec<&[Arg]>> = trees.iter().map(|tree| tree.list()).collect();
            let lists = lists.filter(|lists| lists.iter().all(|other| other.len() == list.len()));
            let lists = lists.ok_or("the sizes decide which steps there are")?;
            let one = |i: usize| {
                let parts: Vec<&Arg> = lists.iter().map(|list| &list[i]).collect();
                unify(&parts, sizes, monomials)
            };
            (0..list.len()).map(one).collect::<std::result::Result<_, _>>().map(Arg::List)
        }
        Arg::Int(_) => {
            let numbers: Option<Vec<i64>> = trees.iter().map(|tree| i64::decode(tree)).collect();
            let formula = numbers.and_then(|numbers| fit(&numbers, sizes, monomials));
            let formula = formula.ok_or("a number is no simple formula of the sizes")?;
            Ok(Arg::Size { formula, form: Form::Int })
        }
        Arg::Float(_) => {
            let numbers: Option<Vec<f64>> = trees.iter().map(|tree| f64::decode(tree)).collect();
            let numbers = numbers.ok_or("the sizes decide about the kind of a number")?;
            for form in [Form::Real, Form::Inverse] {
                let whole = |x: &f64| {
                    let n = if form == Form::Inverse { (1.0 / x).round() } else { *x };
                    let back = if form == Form::Inverse { 1.0 / n } else { n.round() };
                    (back == *x && n.abs() < 1e15).then_some(n as i64)
                };
                let whole: Option<Vec<i64>> = numbers.iter().map(whole).collect();
                if let Some(formula) = whole.and_then(|numbers| fit(&numbers, sizes, monomials)) {
                    return Ok(Arg::Size { formula, form });
                }
            }
            Err("a real number depends on the sizes".into())
        }
        Arg::Null | Arg::Bool(_) | Arg::Str(_) | Arg::Size { .. } => {
            Err("the sizes decide which steps there are".into())
        }
    }
}

/// The formula of fewest terms that gives all of these numbers: `c·m`, `c·m + d`, or `c·m + c'·m' + d` with enough recordings.
fn fit(numbers: &[i64], sizes: &[&[usize]], monomials: &[Monomial]) -> Option<Polynomial> {
    let value = |m: &Monomial, at: usize| {
        let of = Polynomial { terms: vec![(1, m.clone())] };
        of.at(sizes[at])
    };
    let holds = |formula: &Polynomial| numbers.iter().zip(sizes).all(|(n, sizes)| formula.at(sizes) == Some(*n));
    let table = |m: &Monomial| (0..numbers.len()).map(|at| value(m, at)).collect::<Option<Vec<i64>>>();
    let tables = monomials.iter().map(table).collect::<Option<Vec<Vec<i64>>>>()?;
    for (m, table) in monomials.iter().zip(&tables).skip(1) {
        if table[0] != 0 && numbers[0] % table[0] == 0 {
            let formula = Polynomial { terms: vec![(numbers[0] / table[0], m.clone())] };
            if holds(&formula) {
                return Some(formula);
            }
        }
    }
    for (m, table) in monomials.iter().zip(&tables).skip(1) {
        let Some(other) = table.iter().position(|n| *n != table[0]) else { continue };
        let (run, rise) = (table[other] - table[0], numbers[other].checked_sub(numbers[0])?);
        if rise % run == 0 {
            let factor = rise / run;
            let rest = numbers[0].checked_sub(factor.checked_mul(table[0])?)?;
            let formula = Polynomial { terms: vec![(factor, m.clone()), (rest, Monomial::new())] };
            if holds(&formula) {
                return Some(formula);
            }
        }
    }
    if numbers.len() < 5 {
        return None;
    }
    for (i, (m, a)) in monomials.iter().zip(&tables).enumerate().skip(1) {
        for (k, b) in monomials.iter().zip(&tables).skip(i + 1) {
            if let Some((x, y, rest)) = solved(numbers, a, b) {
                let terms = vec![(x, m.clone()), (y, k.clone()), (rest, Monomial::new())];
                let formula = Polynomial { terms };
                if holds(&formula) {
                    return Some(formula);
                }
            }
        }
    }
    None
}

/// `x`, `y` and `d` of `n = x·a + y·b + d`, from the first three numbers that say so.
fn solved(n: &[i64], a: &[i64], b: &[i64]) -> Option<(i64, i64, i64)> {
    for j in 1..n.len() {
        for k in j + 1..n.len() {
            let (a1, b1, n1) = (a[j] - a[0], b[j] - b[0], n[j].checked_sub(n[0])?);
            let (a2, b2, n2) = (a[k] - a[0], b[k] - b[0], n[k].checked_sub(n[0])?);
            let det = i128::from(a1) * i128::from(b2) - i128::from(a2) * i128::from(b1);
            if det == 0 {
                continue;
            }
            let x = i128::from(n1) * i128::from(b2) - i128::from(n2) * i128::from(b1);
            let y = i128::from(a1) * i128::from(n2) - i128::from(a2) * i128::from(n1);
            if x % det != 0 || y % det != 0 {
                return None;
            }
            let (x, y) = (i64::try_from(x / det).ok()?, i64::try_from(y / det).ok()?);
            let rest = n[0].checked_sub(x.checked_mul(a[0])?)?.checked_sub(y.checked_mul(b[0])?)?;
            return Some((x, y, rest));
        }
    }
    None
}

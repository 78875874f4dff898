//! Optimizer steps: the new values of all parameters and of their state, in one graph and one evaluation.
//!
//! Depends on `array`, `align`, `convert` and mlx-ffi, and on `optim` for the formulas. 16-bit floats are computed with in
//! float32, as on the CPU. Invariant: nothing is written before all is recorded.

use super::align::align;
use super::array::GpuArray;
use super::convert::{constant, dtype, int};
use super::custom_kernel::{self, Text};
use super::host_kernel;
use super::kernel_error::{Fault, Made};
use super::lazy;
use super::value::{Perm, Value};
use crate::{DType, Error};
use lucid_cpu::{CpuArray, CpuBackend};
use lucid_ir::backend::Backend;
use lucid_ir::optim::algebra::Algebra;
use lucid_ir::optim::rules::{Rule, Visit};
use lucid_ir::optim::Step;
use mlx_ffi::{ops, transforms, Array};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::fmt;

/// The arrays of one parameter, all in one order of axes.
type Slots = SmallVec<[Array; 5]>;

pub(super) fn steps(batches: &[(Step, Vec<Vec<&GpuArray>>)]) -> Made<()> {
    let mut results = Vec::new();
    for (step, lists) in batches {
        let mut together = Vec::new();
        for list in lists {
            if list.len() != step.arity() {
                let why = format!("{} does not take {} arrays per parameter", step.name(), list.len());
                return Err(Error::runtime("step", why).into());
            }
            let (slots, perm, element) = open(list)?;
            if fits_kernel(&slots) || fits_host(&slots) {
                together.push((list, slots, perm, element));
                continue;
            }
            let wide = if element.is_half() { DType::F32 } else { element };
            results.push((list, step.visit(One { slots, graph: Graph(wide) })?, perm, element));
        }
        if together.is_empty() {
            continue;
        }
        if host_kernel::takes(DType::F32) {
            let new = by_host(step, &together.iter().map(|(_, slots, ..)| slots).collect::<Vec<_>>())?;
            results.extend(
                together.into_iter().zip(new).map(|((list, _, perm, element), new)| (list, new, perm, element)),
            );
            continue;
        }
        let formula = Formula::of(step, custom_kernel::apart())?;
        for some in bunches(&together, step.arity(), formula.own()) {
            let new = at_once(step, &formula, &some.iter().map(|(_, slots, ..)| slots).collect::<Vec<_>>())?;
            results.extend(
                some.iter().zip(new).map(|((list, _, perm, element), new)| (*list, new, perm.clone(), *element)),
            );
        }
    }
    let mut fresh: Vec<Array> = Vec::new();
    for (list, new, perm, element) in results {
        let narrow = dtype(element)?;
        // The gradient, second in the list, stays as it is.
        let targets = list.iter().enumerate().filter(|(i, _)| *i != 1).map(|(_, t)| t);
        for (target, array) in targets.zip(new) {
            // Halves were computed with in float32, by kernels and primitives alike.
            let array = if array.dtype() == narrow { array } else { ops::astype(&array, narrow)? };
            fresh.push(array.clone());
            target.replace(Value::new(array, perm.clone()))?;
        }
    }
    transforms::async_eval(&fresh.iter().collect::<Vec<_>>())?;
    lazy::settle(false);
    Ok(())
}

fn open(list: &[&GpuArray]) -> Made<(Slots, Option<Perm>, DType)> {
    let Some(first) = list.first() else {
        return Err(Error::runtime("step", "a parameter without arrays").into());
    };
    let element = first.element();
    let held = list.iter().map(|t| t.value()).collect::<Made<SmallVec<[_; 5]>>>()?;
    let values: SmallVec<[&Value; 5]> = held.iter().map(|v| &**v).collect();
    let (arrays, perm) = align(&values, first.ndim())?;
    let wide = |a: Array| if element.is_half() { ops::astype(&a, mlx_ffi::Dtype::Float32) } else { Ok(a) };
    let slots = arrays.into_iter().map(|a| Ok(wide(a.into_owned())?)).collect::<Made<_>>()?;
    Ok((slots, perm, element))
}

/// May a kernel of our own step this parameter? It takes float32 and counts with 32 bits.
fn fits_kernel(slots: &Slots) -> bool {
    let size = slots.first().map_or(0, Array::size);
    let fits = |a: &Array| a.dtype() == mlx_ffi::Dtype::Float32 && a.size() == size;
    (1..1 << 26).contains(&size) && slots.iter().all(fits) && custom_kernel::room().is_some()
}

/// May the CPU device's kernel step this parameter?
fn fits_host(slots: &Slots) -> bool {
    let shape = slots.first().map_or(&[][..], Array::shape);
    let fits = |a: &Array| a.dtype() == mlx_ffi::Dtype::Float32 && a.shape() == shape;
    host_kernel::takes(DType::F32) && !shape.contains(&0) && slots.iter().all(fits)
}

/// The new values of all parameters and of their state, by one node of MLX's CPU stream.
fn by_host(step: &Step, all: &[&Slots]) -> Made<Vec<Slots>> {
    let (arity, inputs) = (step.arity(), all.iter().flat_map(|slots| slots.iter()).collect::<Vec<_>>());
    let dtypes = inputs.iter().map(|_| DType::F32).collect();
    let outputs = all.iter().flat_map(|slots| slots.iter().skip(1));
    let outputs: Vec<_> = outputs.map(|a| (a.shape(), mlx_ffi::Dtype::Float32)).collect();
    let step = *step;
    let made = host_kernel::nodes(c"LucidStep", &inputs, dtypes, &outputs, move |x| {
        // All but the gradients, second of each, are written: into copies, since MLX's arrays do not change.
        let kept = |(i, x): (usize, &&CpuArray)| if i % arity == 1 { Ok((*x).clone()) } else { CpuBackend::copy(x) };
        let slots = x.iter().enumerate().map(kept).collect::<crate::Result<Vec<CpuArray>>>()?;
        let lists = slots.chunks(arity).map(|list| list.iter().collect()).collect();
        CpuBackend::steps(&[(step, lists)])?;
        Ok(slots.into_iter().enumerate().filter(|(i, _)| i % arity != 1).map(|(_, new)| new).collect())
    })?;
    Ok(made.chunks(arity - 1).map(|new| new.iter().cloned().collect()).collect())
}

/// Parameters to step by one launch each: as many as it has room for with their gradients, state and results, in powers
/// of two, so that few kernels serve all numbers of parameters. `own` inputs are the step's.
fn bunches<T>(mut all: &[T], arity: usize, own: usize) -> Vec<&[T]> {
    let most = custom_kernel::room().map_or(1, |room| room.saturating_sub(own) / (2 * arity - 1)).clamp(1, 16);
    let mut made = Vec::new();
    while !all.is_empty() {
        let (some, rest) = all.split_at(1 << all.len().min(most).ilog2());
        made.push(some);
        all = rest;
    }
    made
}

/// The new values of several parameters and of their state, by one kernel.
fn at_once(step: &Step, formula: &Formula, all: &[&Slots]) -> Made<Vec<Slots>> {
    let mut total = 0;
    let ends: Vec<i64> = all
        .iter()
        .map(|slots| {
            total += slots[0].size();
            Ok(i64::from(int(total)?))
        })
        .collect::<Made<_>>()?;
    let mut own = vec![custom_kernel::numbers(&ends)?];
    own.extend(formula.constants()?);
    // Metal hands single numbers over in another way.
    let at_least_1d = |a: &Array| if a.ndim() == 0 { ops::reshape(a, &[1]) } else { Ok(a.clone()) };
    let slots = all.iter().flat_map(|slots| slots.iter().map(at_least_1d)).collect::<mlx_ffi::Result<Vec<_>>>()?;
    let inputs: Vec<&Array> = own.iter().chain(&slots).collect();
    let shapes: Vec<&[i32]> = all.iter().flat_map(|slots| slots.iter().skip(1).map(Array::shape)).collect();
    let made = custom_kernel::launch(&formula.key(all.len()), || formula.text(all.len()), &inputs, &shapes, total)?;
    Ok(made.chunks(step.arity() - 1).map(|new| new.iter().cloned().collect()).collect())
}

/// A step's formula as the lines of a kernel, with the names of its results, and the constants that it takes.
pub(super) struct Formula {
    lines: String,
    results: Vec<String>,
    loaded: usize,
    pub(super) constants: Vec<f32>,
    /// Is each constant an input of its own?
    apart: bool,
}

impl Formula {
    pub(super) fn of(step: &Step, apart: bool) -> Made<Formula> {
        let script = Script { apart, ..Script::default() };
        let results = step.visit(Write { script: &script, loaded: step.arity() })?;
        let (lines, constants) = (script.lines.into_inner(), script.constants.into_inner());
        Ok(Formula { lines, results, loaded: step.arity(), constants, apart })
    }

    /// What tells this kernel from others: all that its text is made of. Rules may share their lines and differ in what
    /// they load and keep, as SGD does with momentum and at its first step.
    pub(super) fn key(&self, count: usize) -> String {
        format!("{count} {} {} {}", self.loaded, self.results.join(" "), self.lines)
    }

    /// The kernel for so many parameters.
    pub(super) fn text(&self, count: usize) -> Text {
        let constants = match self.apart {
            true => (0..self.constants.len()).map(|k| format!("c{k}")).collect(),
            false => vec!["c".into()],
        };
        custom_kernel::step(count, self.loaded, constants, &self.lines, &self.results)
    }

    /// How many inputs are not the parameters'.
    fn own(&self) -> usize {
        1 + if self.apart { self.constants.len() } else { 1 }
    }

    /// The constants as arrays of at least one element.
    fn constants(&self) -> Made<Vec<Array>> {
        if self.apart {
            let one = |&c: &f32| Ok(ops::reshape(&constant(f64::from(c), DType::F32)?, &[1])?);
            return self.constants.iter().map(one).collect();
        }
        Ok(vec![match self.constants.len() {
            0 => Array::from_slice(&[0.0f32], &[1])?,
            n => Array::from_slice(&self.constants, &[int(n)?])?,
        }])
    }
}

/// Writes a rule as the text of a kernel: its results, as names of variables.
struct Write<'a> {
    script: &'a Script,
    /// Variables that hold the parameter, the gradient and the state.
    loaded: usize,
}

impl Visit for Write<'_> {
    type Out = Made<Vec<String>>;

    fn rule<R: Rule, const S: usize>(self, rule: R) -> Made<Vec<String>> {
        let name = |k: usize| format!("x{k}");
        let mut state: Vec<String> = (2..self.loaded).map(name).collect();
        let p = rule.update(self.script, name(0), name(1), &mut state)?;
        state.insert(0, p);
        Ok(state)
    }
}

/// Lines of a kernel that compute one element; values are names of variables, constants go into a table.
#[derive(Default)]
struct Script {
    lines: RefCell<String>,
    constants: RefCell<Vec<f32>>,
    variables: Cell<usize>,
    /// Is each constant an input of its own?
    apart: bool,
}

impl Script {
    fn line(&self, expression: fmt::Arguments<'_>) -> Made<String> {
        let name = format!("v{}", self.variables.replace(self.variables.get() + 1));
        self.lines.borrow_mut().push_str(&format!("float {name} = {expression};\n"));
        Ok(name)
    }

    fn constant(&self, c: f64) -> String {
        let mut constants = self.constants.borrow_mut();
        constants.push(c as f32);
        let at = constants.len() - 1;
        if self.apart {
            format!("c{at}[0]")
        } else {
            format!("c[{at}]")
        }
    }
}

impl Algebra for Script {
    type V = String;
    type E = Fault;

    fn add(&self, a: &String, b: &String) -> Made<String> {
        self.line(format_args!("{a} + {b}"))
    }
    fn sub(&self, a: &String, b: &String) -> Made<String> {
        self.line(format_args!("{a} - {b}"))
    }
    fn mul(&self, a: &String, b: &String) -> Made<String> {
        self.line(format_args!("{a} * {b}"))
    }
    fn div(&self, a: &String, b: &String) -> Made<String> {
        self.line(format_args!("{a} / {b}"))
    }
    fn max(&self, a: &String, b: &String) -> Made<String> {
        self.line(format_args!("{a} > {b} || {a} != {a} ? {a} : {b}"))
    }
    fn times(&self, a: &String, c: f64) -> Made<String> {
        match c {
            1.0 => Ok(a.clone()),
            -1.0 => self.neg(a),
            c => self.line(format_args!("{a} * {}", self.constant(c))),
        }
    }
    fn plus(&self, a: &String, c: f64) -> Made<String> {
        match c {
            0.0 => Ok(a.clone()),
            c => self.line(format_args!("{a} + {}", self.constant(c))),
        }
    }
    fn neg(&self, a: &String) -> Made<String> {
        self.line(format_args!("-{a}"))
    }
    fn abs(&self, a: &String) -> Made<String> {
        self.line(format_args!("{a} < 0.0f ? -{a} : {a}"))
    }
    fn sqrt(&self, a: &String) -> Made<String> {
        self.line(format_args!("sqrt({a})"))
    }
    fn square(&self, a: &String) -> Made<String> {
        self.line(format_args!("{a} * {a}"))
    }
    fn sign(&self, a: &String) -> Made<String> {
        self.line(format_args!("{a} > 0.0f ? 1.0f : ({a} < 0.0f ? -1.0f : 0.0f)"))
    }
    fn clamp(&self, a: &String, low: f64, high: f64) -> Made<String> {
        let (low, high) = (self.constant(low), self.constant(high));
        self.line(format_args!("{a} < {low} ? {low} : ({a} > {high} ? {high} : {a})"))
    }
    fn by_sign(&self, s: &String, below: f64, above: f64) -> Made<String> {
        let (below, above) = (self.constant(below), self.constant(above));
        self.line(format_args!("{s} < 0.0f ? {below} : ({s} > 0.0f ? {above} : 1.0f)"))
    }
    fn unless_negative(&self, s: &String, a: &String) -> Made<String> {
        self.line(format_args!("{s} < 0.0f ? 0.0f : {a}"))
    }
}

/// A parameter with its gradient and state, to be stepped.
struct One {
    slots: Slots,
    graph: Graph,
}

impl Visit for One {
    type Out = Made<Slots>;

    fn rule<R: Rule, const S: usize>(self, rule: R) -> Made<Slots> {
        let [p, g, state @ ..] = self.slots.as_slice() else {
            return Err(Error::runtime("step", "a parameter without a gradient").into());
        };
        let mut state: Slots = state.iter().cloned().collect();
        let p = rule.update(&self.graph, p.clone(), g.clone(), &mut state)?;
        state.insert(0, p);
        Ok(state)
    }
}

/// MLX's lazy arrays, with constants of one dtype.
struct Graph(DType);

impl Algebra for Graph {
    type V = Array;
    type E = Fault;

    fn add(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::add(a, b)?)
    }
    fn sub(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::subtract(a, b)?)
    }
    fn mul(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::multiply(a, b)?)
    }
    fn div(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::divide(a, b)?)
    }
    fn max(&self, a: &Array, b: &Array) -> Made<Array> {
        Ok(ops::maximum(a, b)?)
    }
    fn times(&self, a: &Array, c: f64) -> Made<Array> {
        match c {
            1.0 => Ok(a.clone()),
            -1.0 => Ok(ops::negative(a)?),
            c => Ok(ops::multiply(a, &constant(c, self.0)?)?),
        }
    }
    fn plus(&self, a: &Array, c: f64) -> Made<Array> {
        match c {
            0.0 => Ok(a.clone()),
            c => Ok(ops::add(a, &constant(c, self.0)?)?),
        }
    }
    fn neg(&self, a: &Array) -> Made<Array> {
        Ok(ops::negative(a)?)
    }
    fn abs(&self, a: &Array) -> Made<Array> {
        Ok(ops::abs(a)?)
    }
    fn sqrt(&self, a: &Array) -> Made<Array> {
        Ok(ops::sqrt(a)?)
    }
    fn square(&self, a: &Array) -> Made<Array> {
        Ok(ops::square(a)?)
    }
    fn sign(&self, a: &Array) -> Made<Array> {
        Ok(ops::sign(a)?)
    }
    fn clamp(&self, a: &Array, low: f64, high: f64) -> Made<Array> {
        Ok(ops::minimum(&ops::maximum(a, &constant(low, self.0)?)?, &constant(high, self.0)?)?)
    }
    fn by_sign(&self, s: &Array, below: f64, above: f64) -> Made<Array> {
        let zero = constant(0.0, self.0)?;
        let rest = ops::where_(&ops::greater(s, &zero)?, &constant(above, self.0)?, &constant(1.0, self.0)?)?;
        Ok(ops::where_(&ops::less(s, &zero)?, &constant(below, self.0)?, &rest)?)
    }
    fn unless_negative(&self, s: &Array, a: &Array) -> Made<Array> {
        let zero = constant(0.0, self.0)?;
        Ok(ops::where_(&ops::less(s, &zero)?, &zero, a)?)
    }
}

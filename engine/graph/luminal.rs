//! Static graphs as Luminal writes them: nothing is computed before `execute`, and shapes are checked by the compiler.
//!
//! A [`Graph`] collects what is done to its tensors; [`Graph::compile`] records that over tensors without memory as a
//! [`super::Graph`], rewrites it by passes that compose as tuples, and [`Graph::execute`] runs it. Shapes are types:
//! [`R2<3, 1>`](R2) is a matrix of 3 rows and 1 column, [`Dyn`] is checked when it is built. What goes wrong while building
//! is the error of `compile` or `execute`.
//!
//! ```
//! use lucid::graph::luminal::*;
//! // Setup graph and tensors
//! let mut cx = Graph::new();
//! let a = cx.tensor().set([[1.0], [2.0], [3.0]]);
//! let b = cx.tensor().set([[1.0, 2.0, 3.0, 4.0]]);
//! // Do math...
//! let mut c = a.matmul(b).retrieve();
//! // Compile and run graph
//! cx.compile(<(GenericCompiler, CPUCompiler)>::default(), &mut c)?;
//! cx.execute()?;
//! // Get result
//! println!("Result: {:?}", c);
//! assert_eq!(c.data()?, [1.0, 2.0, 3.0, 4.0, 2.0, 4.0, 6.0, 8.0, 3.0, 6.0, 9.0, 12.0]);
//! assert!(cx.display().contains("matmul"));
//! # lucid::Result::<()>::Ok(())
//! ```
//!
//! Shapes that do not fit are errors of the compiler:
//!
//! ```compile_fail
//! use lucid::graph::luminal::*;
//! let mut cx = Graph::new();
//! let (a, b) = (cx.tensor::<R2<3, 1>>(), cx.tensor::<R2<2, 4>>());
//! a.matmul(b);
//! ```

use super::passes::{Pass, Passes, Standard};
use super::{Program, Recorder};
use crate::dispatch::{self, Prim};
use crate::tensor::signed;
use crate::{DType, Device, Error, Result, Tensor};
use lucid_ir::ops::create::CreateOp;
use lucid_ir::Meta;
use parking_lot::Mutex;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A shape as a type.
pub trait Shape: Clone + 'static {
    /// The sizes, where the type says them.
    fn sizes() -> Option<Vec<usize>>;
}

/// A shape that is known when the graph is built.
#[derive(Clone, Copy, Debug)]
pub struct Dyn;

impl Shape for Dyn {
    fn sizes() -> Option<Vec<usize>> {
        None
    }
}

macro_rules! shapes {
    ($($(#[$doc:meta])* $name:ident<$($n:ident),*>;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<$(const $n: usize),*>;

        impl<$(const $n: usize),*> Shape for $name<$($n),*> {
            fn sizes() -> Option<Vec<usize>> {
                Some(vec![$($n),*])
            }
        }
    )*};
}
shapes! {
    /// A number.
    R0<>;
    /// A vector.
    R1<A>;
    /// A matrix.
    R2<A, B>;
    /// A batch of matrices.
    R3<A, B, C>;
    /// Images.
    R4<A, B, C, D>;
}

/// Numbers that a tensor is set to, with their shape.
pub trait Data {
    /// Their shape.
    type Shape: Shape;
    /// The numbers in row-major order, and the sizes.
    fn flat(self) -> (Vec<f32>, Vec<usize>);
}

/// A number that tensors are set to.
pub trait Number: Copy {
    /// As float32.
    fn single(self) -> f32;
}

impl Number for f32 {
    fn single(self) -> f32 {
        self
    }
}

impl Number for f64 {
    fn single(self) -> f32 {
        self as f32
    }
}

impl<T: Number, const A: usize> Data for [T; A] {
    type Shape = R1<A>;
    fn flat(self) -> (Vec<f32>, Vec<usize>) {
        (self.iter().map(|x| x.single()).collect(), vec![A])
    }
}

impl<T: Number, const A: usize, const B: usize> Data for [[T; B]; A] {
    type Shape = R2<A, B>;
    fn flat(self) -> (Vec<f32>, Vec<usize>) {
        (self.iter().flatten().map(|x| x.single()).collect(), vec![A, B])
    }
}

impl<T: Number, const A: usize, const B: usize, const C: usize> Data for [[[T; C]; B]; A] {
    type Shape = R3<A, B, C>;
    fn flat(self) -> (Vec<f32>, Vec<usize>) {
        (self.iter().flatten().flatten().map(|x| x.single()).collect(), vec![A, B, C])
    }
}

impl<T: Number> Data for (Vec<T>, Vec<usize>) {
    type Shape = Dyn;
    fn flat(self) -> (Vec<f32>, Vec<usize>) {
        (self.0.iter().map(|x| x.single()).collect(), self.1)
    }
}

type Function = Box<dyn Fn(&[Tensor]) -> Result<Tensor> + Send + Sync>;

struct Node {
    inputs: Vec<usize>,
    /// `None` for tensors that are set.
    function: Option<Function>,
    /// The result without memory, or what is wrong with it.
    hollow: std::result::Result<Tensor, String>,
    data: Option<Tensor>,
    retrieved: bool,
}

#[derive(Default)]
struct Inner {
    nodes: Vec<Node>,
    program: Option<(Arc<Program>, Vec<usize>, Vec<usize>)>,
}

/// A computation that is built, compiled and executed.
#[derive(Clone, Default)]
pub struct Graph(Arc<Mutex<Inner>>);

/// A tensor of a [`Graph`].
pub struct GraphTensor<S: Shape> {
    graph: Graph,
    node: usize,
    shape: PhantomData<fn() -> S>,
}

impl<S: Shape> Clone for GraphTensor<S> {
    fn clone(&self) -> Self {
        GraphTensor { graph: self.graph.clone(), node: self.node, shape: PhantomData }
    }
}

fn hollow(sizes: &[usize]) -> Result<Tensor> {
    let full = Prim::Create(CreateOp::Full { value: 0.0.into() });
    dispatch::create_plain(full, Meta::new(sizes, DType::F32), Device::Meta)
}

fn failed(why: &str) -> Box<Error> {
    Error::runtime("graph", why)
}

impl Graph {
    /// An empty one.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// A tensor that is [`set`](GraphTensor::set) before the graph is executed.
    pub fn tensor<S: Shape>(&mut self) -> GraphTensor<S> {
        let made = match S::sizes() {
            Some(sizes) => hollow(&sizes).map_err(|e| e.to_string()),
            None => Err("a tensor of a dynamic shape has to be set before it is used".to_string()),
        };
        self.push(Node { inputs: Vec::new(), function: None, hollow: made, data: None, retrieved: false })
    }

    fn push<S: Shape>(&self, node: Node) -> GraphTensor<S> {
        let mut inner = self.0.lock();
        inner.program = None;
        inner.nodes.push(node);
        GraphTensor { graph: self.clone(), node: inner.nodes.len() - 1, shape: PhantomData }
    }

    fn apply<S: Shape>(&self, inputs: Vec<usize>, function: Function) -> GraphTensor<S> {
        let held: std::result::Result<Vec<Tensor>, String> = {
            let inner = self.0.lock();
            inputs.iter().map(|&i| inner.nodes[i].hollow.clone()).collect()
        };
        let made = held.and_then(|held| {
            let made = crate::no_grad(|| function(&held)).map_err(|e| e.to_string())?;
            match S::sizes() {
                Some(sizes) if sizes != made.shape() => {
                    Err(format!("the result has sizes {:?}, its type says {sizes:?}", made.shape()))
                }
                Some(_) | None => Ok(made),
            }
        });
        self.push(Node { inputs, function: Some(function), hollow: made, data: None, retrieved: false })
    }

    /// Records the graph for the results that are retrieved, and rewrites it.
    ///
    /// # Errors
    /// What was wrong while it was built, and what a pass reports.
    pub fn compile<P: Passes, S: Shape>(&mut self, passes: P, _result: &mut GraphTensor<S>) -> Result<()> {
        self.build(&passes)
    }

    fn build(&self, passes: &impl Passes) -> Result<()> {
        let mut inner = self.0.lock();
        let mut made: Vec<Option<Tensor>> = Vec::new();
        let (mut given, mut sources) = (Vec::new(), Vec::new());
        for (i, node) in inner.nodes.iter().enumerate() {
            let hollow = node.hollow.as_ref().map_err(|why| failed(why))?;
            if node.function.is_none() {
                sources.push(i);
                given.push(self::hollow(hollow.shape())?);
            }
            made.push(None);
        }
        sources.iter().zip(&given).for_each(|(&i, t)| made[i] = Some(t.clone()));
        let recorder = Recorder::begin(&given, true)?;
        for i in 0..inner.nodes.len() {
            let node = &inner.nodes[i];
            let Some(function) = &node.function else { continue };
            let held = node.inputs.iter().map(|&i| made[i].clone()).collect::<Option<Vec<Tensor>>>();
            let held = held.ok_or_else(|| failed("a tensor is used before it is made"))?;
            made[i] = Some(crate::no_grad(|| function(&held))?);
        }
        let wanted: Vec<usize> = (0..inner.nodes.len()).filter(|&i| inner.nodes[i].retrieved).collect();
        let value = |&i: &usize| made[i].as_ref().and_then(|t| recorder.value_of(t));
        let values = wanted.iter().map(value).collect::<Option<Vec<_>>>();
        let values = values.ok_or_else(|| failed("a result is not computed by the graph"))?;
        let mut graph = recorder.finish()?.graph;
        graph.outputs = values;
        passes.run_all(&mut graph)?;
        graph.place(Device::Cpu)?;
        inner.program = Some((Program::new(graph, &[])?, sources, wanted));
        Ok(())
    }

    /// Runs the graph, compiling it first where it was not.
    ///
    /// # Errors
    /// A tensor that was not set, and what the kernels report.
    pub fn execute(&mut self) -> Result<()> {
        if self.0.lock().program.is_none() {
            self.build(&Standard)?;
        }
        let mut inner = self.0.lock();
        let Some((program, sources, wanted)) = inner.program.clone() else { return Err(failed("it is not compiled")) };
        let device =
            program.graph().inputs.first().map_or(Ok(Device::Cpu), |&v| program.graph().info(v).map(|i| i.device))?;
        let data = |&i: &usize| match &inner.nodes[i].data {
            Some(t) => t.to_device(device),
            None => Err(failed("a tensor of the graph is not set")),
        };
        let given = sources.iter().map(data).collect::<Result<Vec<Tensor>>>()?;
        let mut run = program.begin(&given)?;
        run.run(None)?;
        for (&i, &v) in wanted.iter().zip(&program.graph().outputs) {
            inner.nodes[i].data = Some(run.value(v)?);
        }
        Ok(())
    }

    /// The compiled graph as text, or what is wrong with it.
    pub fn display(&self) -> String {
        self.shown(|graph| graph.to_string())
    }

    /// The compiled graph in Graphviz's language.
    pub fn to_dot(&self) -> String {
        self.shown(super::Graph::to_dot)
    }

    /// The compiled graph as a picture.
    pub fn to_svg(&self) -> String {
        self.shown(super::Graph::to_svg)
    }

    fn shown(&self, show: impl Fn(&super::Graph) -> String) -> String {
        if self.0.lock().program.is_none() {
            if let Err(error) = self.build(&()) {
                return error.to_string();
            }
        }
        self.0.lock().program.as_ref().map_or_else(String::new, |(program, ..)| show(program.graph()))
    }
}

impl<S: Shape> GraphTensor<S> {
    /// Gives it numbers.
    #[must_use]
    pub fn set<D: Data<Shape = S>>(self, data: D) -> GraphTensor<S> {
        let (numbers, sizes) = data.flat();
        let made = Tensor::of_elements(&numbers, &sizes, Device::Cpu);
        let mut inner = self.graph.0.lock();
        let node = &mut inner.nodes[self.node];
        match made.and_then(|t| Ok((hollow(&sizes)?, t))) {
            Ok((hollow, t)) => (node.hollow, node.data) = (Ok(hollow), Some(t)),
            Err(error) => node.hollow = Err(error.to_string()),
        }
        drop(inner);
        self
    }

    /// Has its numbers kept when the graph is executed.
    #[must_use]
    pub fn retrieve(self) -> GraphTensor<S> {
        let mut inner = self.graph.0.lock();
        inner.nodes[self.node].retrieved = true;
        inner.program = None;
        drop(inner);
        self
    }

    /// Its numbers, after the graph was executed.
    ///
    /// # Errors
    /// Where it was not retrieved or not computed yet.
    pub fn data(&self) -> Result<Vec<f32>> {
        let t = self.graph.0.lock().nodes[self.node].data.clone();
        t.ok_or_else(|| failed("the tensor was not retrieved, or the graph not executed"))?.contiguous()?.to_vec()
    }

    /// Its shape as one that is known when the graph is built.
    pub fn dynamic(&self) -> GraphTensor<Dyn> {
        GraphTensor { graph: self.graph.clone(), node: self.node, shape: PhantomData }
    }

    fn with<R: Shape>(&self, f: impl Fn(&Tensor) -> Result<Tensor> + Send + Sync + 'static) -> GraphTensor<R> {
        self.graph.apply(vec![self.node], Box::new(move |x| f(&x[0])))
    }

    fn both<T: Shape, R: Shape>(
        &self,
        other: &GraphTensor<T>,
        f: impl Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync + 'static,
    ) -> GraphTensor<R> {
        if !Arc::ptr_eq(&self.graph.0, &other.graph.0) {
            let fail = |_: &[Tensor]| Err(failed("two tensors of different graphs"));
            return self.graph.apply(vec![self.node], Box::new(fail));
        }
        self.graph.apply(vec![self.node, other.node], Box::new(move |x| f(&x[0], &x[1])))
    }

    /// The same numbers in another shape of as many.
    pub fn reshape<R: Shape>(self, sizes: &[usize]) -> GraphTensor<R> {
        let sizes = R::sizes().unwrap_or_else(|| sizes.to_vec());
        self.with(move |x| x.reshape(&signed(&sizes)))
    }

    /// The sum over a dimension; `R` is the shape without it.
    pub fn sum_reduce<R: Shape>(self, axis: usize) -> GraphTensor<R> {
        self.with(move |x| x.sum(Some(&[axis as isize]), false, None))
    }

    /// The largest number over a dimension; `R` is the shape without it.
    pub fn max_reduce<R: Shape>(self, axis: usize) -> GraphTensor<R> {
        self.with(move |x| x.amax(Some(&[axis as isize]), false))
    }

    /// Softmax over a dimension.
    #[must_use]
    pub fn softmax(self, axis: usize) -> GraphTensor<S> {
        self.with(move |x| x.softmax(axis as isize, None))
    }

    /// The numbers modulo those of another tensor.
    #[must_use]
    pub fn modulo(self, other: GraphTensor<S>) -> GraphTensor<S> {
        self.both(&other, |a, b| a.remainder(b))
    }

    /// 1 where the number is less than that of another tensor, else 0.
    #[must_use]
    pub fn less_than(self, other: GraphTensor<S>) -> GraphTensor<S> {
        self.both(&other, |a, b| a.lt(b)?.cast(DType::F32))
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident |$x:ident| $body:expr;)*) => {
        impl<S: Shape> GraphTensor<S> {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(self) -> GraphTensor<S> {
                self.with(|$x| $body)
            })*
        }
    };
}
unary! {
    /// The logarithm to base 2.
    log2 |x| x.log2();
    /// 2 to the power of each number.
    exp2 |x| x.exp2();
    /// e to the power of each number.
    exp |x| x.exp();
    /// The sine.
    sin |x| x.sin();
    /// The square root.
    sqrt |x| x.sqrt();
    /// One divided by each number.
    recip |x| x.reciprocal();
    /// The positive part.
    relu |x| x.relu();
    /// The logistic function.
    sigmoid |x| x.sigmoid();
    /// The hyperbolic tangent.
    tanh |x| x.tanh();
    /// A row-major copy.
    contiguous |x| x.copy();
}

macro_rules! operators {
    ($($Trait:ident $method:ident $sign:tt;)*) => {$(
        impl<S: Shape> std::ops::$Trait for GraphTensor<S> {
            type Output = GraphTensor<S>;
            fn $method(self, other: GraphTensor<S>) -> GraphTensor<S> {
                self.both(&other, |a, b| a $sign b)
            }
        }

        impl<S: Shape> std::ops::$Trait<f32> for GraphTensor<S> {
            type Output = GraphTensor<S>;
            fn $method(self, other: f32) -> GraphTensor<S> {
                self.with(move |a| a $sign f64::from(other))
            }
        }
    )*};
}
operators! {
    Add add +;
    Sub sub -;
    Mul mul *;
    Div div /;
}

impl<const M: usize, const K: usize> GraphTensor<R2<M, K>> {
    /// The product of matrices.
    pub fn matmul<const N: usize>(self, other: GraphTensor<R2<K, N>>) -> GraphTensor<R2<M, N>> {
        self.both(&other, |a, b| a.matmul(b))
    }

    /// Rows as columns.
    pub fn transpose(self) -> GraphTensor<R2<K, M>> {
        self.with(|x| x.transpose(0, 1))
    }
}

impl<const B: usize, const M: usize, const K: usize> GraphTensor<R3<B, M, K>> {
    /// The products of matrices of a batch.
    pub fn matmul<const N: usize>(self, other: GraphTensor<R3<B, K, N>>) -> GraphTensor<R3<B, M, N>> {
        self.both(&other, |a, b| a.matmul(b))
    }
}

impl GraphTensor<Dyn> {
    /// The product of matrices; sizes are checked when it is built.
    #[must_use]
    pub fn matmul(self, other: GraphTensor<Dyn>) -> GraphTensor<Dyn> {
        self.both(&other, |a, b| a.matmul(b))
    }
}

impl<S: Shape> fmt::Debug for GraphTensor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.data() {
            Ok(data) => write!(f, "{data:?}"),
            Err(_) => f.write_str("(not computed)"),
        }
    }
}

/// Removes, folds and computes once: what holds on every device.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenericCompiler;

impl Pass for GenericCompiler {
    fn name(&self) -> &'static str {
        "generic"
    }

    fn run(&self, graph: &mut super::Graph) -> Result<usize> {
        Ok(Standard.run_all(graph)?.into_iter().map(|(_, changed)| changed).sum())
    }
}

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident $device:ident $text:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name;

        impl Pass for $name {
            fn name(&self) -> &'static str {
                $text
            }

            fn run(&self, graph: &mut super::Graph) -> Result<usize> {
                let placed = graph.infos.iter().filter(|info| info.device == Device::Meta).count();
                graph.place(Device::$device)?;
                Ok(placed)
            }
        }
    )*};
}
places! {
    /// Has the graph run on the cpu.
    CPUCompiler Cpu "cpu";
    /// Has the graph run on the GPU device.
    MetalCompiler Gpu "metal";
    /// Has the graph run on the GPU device.
    CudaCompiler Gpu "cuda";
}

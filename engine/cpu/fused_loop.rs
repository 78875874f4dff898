//! Fused element-wise kernels: an interpreter that runs the ops' own loops over blocks that stay in the first cache level.
//!
//! Depends on `elementwise`, `compare`, `strided` and `simd`. Inputs are read where they are, block by block; what only the
//! kernel itself needs is in registers, blocks of scratch memory that results share by turns. 16-bit floats are widened when they
//! are read, and each result is rounded. Invariant: each instruction runs the loop that the op runs by itself, so that results
//! are the same bits.

use super::compare::{choose, of_floats, of_truths};
use super::element_fn;
use super::elementwise::{Slices1, Slices2};
use super::fallible::scratch;
use super::simd::{call1, threads, Arg, Math, Real, Wide};
use super::strided::{Cursor, Source};
use super::{Buffer, CpuArray, ReadGuard};
use crate::shape::{Layout, Shape};
use crate::{DType, Result};
use half::{bf16, f16};
use lucid_ir::fused::{ElementOp, FusedKernel, Operand, Place};
use lucid_ir::ops::nn::ElementFn;
use lucid_ir::ops::unary::UnaryOp;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::cell::RefCell;
use std::sync::Arc;

/// Elements of a block, and of one where many blocks are in use at once: together they fill half of the first cache level.
const BLOCK: usize = 1024;
const SHORT: usize = 512;
const MANY: usize = 8;

/// The loop of an instruction.
#[derive(Clone, Copy)]
enum Kernel {
    Float1(Slices1),
    Float2(Slices2),
    GeluGradient(bool),
    Curve(ElementFn, [f64; 3]),
    CurveGradient(ElementFn, [f64; 3]),
    CompareFloats(Comparison<f32>),
    CompareTruths(Comparison<bool>),
    Not,
    Where,
    FromTruth,
    /// What is rounded is all that changes.
    Round,
}

/// A loop that compares.
type Comparison<T> = fn(Arg<T>, Arg<T>, &mut [bool]);

impl Kernel {
    fn of(op: &ElementOp, inputs: &[DType], out: DType) -> Option<Kernel> {
        use DType::{Bool, F32};
        let (inputs, out) = op.in_float32(inputs, out)?;
        match (op, &inputs[..], out) {
            (ElementOp::Unary(UnaryOp::LogicalNot), [Bool], Bool) => Some(Kernel::Not),
            (ElementOp::Unary(op), [F32], F32) => Slices1::of(op).map(Kernel::Float1),
            (ElementOp::Binary(op), [F32, F32], F32) => Slices2::of(op).map(Kernel::Float2),
            (ElementOp::Compare(op), [F32, F32], Bool) => of_floats(op).map(Kernel::CompareFloats),
            (ElementOp::Compare(op), [Bool, Bool], Bool) => of_truths(op).map(Kernel::CompareTruths),
            (ElementOp::Where, [Bool, F32, F32], F32) => Some(Kernel::Where),
            (ElementOp::Cast, [Bool], F32) => Some(Kernel::FromTruth),
            (ElementOp::Cast, [F32], F32) => Some(Kernel::Round),
            (ElementOp::Gelu { tanh }, [F32], F32) => {
                let op = if *tanh { Math::GeluTanh } else { Math::Gelu };
                Some(Kernel::Float1(Slices1::Math(op)))
            }
            (ElementOp::GeluGradient { tanh }, [F32, F32], F32) => Some(Kernel::GeluGradient(*tanh)),
            (ElementOp::Curve(f, numbers), [F32], F32) => Some(Kernel::Curve(*f, *numbers)),
            (ElementOp::CurveGradient(f, numbers), [F32, F32], F32) => Some(Kernel::CurveGradient(*f, *numbers)),
            (
                ElementOp::Unary(_)
                | ElementOp::Binary(_)
                | ElementOp::Compare(_)
                | ElementOp::Where
                | ElementOp::Cast
                | ElementOp::Gelu { .. }
                | ElementOp::GeluGradient { .. }
                | ElementOp::Curve(..)
                | ElementOp::CurveGradient(..),
                _,
                _,
            ) => None,
        }
    }
}

/// Is there a loop for an op of these dtypes?
pub fn fuses(op: &ElementOp, inputs: &[DType], out: DType) -> bool {
    Kernel::of(op, inputs, out).is_some()
}

/// An input's elements.
enum Guard<'a> {
    Floats(ReadGuard<'a, f32>),
    Halves(ReadGuard<'a, f16>),
    Brains(ReadGuard<'a, bf16>),
    Truths(ReadGuard<'a, bool>),
}
enum Input<'a> {
    Floats(Source<'a, f32>),
    Halves(Source<'a, f16>),
    Brains(Source<'a, bf16>),
    Truths(Source<'a, bool>),
}
enum Reader<'a, 's> {
    Floats(Cursor<'a, 's, f32>),
    Halves(Cursor<'a, 's, f16>),
    Brains(Cursor<'a, 's, bf16>),
    Truths(Cursor<'a, 's, bool>),
}
/// A block of an input.
#[derive(Clone, Copy)]
enum Taken<'a> {
    Floats(Arg<'a, f32>),
    Truths(Arg<'a, bool>),
}

/// An output's elements, all or a part of them.
enum Output<'a> {
    Floats(&'a mut [f32]),
    Halves(&'a mut [f16]),
    Brains(&'a mut [bf16]),
    Truths(&'a mut [bool]),
}

impl<'a> Output<'a> {
    fn len(&self) -> usize {
        match self {
            Output::Floats(x) => x.len(),
            Output::Halves(x) => x.len(),
            Output::Brains(x) => x.len(),
            Output::Truths(x) => x.len(),
        }
    }

    fn split(self, at: usize) -> (Output<'a>, Output<'a>) {
        macro_rules! halves {
            ($Kind:ident $x:ident) => {{
                let (head, rest) = $x.split_at_mut(at);
                (Output::$Kind(head), Output::$Kind(rest))
            }};
        }
        match self {
            Output::Floats(x) => halves!(Floats x),
            Output::Halves(x) => halves!(Halves x),
            Output::Brains(x) => halves!(Brains x),
            Output::Truths(x) => halves!(Truths x),
        }
    }

    fn nothing() -> Output<'static> {
        Output::Truths(&mut [])
    }
}

/// The blocks that results share.
#[derive(Default)]
struct Registers {
    floats: Vec<Vec<f32>>,
    truths: Vec<Vec<bool>>,
    /// Of each input of 16-bit floats, what was widened of it.
    widened: Vec<Vec<f32>>,
    /// What a result is rounded to on the way, where it is no output.
    halves: Vec<f16>,
    brains: Vec<bf16>,
}

thread_local! {
    /// Those of the last kernel on this thread.
    static REGISTERS: RefCell<Registers> = RefCell::default();
}

impl Registers {
    /// Those of the thread, as many as a kernel needs.
    fn take(kernel: &FusedKernel) -> Registers {
        let mut registers = REGISTERS.try_with(RefCell::take).unwrap_or_default();
        for &(dtype, count) in &kernel.registers {
            let count = usize::from(count);
            match dtype {
                DType::Bool => {
                    while registers.truths.len() < count {
                        registers.truths.push(scratch(false, BLOCK));
                    }
                }
                _ => {
                    while registers.floats.len() < count {
                        registers.floats.push(scratch(0.0, BLOCK));
                    }
                }
            }
        }
        while registers.widened.len() < kernel.inputs.len() {
            registers.widened.push(scratch(0.0, BLOCK));
        }
        if registers.halves.is_empty() {
            (registers.halves, registers.brains) = (scratch(f16::ZERO, BLOCK), scratch(bf16::ZERO, BLOCK));
        }
        registers
    }

    fn give_back(self) {
        // A thread that is ending keeps nothing.
        let _ = REGISTERS.try_with(|place| place.replace(self));
    }
}

/// The outputs of a fused kernel; nothing where it has an op that there is no loop for.
pub fn fused(kernel: &FusedKernel, inputs: &[&CpuArray]) -> Result<Option<Vec<CpuArray>>> {
    let layout = kernel.layout();
    let order = layout.permuted().map(|(order, _)| order);
    if order.is_none() && !layout.is_contiguous() {
        return Ok(None);
    }
    let mut loops: SmallVec<[Kernel; 16]> = SmallVec::new();
    for instruction in &kernel.instructions {
        let dtypes: SmallVec<[DType; 3]> = instruction.args.iter().filter_map(|&a| kernel.dtype_of(a)).collect();
        match Kernel::of(&instruction.op, &dtypes, instruction.dtype) {
            Some(found) => loops.push(found),
            None => return Ok(None),
        }
    }
    // Elements are walked in the order in which the results have them in memory.
    let permuted = |layout: Layout| match &order {
        Some(order) => layout.permuted_by(order),
        None => layout,
    };
    let shape: Shape = permuted(layout.clone()).shape;
    let seen = |x: &&CpuArray| x.with_layout(permuted(x.layout.broadcast_to(&kernel.shape))).packed();
    let arrays = inputs.iter().map(seen).collect::<Result<SmallVec<[CpuArray; 8]>>>()?;
    let mut guards: SmallVec<[Guard; 8]> = SmallVec::new();
    for x in &arrays {
        match x.dtype {
            DType::Bool => guards.push(Guard::Truths(x.read::<bool>())),
            DType::F32 => guards.push(Guard::Floats(x.read::<f32>())),
            DType::F16 => guards.push(Guard::Halves(x.read::<f16>())),
            DType::BF16 => guards.push(Guard::Brains(x.read::<bf16>())),
            _ => return Ok(None),
        }
    }
    let sources: SmallVec<[Input; 8]> =
        arrays.iter().zip(&guards).map(|(x, guard)| input_of(x, guard, &shape)).collect();
    let total = layout.numel();
    let mut buffers: SmallVec<[Buffer; 4]> = SmallVec::new();
    let dtype_of = |o: &u16| kernel.instructions[usize::from(*o)].dtype;
    for output in &kernel.outputs {
        buffers.push(Buffer::uninit(dtype_of(output), total)?);
    }
    let outputs: SmallVec<[Output; 4]> = buffers
        .iter_mut()
        .map(|buffer| match buffer.dtype() {
            DType::Bool => Output::Truths(buffer.get_mut::<bool>()),
            DType::F16 => Output::Halves(buffer.get_mut::<f16>()),
            DType::BF16 => Output::Brains(buffer.get_mut::<bf16>()),
            _ => Output::Floats(buffer.get_mut::<f32>()),
        })
        .collect();
    run(kernel, &loops, &sources, outputs, total);
    drop(sources);
    drop(guards);
    let made = |(buffer, output): (Buffer, &u16)| CpuArray {
        buffer: Arc::new(buffer),
        layout: layout.clone(),
        dtype: dtype_of(output),
        apart: None,
    };
    Ok(Some(buffers.into_iter().zip(&kernel.outputs).map(made).collect()))
}

fn input_of<'a>(x: &CpuArray, guard: &'a Guard, shape: &[usize]) -> Input<'a> {
    match guard {
        Guard::Floats(guard) => Input::Floats(x.source(guard, shape)),
        Guard::Halves(guard) => Input::Halves(x.source(guard, shape)),
        Guard::Brains(guard) => Input::Brains(x.source(guard, shape)),
        Guard::Truths(guard) => Input::Truths(x.source(guard, shape)),
    }
}

/// Computes all elements, over the pool where there are many.
fn run(kernel: &FusedKernel, loops: &[Kernel], inputs: &[Input], outputs: SmallVec<[Output; 4]>, total: usize) {
    let grain = threads::GRAIN / 4;
    let size = threads::piece_size(total, 64, grain);
    if size >= total {
        return piece(kernel, loops, inputs, 0, outputs);
    }
    // Each piece of the outputs is taken by whoever computes it.
    type Part<'a> = Mutex<Option<SmallVec<[Output<'a>; 4]>>>;
    let mut parts: Vec<Part> = Vec::new();
    let mut rest = outputs;
    while rest.first().is_some_and(|x| x.len() > 0) {
        let (mut heads, mut tails) = (SmallVec::new(), SmallVec::new());
        for output in rest {
            let at = size.min(output.len());
            let (head, tail) = output.split(at);
            heads.push(head);
            tails.push(tail);
        }
        parts.push(Mutex::new(Some(heads)));
        rest = tails;
    }
    threads::each_piece(parts.len(), &|i| {
        if let Some(outputs) = parts[i].lock().take() {
            piece(kernel, loops, inputs, i * size, outputs);
        }
    });
}

/// Computes the elements from `start` on, block by block.
fn piece(kernel: &FusedKernel, loops: &[Kernel], inputs: &[Input], start: usize, mut outputs: SmallVec<[Output; 4]>) {
    let mut readers: SmallVec<[Reader; 8]> = inputs
        .iter()
        .map(|input| match input {
            Input::Floats(x) => Reader::Floats(x.cursor(start)),
            Input::Halves(x) => Reader::Halves(x.cursor(start)),
            Input::Brains(x) => Reader::Brains(x.cursor(start)),
            Input::Truths(x) => Reader::Truths(x.cursor(start)),
        })
        .collect();
    let count = outputs.first().map_or(0, Output::len);
    let many = inputs.len() + outputs.len() + kernel.registers.iter().map(|r| usize::from(r.1)).sum::<usize>();
    let block = if many > MANY { SHORT } else { BLOCK };
    let mut registers = Registers::take(kernel);
    let mut widened = std::mem::take(&mut registers.widened);
    let mut at = 0;
    while at < count {
        let n = block.min(count - at);
        let taken: SmallVec<[Taken; 8]> = readers
            .iter_mut()
            .zip(&mut widened)
            .map(|(reader, room)| match reader {
                Reader::Floats(x) => Taken::Floats(x.take(n)),
                Reader::Halves(x) => Taken::Floats(widen(x.take(n), room)),
                Reader::Brains(x) => Taken::Floats(widen(x.take(n), room)),
                Reader::Truths(x) => Taken::Truths(x.take(n)),
            })
            .collect();
        let steps = kernel.instructions.iter().zip(loops.iter().zip(&kernel.places));
        for (k, (instruction, (kernel_loop, &place))) in steps.enumerate() {
            let span = at..at + n;
            match (place, instruction.dtype) {
                (Place::Register(r), DType::Bool) => {
                    let mut out = std::mem::take(&mut registers.truths[usize::from(r)]);
                    let block = Block { kernel, taken: &taken, registers: &registers, outputs: &outputs, at, n };
                    block.truths(*kernel_loop, &instruction.args, &mut out[..n]);
                    registers.truths[usize::from(r)] = out;
                }
                (Place::Register(r), dtype) => {
                    let mut out = std::mem::take(&mut registers.floats[usize::from(r)]);
                    let block = Block { kernel, taken: &taken, registers: &registers, outputs: &outputs, at, n };
                    block.floats(*kernel_loop, &instruction.args, &mut out[..n]);
                    let output = kernel.outputs.iter().position(|&o| usize::from(o) == k);
                    match (dtype, output.map(|o| &mut outputs[o])) {
                        (DType::F16, Some(Output::Halves(to))) => round(&mut out[..n], &mut to[span]),
                        (DType::F16, _) => round(&mut out[..n], &mut registers.halves[..n]),
                        (DType::BF16, Some(Output::Brains(to))) => round(&mut out[..n], &mut to[span]),
                        (DType::BF16, _) => round(&mut out[..n], &mut registers.brains[..n]),
                        _ => {}
                    }
                    registers.floats[usize::from(r)] = out;
                }
                (Place::Output(o), _) => {
                    let o = usize::from(o);
                    let mut out = std::mem::replace(&mut outputs[o], Output::nothing());
                    let block = Block { kernel, taken: &taken, registers: &registers, outputs: &outputs, at, n };
                    match &mut out {
                        Output::Floats(out) => block.floats(*kernel_loop, &instruction.args, &mut out[span]),
                        Output::Truths(out) => block.truths(*kernel_loop, &instruction.args, &mut out[span]),
                        // Those are in registers first.
                        Output::Halves(_) | Output::Brains(_) => {}
                    }
                    outputs[o] = out;
                }
            }
        }
        at += n;
    }
    registers.widened = widened;
    registers.give_back();
}

/// 16-bit floats as float32.
fn widen<'a, T: Wide<W = f32>>(x: Arg<'_, T>, room: &'a mut [f32]) -> Arg<'a, f32> {
    match x {
        Arg::Slice(x) => {
            let room = &mut room[..x.len()];
            T::widen_all(x, room);
            Arg::Slice(room)
        }
        x => Arg::Value(x.at(0).widen()),
    }
}

/// Rounds numbers to 16 bits, and keeps them in `to` as such.
fn round<T: Wide<W = f32>>(x: &mut [f32], to: &mut [T]) {
    T::narrow_all(x, to);
    T::widen_all(to, x);
}

/// What an instruction can read of a block.
struct Block<'b, 'o> {
    kernel: &'b FusedKernel,
    taken: &'b [Taken<'b>],
    registers: &'b Registers,
    outputs: &'b [Output<'o>],
    at: usize,
    n: usize,
}

impl<'b> Block<'b, '_> {
    // The dtypes fit, since each loop was chosen by them; what does not would be a NaN, or false.
    fn float(&self, operand: Operand) -> Arg<'b, f32> {
        let none = Arg::Value(f32::NAN);
        match operand {
            Operand::Input(i) => match self.taken[usize::from(i)] {
                Taken::Floats(x) => x,
                Taken::Truths(_) => none,
            },
            Operand::Made(i) => match self.kernel.places[usize::from(i)] {
                Place::Register(r) => Arg::Slice(&self.registers.floats[usize::from(r)][..self.n]),
                Place::Output(o) => match &self.outputs[usize::from(o)] {
                    Output::Floats(x) => Arg::Slice(&x[self.at..self.at + self.n]),
                    Output::Truths(_) | Output::Halves(_) | Output::Brains(_) => none,
                },
            },
        }
    }

    fn truth(&self, operand: Operand) -> Arg<'b, bool> {
        let none = Arg::Value(false);
        match operand {
            Operand::Input(i) => match self.taken[usize::from(i)] {
                Taken::Truths(x) => x,
                Taken::Floats(_) => none,
            },
            Operand::Made(i) => match self.kernel.places[usize::from(i)] {
                Place::Register(r) => Arg::Slice(&self.registers.truths[usize::from(r)][..self.n]),
                Place::Output(o) => match &self.outputs[usize::from(o)] {
                    Output::Truths(x) => Arg::Slice(&x[self.at..self.at + self.n]),
                    Output::Floats(_) | Output::Halves(_) | Output::Brains(_) => none,
                },
            },
        }
    }

    fn floats(&self, kernel: Kernel, args: &[Operand], out: &mut [f32]) {
        match (kernel, args) {
            (Kernel::Float1(f), &[x]) => match self.float(x) {
                Arg::Slice(x) => f.run(x, out),
                x => {
                    f.run(&[x.at(0)], &mut out[..1]);
                    out.fill(out[0]);
                }
            },
            (Kernel::Float2(f), &[a, b]) => f.run(self.float(a), self.float(b), out),
            (Kernel::GeluGradient(tanh), &[g, x]) => f32::gelu_gradient(tanh, self.float(g), self.float(x), out),
            (Kernel::Curve(f, numbers), &[x]) => match self.float(x) {
                Arg::Slice(x) => element_fn::values(f, numbers, x, out),
                x => {
                    element_fn::values(f, numbers, &[x.at(0)], &mut out[..1]);
                    out.fill(out[0]);
                }
            },
            (Kernel::CurveGradient(f, numbers), &[g, x]) => {
                element_fn::gradients(f, numbers, self.float(g), self.float(x), out);
            }
            (Kernel::Where, &[c, a, b]) => choose(self.truth(c), self.float(a), self.float(b), out),
            (Kernel::Round, &[x]) => match self.float(x) {
                Arg::Slice(x) => out.copy_from_slice(x),
                x => out.fill(x.at(0)),
            },
            (Kernel::FromTruth, &[x]) => match self.truth(x) {
                Arg::Slice(x) => call1(f32::from, x, out),
                x => out.fill(f32::from(x.at(0))),
            },
            (
                Kernel::Float1(_)
                | Kernel::Float2(_)
                | Kernel::GeluGradient(_)
                | Kernel::Curve(..)
                | Kernel::CurveGradient(..)
                | Kernel::Where
                | Kernel::FromTruth
                | Kernel::Round
                | Kernel::CompareFloats(_)
                | Kernel::CompareTruths(_)
                | Kernel::Not,
                _,
            ) => out.fill(f32::NAN),
        }
    }

    fn truths(&self, kernel: Kernel, args: &[Operand], out: &mut [bool]) {
        match (kernel, args) {
            (Kernel::CompareFloats(f), &[a, b]) => f(self.float(a), self.float(b), out),
            (Kernel::CompareTruths(f), &[a, b]) => f(self.truth(a), self.truth(b), out),
            (Kernel::Not, &[x]) => match self.truth(x) {
                Arg::Slice(x) => call1(|x: bool| !x, x, out),
                x => out.fill(!x.at(0)),
            },
            (
                Kernel::Float1(_)
                | Kernel::Float2(_)
                | Kernel::GeluGradient(_)
                | Kernel::Curve(..)
                | Kernel::CurveGradient(..)
                | Kernel::Where
                | Kernel::FromTruth
                | Kernel::Round
                | Kernel::CompareFloats(_)
                | Kernel::CompareTruths(_)
                | Kernel::Not,
                _,
            ) => out.fill(false),
        }
    }
}

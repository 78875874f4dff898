//! Element-wise primitives over one shape as one kernel: what the graph's fuser hands to a backend.
//!
//! Depends on the op enums. Invariant: instructions read inputs and earlier instructions only, and each is rounded to its
//! dtype, so that a fused kernel gives what its primitives give one by one.

use crate::ops::binary::BinaryOp;
use crate::ops::compare::CompareOp;
use crate::ops::nn::{ElementFn, NnOp};
use crate::ops::select::SelectOp;
use crate::ops::transfer::TransferOp;
use crate::ops::unary::UnaryOp;
use crate::shape::{Layout, Shape, Strides};
use crate::{DType, Prim};
use smallvec::SmallVec;

/// An element-wise op of a fused kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum ElementOp {
    /// Of one operand.
    Unary(UnaryOp),
    /// Of two.
    Binary(BinaryOp),
    /// A comparison, or logic of two truths.
    Compare(CompareOp),
    /// `a` where the condition holds, else `b`.
    Where,
    /// To the instruction's dtype.
    Cast,
    /// x · Φ(x)
    Gelu {
        /// By the approximation with tanh?
        tanh: bool,
    },
    /// `g` times GELU's slope.
    GeluGradient {
        /// By the approximation with tanh?
        tanh: bool,
    },
    /// A function with its numbers.
    Curve(ElementFn, [f64; 3]),
    /// `g` times its derivative.
    CurveGradient(ElementFn, [f64; 3]),
}

impl ElementOp {
    /// The element-wise op that a primitive is, if it is one.
    pub fn of(prim: &Prim) -> Option<ElementOp> {
        Some(match prim {
            Prim::Unary(op) => ElementOp::Unary(op.clone()),
            Prim::Binary(op) => ElementOp::Binary(op.clone()),
            Prim::Compare(op) => ElementOp::Compare(op.clone()),
            Prim::Select(SelectOp::Where) => ElementOp::Where,
            Prim::Transfer(TransferOp::Cast { .. }) => ElementOp::Cast,
            Prim::Nn(NnOp::Gelu { tanh }) => ElementOp::Gelu { tanh: *tanh },
            Prim::Nn(NnOp::GeluGradient { tanh }) => ElementOp::GeluGradient { tanh: *tanh },
            Prim::Nn(NnOp::Elementwise { f, numbers }) => ElementOp::Curve(*f, *numbers),
            Prim::Nn(NnOp::ElementwiseGradient { f, numbers }) => ElementOp::CurveGradient(*f, *numbers),
            Prim::Nn(_)
            | Prim::Transfer(_)
            | Prim::Create(_)
            | Prim::Random(_)
            | Prim::Scan(_)
            | Prim::View(_)
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
            | Prim::Norm(_)
            | Prim::Normalization(_)
            | Prim::Loss(_)
            | Prim::Quantize(_)
            | Prim::Quantized(_)
            | Prim::Communication(_)
            | Prim::Reduce(..) => return None,
        })
    }
}

impl ElementOp {
    /// The dtypes that kernels compute it in: float32 for 16-bit floats, to which its result is rounded. None where floats of
    /// several dtypes meet; only a cast has such.
    pub fn in_float32(&self, inputs: &[DType], out: DType) -> Option<(SmallVec<[DType; 3]>, DType)> {
        let wide = |dtype: DType| if is_narrow(dtype) { DType::F32 } else { dtype };
        let mut floats = inputs.iter().chain([&out]).filter(|dtype| dtype.is_float());
        let first = floats.next();
        let alike = floats.all(|dtype| Some(dtype) == first);
        (alike || *self == ElementOp::Cast).then(|| (inputs.iter().map(|&dtype| wide(dtype)).collect(), wide(out)))
    }
}

/// Is it a float of 16 bits?
pub fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// What an instruction reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// An input of the kernel, broadcast to its shape.
    Input(u16),
    /// The result of an earlier instruction.
    Made(u16),
}

/// One element-wise op of a fused kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// Which.
    pub op: ElementOp,
    /// Of what.
    pub args: SmallVec<[Operand; 3]>,
    /// The result's dtype.
    pub dtype: DType,
}

/// Where an instruction's result is kept while a block is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a register, of float32 or of truths, which other results take over once it was read last. An output of 16-bit floats
    /// is in one, too.
    Register(u16),
    /// In the output of that number.
    Output(u16),
}

/// Element-wise ops over one shape.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedKernel {
    /// The shape of all results.
    pub shape: Shape,
    /// The strides of all results, which have no gaps.
    pub strides: Strides,
    /// The dtypes of the inputs.
    pub inputs: Vec<DType>,
    /// What is computed, in this order.
    pub instructions: Vec<Instruction>,
    /// The instructions whose results are given back.
    pub outputs: Vec<u16>,
    /// Per instruction, where its result is kept.
    pub places: Vec<Place>,
    /// How many registers of each dtype there are: of float32, and of truths.
    pub registers: Vec<(DType, u16)>,
}

impl FusedKernel {
    /// A kernel of instructions; works out which results can share a register.
    pub fn new(layout: &Layout, inputs: Vec<DType>, instructions: Vec<Instruction>, outputs: Vec<u16>) -> FusedKernel {
        let (places, registers) = allocate(&instructions, &outputs);
        let (shape, strides) = (layout.shape.clone(), layout.strides.clone());
        FusedKernel { shape, strides, inputs, instructions, outputs, places, registers }
    }

    /// The layout of the results.
    pub fn layout(&self) -> Layout {
        Layout { shape: self.shape.clone(), strides: self.strides.clone(), offset: 0 }
    }

    /// The dtype of what an instruction reads.
    pub fn dtype_of(&self, operand: Operand) -> Option<DType> {
        match operand {
            Operand::Input(i) => self.inputs.get(usize::from(i)).copied(),
            Operand::Made(i) => self.instructions.get(usize::from(i)).map(|made| made.dtype),
        }
    }
}

/// What a register of its result holds.
fn register_dtype(instruction: &Instruction) -> DType {
    if instruction.dtype == DType::Bool {
        DType::Bool
    } else {
        DType::F32
    }
}

/// A register for each result that is no output. A register is free again after the instruction that reads it last, not for
/// that one itself, so that no kernel writes where it reads.
fn allocate(instructions: &[Instruction], outputs: &[u16]) -> (Vec<Place>, Vec<(DType, u16)>) {
    let mut last: Vec<usize> = (0..instructions.len()).collect();
    for (at, instruction) in instructions.iter().enumerate() {
        for arg in &instruction.args {
            if let Operand::Made(made) = arg {
                last[usize::from(*made)] = at;
            }
        }
    }
    let mut registers: Vec<(DType, u16)> = Vec::new();
    let mut free: Vec<(DType, u16)> = Vec::new();
    let mut places: Vec<Place> = Vec::new();
    for (at, instruction) in instructions.iter().enumerate() {
        let output = outputs.iter().position(|&o| usize::from(o) == at);
        if let (Some(output), false) = (output, is_narrow(instruction.dtype)) {
            places.push(Place::Output(output as u16));
        } else {
            let dtype = register_dtype(instruction);
            let known = free.iter().position(|(d, _)| *d == dtype).map(|i| free.swap_remove(i).1);
            let register = known.unwrap_or_else(|| match registers.iter_mut().find(|(d, _)| *d == dtype) {
                Some((_, count)) => {
                    *count += 1;
                    *count - 1
                }
                None => {
                    registers.push((dtype, 1));
                    0
                }
            });
            places.push(Place::Register(register));
        }
        // Those that were read last by this instruction, and it itself where nobody reads it.
        for made in 0..=at {
            if last[made] == at
                && let Place::Register(register) = places[made]
            {
                free.push((register_dtype(&instructions[made]), register));
            }
        }
    }
    (places, registers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(args: &[Operand]) -> Instruction {
        Instruction { op: ElementOp::Binary(BinaryOp::Add), args: args.into(), dtype: DType::F32 }
    }

    #[test]
    fn registers_are_shared_by_results_that_do_not_live_together() {
        let (input, made) = (Operand::Input(0), Operand::Made);
        let chain: Vec<Instruction> = std::iter::once(instruction(&[input, input]))
            .chain((0..9).map(|i| instruction(&[made(i), input])))
            .collect();
        let kernel = FusedKernel::new(&Layout::contiguous(&[8]), vec![DType::F32], chain, vec![9]);
        assert_eq!(kernel.registers, [(DType::F32, 2)]);
        assert_eq!(kernel.places[9], Place::Output(0));
        // No instruction writes to a register that it reads.
        for (at, instruction) in kernel.instructions.iter().enumerate() {
            for arg in &instruction.args {
                if let Operand::Made(m) = arg {
                    assert_ne!(kernel.places[usize::from(*m)], kernel.places[at]);
                }
            }
        }
    }
}

//! What the table states about an op, as data.
//!
//! Depends on `dtype` only. [`Schema`]s are constants made by `define_ops`; nothing else builds one.

use crate::dtype::DTypes;
use crate::DType;

/// What autocast does with an op's floating inputs, but for float64, which it never touches. PyTorch's lists differ
/// between its CPU and its GPU backends; so do the policies that name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)]
pub enum Amp {
    /// Cast to the low-precision dtype: matrix products and convolutions.
    Low,
    /// `Low` on the GPU device, else `Keep`.
    LowGpu,
    /// Cast to float32: what loses precision or range in 16 bits.
    Full,
    /// `Full` on the GPU device, else `Own`.
    FullGpu,
    /// `Full` on the CPU, else `Own`.
    FullCpu,
    /// Cast to float32 where any input is.
    Promote,
    /// `Promote` on the GPU device, else `Keep`.
    PromoteGpu,
    /// Leave the inputs as they are; the ops that it is made of go by their own policies.
    Keep,
    /// Leave the inputs as they are, and cast nothing inside either.
    Own,
}

impl Amp {
    /// The policy on a device: one of those that name none.
    pub fn on(self, device: crate::Device) -> Amp {
        let gpu = device == crate::Device::Gpu;
        match self {
            Amp::LowGpu if gpu => Amp::Low,
            Amp::PromoteGpu if gpu => Amp::Promote,
            Amp::LowGpu | Amp::PromoteGpu => Amp::Keep,
            Amp::FullGpu if gpu => Amp::Full,
            Amp::FullCpu if !gpu => Amp::Full,
            Amp::FullGpu | Amp::FullCpu => Amp::Own,
            plain @ (Amp::Low | Amp::Full | Amp::Promote | Amp::Keep | Amp::Own) => plain,
        }
    }
}

/// Does the op give bit-equal results when run again?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Determinism {
    /// Always.
    Yes,
    /// Not on every device, for the reason given.
    No(&'static str),
    /// For the same generator state.
    Seeded,
}

/// How the result's dtype follows from the inputs' (after promotion).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultDType {
    /// The same.
    Same,
    /// Integers and `bool` become the default float.
    Float,
    /// Always `bool`.
    Bool,
    /// Always int64.
    Index,
    /// Integers and `bool` become int64.
    Sum,
    /// Complex becomes its real part's dtype.
    Real,
    /// Given by an argument, or as the documentation says.
    Own,
}

impl ResultDType {
    /// The dtype that the op computes in and gives back for inputs of this dtype.
    pub fn of(self, input: DType) -> DType {
        match self {
            ResultDType::Float if input.is_integral() => crate::default_dtype(),
            ResultDType::Sum if input.is_integral() => DType::I64,
            ResultDType::Real => input.to_real(),
            ResultDType::Bool => DType::Bool,
            ResultDType::Index => DType::I64,
            _ => input,
        }
    }
}

/// What the tape keeps for the gradient rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saves {
    /// Nothing but shapes.
    Nothing,
    /// Every input.
    Inputs,
    /// The result.
    Output,
    /// Inputs and result.
    Both,
    /// Each of the first two inputs only where the other needs a gradient (a product).
    Cross,
    /// The second input, and the first only where the second needs a gradient (a quotient).
    Quotient,
    /// The first two inputs, only where the second needs a gradient (what is left by a division).
    Remainder,
    /// Inputs, and the result only where the second input needs a gradient (a power).
    Power,
    /// The first input.
    First,
    /// The second input.
    Second,
    /// The first two inputs.
    Pair,
    /// All inputs but the first.
    Rest,
    /// All inputs but the first two.
    Tail,
    /// The inputs, and of several results all but the first two.
    Recurrent,
    /// The first two inputs, and of several results all but the first.
    Moments,
    /// The second result of several: the indices of the elements that are the first.
    Indices,
}

/// Which dtypes a tensor may have that the result is written to, `out=`: what PyTorch takes for the op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutDType {
    /// What the result can be cast to.
    Cast,
    /// The result's own.
    Own,
    /// Any that the op can be told to make its result in, with `dtype`, which then says the same.
    Asked,
}

impl OutDType {
    /// The rule where the row's flags say nothing: element-wise ops cast, but for rounding and the like.
    pub(crate) const fn of(family: &str, result: ResultDType, params: &[Param]) -> OutDType {
        let mut i = 0;
        while i < params.len() {
            if super::macros::contains(&[params[i].name], "dtype") {
                return OutDType::Asked;
            }
            i += 1;
        }
        let casts = super::macros::contains(&["create", "random", "binary", "pointwise", "complex", "compare"], family);
        let float = super::macros::contains(&["unary"], family) && matches!(result, ResultDType::Float);
        if casts || float {
            OutDType::Cast
        } else {
            OutDType::Own
        }
    }
}

/// What PyTorch's graph calls the step that an op records, and the number of the overload that was called: PyTorch numbers
/// overloads in the order in which it declares their derivatives.
#[derive(Clone, Copy, Debug)]
pub enum NodeName {
    /// The op's name, overload 0.
    Own,
    /// Another name.
    Is(&'static str, u64),
    /// By the arguments.
    By(fn(crate::compat::node_names::Given) -> (&'static str, u64)),
}

/// One parameter of an op.
#[derive(Clone, Copy, Debug)]
pub struct Param {
    /// Its name, as PyTorch's.
    pub name: &'static str,
    /// Its kind, one of `ops::kinds`.
    pub kind: &'static str,
    /// The default, as written in the table.
    pub default: Option<&'static str>,
    /// Only by keyword?
    pub keyword_only: bool,
}

/// One op, as the table declares it.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// The op's name.
    pub name: &'static str,
    /// The family, as the name of its file.
    pub family: &'static str,
    /// Raised when the meaning of stored data or attributes changes.
    pub version: u32,
    /// Autocast policy.
    pub amp: Amp,
    /// Determinism.
    pub determinism: Determinism,
    /// Input dtypes taken.
    pub dtypes: DTypes,
    /// The rule for the result's dtype.
    pub result: ResultDType,
    /// The rule for the dtype of `out=`.
    pub out: OutDType,
    /// The same where it depends on the arguments.
    pub out_rule: Option<super::out::Rule>,
    /// What the tape keeps.
    pub saves: Saves,
    /// Is it also a `Tensor` method?
    pub method: bool,
    /// Is there an in-place form `name_`?
    pub in_place: bool,
    /// Does PyTorch take the numbers of its keywords by position too, in its older order?
    pub old_numbers: bool,
    /// Is it for the engine and the package alone, so that `lucid` does not show it?
    pub internal: bool,
    /// Has it kernels of its own (else it is made of other ops)?
    pub primitive: bool,
    /// Does it pass gradients?
    pub differentiable: bool,
    /// What PyTorch's graph calls its step.
    pub node: NodeName,
    /// Parameters, the tensor of a method included.
    pub params: &'static [Param],
    /// The kind of result, one of `ops::results`.
    pub returns: &'static str,
    /// PyTorch's name, as a path below `torch`; empty where PyTorch has none.
    pub torch: &'static str,
    /// Argument lists for the tests, as Python expressions over sample makers (`N` normal, `P` positive, …).
    pub samples: &'static [&'static str],
    /// The documentation.
    pub doc: &'static str,
}

impl Saves {
    /// Is input `i` kept, where `needs` says which inputs need a gradient?
    pub(crate) fn input(self, i: usize, needs: impl Fn(usize) -> bool) -> bool {
        match self {
            Saves::Nothing | Saves::Output | Saves::Indices => false,
            Saves::Inputs | Saves::Both | Saves::Power | Saves::Recurrent => true,
            Saves::Cross => i < 2 && needs(1 - i),
            Saves::Quotient => i == 1 || i == 0 && needs(1),
            Saves::Remainder => i < 2 && needs(1),
            Saves::First => i == 0,
            Saves::Second => i == 1,
            Saves::Pair | Saves::Moments => i < 2,
            Saves::Rest => i > 0,
            Saves::Tail => i > 1,
        }
    }

    /// Is the result kept, where `needs` says which inputs need a gradient?
    pub(crate) fn output(self, needs: impl Fn(usize) -> bool) -> bool {
        matches!(self, Saves::Output | Saves::Both) || self == Saves::Power && needs(1)
    }

    /// Is result `nr` of several kept?
    pub(crate) fn result(self, nr: usize, needs: impl Fn(usize) -> bool) -> bool {
        self.output(needs)
            || self == Saves::Indices && nr == 1
            || self == Saves::Recurrent && nr > 1
            || self == Saves::Moments && nr > 0
    }
}

impl Schema {
    /// Refuses an input dtype that the op does not take.
    pub(crate) fn check(&self, dtype: DType) -> crate::Result<()> {
        if self.dtypes.has(dtype) {
            return Ok(());
        }
        let takes: Vec<_> = self.dtypes.iter().map(DType::name).collect();
        let why = format!("not implemented for {dtype}; it takes {}", takes.join(", "));
        Err(Box::new(crate::Error::UnsupportedDtype { op: self.name, why: why.into(), dtypes: vec![dtype] }))
    }
}

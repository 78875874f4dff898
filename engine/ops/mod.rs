//! The op table: one declaration per op.
//!
//! Each file holds one family as a macro of rows, `unary_ops!` and so on. A row states an op's signature, policy, dtypes,
//! gradient, samples and an example; `define_ops` turns it into the family's enum, its [`Schema`], a Rust function, a
//! `Tensor` method and, with `py/`, the Python function, method and stub. Bodies and gradients are written in `Tensor`
//! ops.
//! Depends on `tensor`, `autograd` and `dispatch`; nothing here sees a backend's array.

mod macros;
pub mod schema;

pub mod activation;
pub(crate) mod aliased_write;
pub mod arguments;
mod attention;
pub mod binary;
pub mod calculus;
pub mod communication;
pub mod compare;
pub mod complex;
mod concat;
mod continuous;
pub mod contract;
pub mod conv;
pub mod create;
mod ctc;
mod discrete;
pub mod distance;
pub mod einsum;
pub mod fft;
mod histogram;
pub mod index;
mod index_put;
pub mod linalg;
pub mod loss;
mod masked;
pub mod matrix;
pub mod nn;
pub mod norm;
pub mod normalization;
pub mod order;
pub mod orthogonal;
pub mod out;
mod pad;
pub mod pointwise;
pub mod pool;
pub mod quantize;
pub mod quantized;
pub mod random;
pub mod recurrent;
pub mod reduce;
mod reparameterized;
pub mod rnn;
pub mod scan;
pub mod scatter;
pub mod search;
pub mod segment;
pub mod shape;
mod slices;
pub mod sort;
mod split;
pub(crate) mod strided;
pub mod transfer;
pub mod unary;
mod unique;
pub mod view;
mod view_dtype;
pub mod window;

pub use arguments::{
    Combine, DimList, DistanceMode, FftNorm, GridOrder, Integer, KlReduction, LstsqDriver, PadMode, QrMode,
    QuantileInterpolation, Rounding, ScatterReduction, SegmentReduction, Side, SvdDriver, Triangle,
};
pub use schema::{Amp, Determinism, OutDType, Param, ResultDType, Schema};

use crate::autograd::{Ctx, Grads};
use crate::{DType, Result, Scalar, Tensor};

/// What the engine makes of a primitive's row.
pub(crate) trait OpRow {
    /// The row of the op table.
    fn schema(&self) -> &'static Schema;
    /// The gradients of the inputs that need one, by the row's rule.
    fn gradient(&self, ctx: &Ctx<'_>) -> Result<Grads>;
}

/// A tensor or a number: what most two-sided ops take on their right.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number; it promotes only by its category.
    Scalar(Scalar),
}

impl Operand<'_> {
    /// What it says of the overload that was called: 1 for a tensor, 2 for a number.
    pub(crate) fn mark(&self) -> u64 {
        match self {
            Operand::Tensor(_) => 1,
            Operand::Scalar(_) => 2,
        }
    }
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(t: &'a Tensor) -> Self {
        Operand::Tensor(t)
    }
}

impl<'a, T: Into<Scalar>> From<T> for Operand<'a> {
    fn from(v: T) -> Self {
        Operand::Scalar(v.into())
    }
}

/// How a dimension is cut: into so many pieces (or pieces of such a size, for `split`), or as the list says.
#[derive(Clone, Copy, Debug)]
pub enum Sections<'a> {
    /// One number.
    Count(i64),
    /// Sizes or indices, one each.
    List(&'a [isize]),
}

impl<N: Integer> From<N> for Sections<'_> {
    fn from(n: N) -> Self {
        Sections::Count(n.wide())
    }
}

impl<'a> From<&'a [isize]> for Sections<'a> {
    fn from(list: &'a [isize]) -> Self {
        Sections::List(list)
    }
}

impl<'a, const N: usize> From<&'a [isize; N]> for Sections<'a> {
    fn from(list: &'a [isize; N]) -> Self {
        Sections::List(list)
    }
}

/// Pairs of dimensions to sum over: the last of one tensor with the first of another, or two lists.
#[derive(Clone, Debug)]
pub enum DimPairs {
    /// So many.
    Count(i64),
    /// These of the first and these of the second.
    Lists(Vec<isize>, Vec<isize>),
}

/// How far apart the samples of a function are.
#[derive(Clone, Debug)]
pub enum Spacing {
    /// So far, in every dimension.
    Number(Scalar),
    /// So far, one number for each dimension.
    Numbers(Vec<Scalar>),
    /// They are at these coordinates, one vector for each dimension.
    Points(Vec<Tensor>),
}

/// Which norm: a number, or a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NormOrder {
    /// The power, or ±∞.
    Number(f64),
    /// The Frobenius norm: the 2-norm of all elements.
    Fro,
    /// The nuclear norm: the sum of the singular values.
    Nuc,
}

/// Rust types of the parameter kinds that the op table names.
#[allow(missing_docs)]
pub mod kinds {
    use crate::{DType, Device, Generator, Scalar};
    pub type Tensor<'a> = &'a crate::Tensor;
    pub type OptTensor<'a> = Option<&'a crate::Tensor>;
    pub type Tensors<'a> = &'a [crate::Tensor];
    pub type Operand<'a> = super::Operand<'a>;
    pub type OptOperand<'a> = Option<super::Operand<'a>>;
    pub type Number = Scalar;
    pub type OptNumber = Option<Scalar>;
    pub type Int = i64;
    /// An integer, or in Python a tensor that holds one
    pub type Start = i64;
    pub type OptInt = Option<i64>;
    pub type OptBool = Option<bool>;
    pub type Float = f64;
    pub type OptFloat = Option<f64>;
    pub type Bool = bool;
    pub type Dim = isize;
    pub type OptDim = Option<isize>;
    pub type Dims<'a> = &'a [isize];
    pub type OptDims<'a> = Option<&'a [isize]>;
    pub type Sizes<'a> = &'a [isize];
    pub type Sections<'a> = super::Sections<'a>;
    pub type DimPairs<'a> = &'a super::DimPairs;
    pub type Spacing<'a> = &'a super::Spacing;
    pub type OptFloats<'a> = Option<&'a [f64]>;
    pub type OptOrder = Option<super::NormOrder>;
    pub type OptFormat = Option<crate::MemoryFormat>;
    pub type Bins<'a> = &'a [crate::Tensor];
    pub type Dtype = DType;
    pub type OptDtype = Option<DType>;
    pub type OptDevice = Option<Device>;
    pub type DeviceArg = crate::Device;
    pub type OptGenerator<'a> = Option<&'a Generator>;
    pub type Text<'a> = &'a str;
    pub type OptText<'a> = Option<&'a str>;
    /// A flag, for which in Python `None` stands for false
    pub type Whether = bool;
    // What a call may leave out but, in Python, not give as `None`: PyTorch has overloads with it and without.
    pub type SomeTensor<'a> = OptTensor<'a>;
    pub type SomeOperand<'a> = OptOperand<'a>;
    pub type SomeNumber = OptNumber;
    pub type SomeInt = OptInt;
    pub type SomeDim = OptDim;
    pub type SomeDims<'a> = OptDims<'a>;
    pub type SomeOrder = OptOrder;
    pub type SomeText<'a> = OptText<'a>;
}

/// Rust types of the results that the op table names.
#[allow(missing_docs)]
pub mod results {
    pub type Tensor = crate::Tensor;
    pub type Tensors = Vec<crate::Tensor>;
    pub type ValuesIndices = (crate::Tensor, crate::Tensor);
    pub type SignLogabsdet = (crate::Tensor, crate::Tensor);
    pub type MinMax = (crate::Tensor, crate::Tensor);
    pub type MantissaExponent = (crate::Tensor, crate::Tensor);
    pub type Pair = (crate::Tensor, crate::Tensor);
    pub type Each = Vec<crate::Tensor>;
    pub type Named = Vec<crate::Tensor>;
    pub type Truth = bool;
    /// One tensor alone, or several.
    pub type Packed = Vec<crate::Tensor>;
    pub type MaybeIndices = (crate::Tensor, Option<crate::Tensor>);
    pub type HistEdges = (crate::Tensor, crate::Tensor);
    pub type HistEdgesList = (crate::Tensor, Vec<crate::Tensor>);
}

/// Every schema, family by family in the order of the table.
pub fn schemas() -> impl Iterator<Item = &'static Schema> {
    [
        create::SCHEMAS,
        window::SCHEMAS,
        random::SCHEMAS,
        transfer::SCHEMAS,
        unary::SCHEMAS,
        binary::SCHEMAS,
        pointwise::SCHEMAS,
        orthogonal::SCHEMAS,
        complex::SCHEMAS,
        compare::SCHEMAS,
        compare::select::SCHEMAS,
        reduce::SCHEMAS,
        scan::SCHEMAS,
        view::SCHEMAS,
        shape::SCHEMAS,
        calculus::SCHEMAS,
        index::SCHEMAS,
        scatter::SCHEMAS,
        sort::SCHEMAS,
        order::SCHEMAS,
        search::SCHEMAS,
        segment::SCHEMAS,
        contract::SCHEMAS,
        einsum::SCHEMAS,
        distance::SCHEMAS,
        linalg::SCHEMAS,
        linalg::decomposition::SCHEMAS,
        linalg::factor::SCHEMAS,
        linalg::solve::SCHEMAS,
        linalg::reflect::SCHEMAS,
        linalg::lowrank::SCHEMAS,
        matrix::SCHEMAS,
        fft::SCHEMAS,
        fft::transforms::SCHEMAS,
        fft::stft::SCHEMAS,
        conv::SCHEMAS,
        pool::SCHEMAS,
        norm::SCHEMAS,
        normalization::SCHEMAS,
        nn::SCHEMAS,
        activation::SCHEMAS,
        recurrent::SCHEMAS,
        rnn::SCHEMAS,
        loss::SCHEMAS,
        quantize::SCHEMAS,
        quantized::SCHEMAS,
        communication::SCHEMAS,
    ]
    .into_iter()
    .flatten()
}

/// The dtype that an op computes in for tensors and numbers of these kinds (PyTorch's `result_type`): tensors with
/// dimensions outrank 0-d ones, which outrank numbers, unless the lower rank is of a higher category.
///
/// # Errors
/// [`Error::DtypeMismatch`](crate::Error::DtypeMismatch) where tensors of one rank have no dtype in common.
pub fn result_type<'a>(operands: impl IntoIterator<Item = Operand<'a>>) -> crate::Result<DType> {
    let mut ranks: [Option<DType>; 3] = [None; 3];
    for o in operands {
        let (rank, dtype) = match o {
            Operand::Tensor(t) if t.ndim() > 0 => (0, t.dtype()),
            Operand::Tensor(t) => (1, t.dtype()),
            Operand::Scalar(s) => (2, scalar_dtype(s)),
        };
        ranks[rank] = Some(ranks[rank].map_or(Ok(dtype), |d: DType| d.promote(dtype))?);
    }
    Ok(ranks.into_iter().flatten().reduce(combine).unwrap_or(crate::default_dtype()))
}

/// The dtype of a number on its own.
pub fn scalar_dtype(s: Scalar) -> DType {
    match s {
        Scalar::Bool(_) => DType::Bool,
        Scalar::Int(_) | Scalar::Wide(_) => DType::I64,
        Scalar::Float(_) => crate::default_dtype(),
        Scalar::Complex(..) => crate::default_dtype().to_complex(),
    }
}

fn combine(higher: DType, lower: DType) -> DType {
    match lower.category() > higher.category() {
        true if lower.is_complex() && higher.is_float() => higher.to_complex(),
        true => lower,
        false => higher,
    }
}

//! What Rust programs give to ops: whole numbers of any type, sizes in arrays, slices and vectors, and kinds as enums.
//!
//! Bodies of ops see the types of [`kinds`](super::kinds) alone; the functions and methods of the table convert first, so
//! that sizes from a shape (`usize`), from the end (`-1`) and from files (`i64`) need no casts:
//!
//! ```
//! use lucid::prelude::*;
//! # fn main() -> Result<()> {
//! let x = tensor!([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
//! let n: usize = x.shape()[1];
//! assert_eq!(x.reshape([n, 2])?.shape(), [3, 2]);
//! assert_eq!(x.reshape(x.shape())?.unsqueeze(n - 1)?.shape(), [2, 3, 1]);
//! assert_close(x.clamp(2.0, None)?.narrow(1, 0, n - 1)?, [[2.0, 2.0], [4.0, 5.0]]);
//! assert_close(x.argmax(1, false)?, [2, 2]);
//! assert_close(x.quantile(0.5, 1, false, lucid::ops::QuantileInterpolation::Linear)?, [2.0, 5.0]);
//! # Ok(())
//! # }
//! ```
//!
//! A kind by its name does not compile, so that none is found wrong at run time:
//!
//! ```compile_fail,E0277
//! use lucid::prelude::*;
//! let y = tensor!([7.0, -7.0])?.div(2, "floor")?;
//! # Ok::<(), Error>(())
//! ```

use super::Operand;
use crate::{Scalar, Tensor};
use num_complex::{Complex32, Complex64};
use smallvec::SmallVec;
use std::ops::Deref;

mod sealed {
    pub trait Sealed {}
}

/// A whole number of any type that counts: a dimension, a size, an index. What 63 bits do not hold is out of any range.
pub trait Integer: Copy + sealed::Sealed {
    /// The number.
    fn wide(self) -> i64;
}

/// What a setting of type `T` may be given as: counts and dimensions as whole numbers of any type, others as they are.
pub trait Setting<T>: sealed::Sealed {
    /// The setting.
    fn set(self) -> T;
}

impl<N: Integer> Setting<u64> for N {
    /// Below 0 is 0.
    fn set(self) -> u64 {
        self.wide().max(0) as u64
    }
}
impl<N: Integer> Setting<i64> for N {
    fn set(self) -> i64 {
        self.wide()
    }
}
impl<N: Integer> Setting<isize> for N {
    fn set(self) -> isize {
        self.wide() as isize
    }
}
impl<N: Integer> sealed::Sealed for Vec<N> {}
impl<N: Integer> Setting<Vec<u64>> for Vec<N> {
    fn set(self) -> Vec<u64> {
        self.into_iter().map(Setting::set).collect()
    }
}
impl<N: Integer, const COUNT: usize> sealed::Sealed for [N; COUNT] {}
impl<N: Integer, const COUNT: usize> Setting<Vec<u64>> for [N; COUNT] {
    fn set(self) -> Vec<u64> {
        self.into_iter().map(Setting::set).collect()
    }
}

macro_rules! own_settings {
    ($($T:ty)*) => {$(
        impl sealed::Sealed for $T {}
        impl Setting<$T> for $T {
            fn set(self) -> $T {
                self
            }
        }
    )*};
}
own_settings! {
    bool f64 Option<(f64, f64)> crate::nn::Approximate crate::optim::Anneal crate::optim::Cycle crate::optim::Better
}

/// Sizes or dimensions: one number, an array, a slice or a vector.
#[derive(Clone, Debug)]
pub struct DimList<'a>(List<'a>);

#[derive(Clone, Debug)]
enum List<'a> {
    Lent(&'a [isize]),
    Own(SmallVec<[isize; 6]>),
}

impl Deref for DimList<'_> {
    type Target = [isize];
    fn deref(&self) -> &[isize] {
        match &self.0 {
            List::Lent(list) => list,
            List::Own(list) => list,
        }
    }
}

impl DimList<'_> {
    fn of<T: Integer>(list: &[T]) -> Self {
        DimList(List::Own(list.iter().map(|n| n.wide() as isize).collect()))
    }
}

impl From<()> for DimList<'_> {
    /// None: the shape of a tensor without dimensions.
    fn from((): ()) -> Self {
        DimList(List::Lent(&[]))
    }
}
impl<'a> From<&'a [isize]> for DimList<'a> {
    fn from(list: &'a [isize]) -> Self {
        DimList(List::Lent(list))
    }
}
impl<'a, const N: usize> From<&'a [isize; N]> for DimList<'a> {
    fn from(list: &'a [isize; N]) -> Self {
        DimList(List::Lent(list))
    }
}
impl<'a> From<&'a Vec<isize>> for DimList<'a> {
    fn from(list: &'a Vec<isize>) -> Self {
        DimList(List::Lent(list))
    }
}
impl<'a, A: smallvec::Array<Item = isize>> From<&'a SmallVec<A>> for DimList<'a> {
    fn from(list: &'a SmallVec<A>) -> Self {
        DimList(List::Lent(list))
    }
}
impl<'a> From<&'a DimList<'_>> for DimList<'a> {
    fn from(list: &'a DimList<'_>) -> Self {
        DimList(List::Lent(list))
    }
}

/// A whole number, or none.
#[derive(Clone, Copy, Debug)]
pub struct MaybeInt(pub(crate) Option<i64>);

/// A dimension, or none.
#[derive(Clone, Copy, Debug)]
pub struct MaybeDim(pub(crate) Option<isize>);

impl From<Option<i64>> for MaybeInt {
    fn from(n: Option<i64>) -> Self {
        MaybeInt(n)
    }
}
impl From<Option<isize>> for MaybeDim {
    fn from(n: Option<isize>) -> Self {
        MaybeDim(n)
    }
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl sealed::Sealed for $int {}
        impl Integer for $int {
            #[inline]
            #[allow(clippy::unnecessary_fallible_conversions, clippy::useless_conversion)]
            fn wide(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
        impl From<$int> for MaybeInt {
            fn from(n: $int) -> Self {
                MaybeInt(Some(n.wide()))
            }
        }
        impl From<$int> for MaybeDim {
            fn from(n: $int) -> Self {
                MaybeDim(Some(n.wide() as isize))
            }
        }
        impl From<$int> for DimList<'_> {
            fn from(n: $int) -> Self {
                DimList::of(&[n])
            }
        }
        impl<const N: usize> From<[$int; N]> for DimList<'_> {
            fn from(list: [$int; N]) -> Self {
                DimList::of(&list)
            }
        }
    )*};
}
integers!(i32 i64 isize u32 u64 usize);

macro_rules! tuples {
    ($($($N:ident $n:ident)+;)*) => {$(
        /// Sizes of several integer types.
        impl<$($N: Integer),+> From<($($N,)+)> for DimList<'_> {
            fn from(($($n,)+): ($($N,)+)) -> Self {
                DimList::of(&[$($n.wide()),+])
            }
        }
    )*};
}
tuples! {
    A a;
    A a B b;
    A a B b C c;
    A a B b C c D d;
    A a B b C c D d E e;
    A a B b C c D d E e F f;
}

macro_rules! lists {
    ($($int:ty)*) => {$(
        impl From<&[$int]> for DimList<'_> {
            fn from(list: &[$int]) -> Self {
                DimList::of(list)
            }
        }
        impl<const N: usize> From<&[$int; N]> for DimList<'_> {
            fn from(list: &[$int; N]) -> Self {
                DimList::of(list)
            }
        }
        impl From<&Vec<$int>> for DimList<'_> {
            fn from(list: &Vec<$int>) -> Self {
                DimList::of(list)
            }
        }
    )*};
}
lists!(i32 i64 u32 u64 usize);

/// A number, or none.
#[derive(Clone, Copy, Debug)]
pub struct MaybeNumber(pub(crate) Option<Scalar>);

/// A tensor or a number, or none.
#[derive(Clone, Copy, Debug)]
pub struct MaybeOperand<'a>(pub(crate) Option<Operand<'a>>);

impl From<Option<Scalar>> for MaybeNumber {
    fn from(n: Option<Scalar>) -> Self {
        MaybeNumber(n)
    }
}
impl<'a> From<Option<Operand<'a>>> for MaybeOperand<'a> {
    fn from(x: Option<Operand<'a>>) -> Self {
        MaybeOperand(x)
    }
}
impl<'a> From<&'a Tensor> for MaybeOperand<'a> {
    fn from(x: &'a Tensor) -> Self {
        MaybeOperand(Some(x.into()))
    }
}
impl<'a> From<Operand<'a>> for MaybeOperand<'a> {
    fn from(x: Operand<'a>) -> Self {
        MaybeOperand(Some(x))
    }
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl From<$number> for MaybeNumber {
            fn from(n: $number) -> Self {
                MaybeNumber(Some(n.into()))
            }
        }
        impl From<$number> for MaybeOperand<'_> {
            fn from(n: $number) -> Self {
                MaybeOperand(Some(Operand::Scalar(n.into())))
            }
        }
    )*};
}
numbers!(Scalar bool i32 i64 f32 f64 Complex32 Complex64);

/// An enum of an op's kinds, each with the name that PyTorch gives it.
pub trait Word: Copy {
    /// The name.
    fn name(self) -> &'static str;
}

/// One of an op's kinds, of its enum.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a, E>(Kind<'a, E>);

#[derive(Clone, Copy, Debug)]
enum Kind<'a, E> {
    Known(E),
    Named(&'a str),
}

/// The name of a kind as Python's bindings have it, which the op's body checks: each has an error of its own.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Named<'a>(pub &'a str);

/// The same, or none.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct MaybeNamed<'a>(pub Option<&'a str>);

impl AsRef<str> for Named<'_> {
    fn as_ref(&self) -> &str {
        self.0
    }
}
impl<E: Word> From<E> for Choice<'_, E> {
    fn from(kind: E) -> Self {
        Choice(Kind::Known(kind))
    }
}
impl<'a, E> From<Named<'a>> for Choice<'a, E> {
    fn from(name: Named<'a>) -> Self {
        Choice(Kind::Named(name.0))
    }
}
impl From<crate::nn::Reduction> for Choice<'_, KlReduction> {
    fn from(reduction: crate::nn::Reduction) -> Self {
        use crate::nn::Reduction;
        Choice(Kind::Known(match reduction {
            Reduction::None => KlReduction::None,
            Reduction::Sum => KlReduction::Sum,
            Reduction::Mean => KlReduction::Mean,
        }))
    }
}
impl<'a, E: Word> Choice<'a, E> {
    pub(crate) fn name(self) -> &'a str {
        match self.0 {
            Kind::Known(kind) => kind.name(),
            Kind::Named(name) => name,
        }
    }
}

/// One of an op's kinds, or none.
#[derive(Clone, Copy, Debug)]
pub struct MaybeChoice<'a, E>(Option<Choice<'a, E>>);

impl<E: Word> From<E> for MaybeChoice<'_, E> {
    fn from(kind: E) -> Self {
        MaybeChoice(Some(kind.into()))
    }
}
impl<E: Word> From<Option<E>> for MaybeChoice<'_, E> {
    fn from(kind: Option<E>) -> Self {
        MaybeChoice(kind.map(Into::into))
    }
}
impl<'a, E> From<MaybeNamed<'a>> for MaybeChoice<'a, E> {
    fn from(name: MaybeNamed<'a>) -> Self {
        MaybeChoice(name.0.map(|name| Choice(Kind::Named(name))))
    }
}
impl<'a, E: Word> MaybeChoice<'a, E> {
    pub(crate) fn name(self) -> Option<&'a str> {
        self.0.map(Choice::name)
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $Name:ident { $($(#[$vdoc:meta])* $Kind:ident $word:literal,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $Name { $($(#[$vdoc])* $Kind,)* }
        impl Word for $Name {
            fn name(self) -> &'static str {
                match self { $($Name::$Kind => $word,)* }
            }
        }
    )*};
}
words! {
    /// What a quantile is between two elements.
    QuantileInterpolation {
        /// As far between them as its place is.
        Linear "linear",
        /// The lower one.
        Lower "lower",
        /// The higher one.
        Higher "higher",
        /// Their mean.
        Midpoint "midpoint",
        /// The nearer one.
        Nearest "nearest",
    }
    /// How a quotient becomes a whole number.
    Rounding {
        /// Towards zero.
        Trunc "trunc",
        /// Downwards.
        Floor "floor",
    }
    /// How elements that come to one place are combined.
    Combine {
        /// Their sum.
        Sum "sum",
        /// Their product.
        Prod "prod",
        /// Their mean.
        Mean "mean",
        /// The largest.
        Amax "amax",
        /// The least.
        Amin "amin",
    }
    /// How the elements of a segment become one.
    SegmentReduction {
        /// Their sum.
        Sum "sum",
        /// Their product.
        Prod "prod",
        /// Their mean.
        Mean "mean",
        /// The largest.
        Max "max",
        /// The least.
        Min "min",
    }
    /// What `scatter` does with what is there.
    ScatterReduction {
        /// Adds to it.
        Add "add",
        /// Multiplies it.
        Multiply "multiply",
    }
    /// What new elements at the ends are.
    PadMode {
        /// One number.
        Constant "constant",
        /// The elements mirrored at the edge.
        Reflect "reflect",
        /// The edge's element.
        Replicate "replicate",
        /// The elements of the other end.
        Circular "circular",
    }
    /// Which triangle of a symmetric matrix is read.
    Triangle {
        /// The lower one.
        Lower "L",
        /// The upper one.
        Upper "U",
    }
    /// Which parts of a QR factorization are made.
    QrMode {
        /// As many columns as there are.
        Reduced "reduced",
        /// A square matrix Q.
        Complete "complete",
        /// R alone.
        R "r",
    }
    /// Which of equal elements a place is before.
    Side {
        /// All of them.
        Left "left",
        /// None of them.
        Right "right",
    }
    /// How a Fourier transform is scaled.
    FftNorm {
        /// The inverse by 1/n.
        Backward "backward",
        /// Both by 1/√n.
        Ortho "ortho",
        /// The transform by 1/n.
        Forward "forward",
    }
    /// The order of a grid's dimensions.
    GridOrder {
        /// That of the vectors.
        Matrix "ij",
        /// The first two exchanged.
        Cartesian "xy",
    }
    /// What a Kullback–Leibler divergence is of all elements.
    KlReduction {
        /// Each for itself.
        None "none",
        /// Their sum, divided by the size of the first dimension: the mathematical definition.
        BatchMean "batchmean",
        /// Their sum.
        Sum "sum",
        /// Their mean.
        Mean "mean",
    }
    /// The LAPACK routine of a least-squares solution.
    LstsqDriver {
        /// By QR, for matrices of full rank.
        Gels "gels",
        /// By QR with pivoting.
        Gelsy "gelsy",
        /// By a divide-and-conquer SVD.
        Gelsd "gelsd",
        /// By an SVD.
        Gelss "gelss",
    }
    /// cuSOLVER's routine of an SVD, which only PyTorch's CUDA tensors have.
    SvdDriver {
        /// By QR.
        Gesvd "gesvd",
        /// By Jacobi rotations.
        Gesvdj "gesvdj",
        /// Approximately.
        Gesvda "gesvda",
    }
    /// Where Euclidean distances are computed by a matrix product.
    DistanceMode {
        /// Where one of the matrices has more than 25 rows.
        MatmulForManyRows "use_mm_for_euclid_dist_if_necessary",
        /// Everywhere.
        Matmul "use_mm_for_euclid_dist",
        /// Nowhere.
        Direct "donot_use_mm_for_euclid_dist",
    }
}

macro_rules! named {
    ($($Name:ty)*) => {$(
        impl Word for $Name {
            fn name(self) -> &'static str {
                <$Name>::name(self)
            }
        }
    )*};
}
named!(crate::nn::Reduction crate::nn::Approximate crate::nn::Nonlinearity);
named!(lucid_ir::ops::nn::ElementFn lucid_ir::ops::recurrent::RecurrentCell);
named!(lucid_ir::ops::communication::Reduce lucid_ir::ops::quantized::Packing);

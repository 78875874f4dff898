//! What programs give to ops, and how it becomes what their bodies take: see [`arguments`](crate::ops::arguments).
//!
//! Each macro is told the row's name, a parameter's kind and its name, since one name of a kind may stand for several enums.

/// What a program gives for a parameter: anything that converts to the kind's type, and for names of kinds an enum.
macro_rules! given {
    (linalg_qr Text mode) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::ops::arguments::QrMode>> };
    (segment_reduce Text reduce) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::ops::arguments::SegmentReduction>> };
    ($op:ident Operand $p:ident) => { impl Into<$crate::ops::Operand<'op>> };
    ($op:ident Number $p:ident) => { impl Into<$crate::Scalar> };
    ($op:ident Sections $p:ident) => { impl Into<$crate::ops::Sections<'op>> };
    ($op:ident Int $p:ident) => { impl $crate::ops::arguments::Integer };
    ($op:ident Start $p:ident) => { impl $crate::ops::arguments::Integer };
    ($op:ident Dim $p:ident) => { impl $crate::ops::arguments::Integer };
    ($op:ident Dims $p:ident) => { impl Into<$crate::ops::arguments::DimList<'op>> };
    ($op:ident Sizes $p:ident) => { impl Into<$crate::ops::arguments::DimList<'op>> };
    ($op:ident OptInt $p:ident) => { impl Into<$crate::ops::arguments::MaybeInt> };
    ($op:ident OptDim $p:ident) => { impl Into<$crate::ops::arguments::MaybeDim> };
    ($op:ident OptNumber $p:ident) => { impl Into<$crate::ops::arguments::MaybeNumber> };
    ($op:ident OptOperand $p:ident) => { impl Into<$crate::ops::arguments::MaybeOperand<'op>> };
    ($op:ident OptTensor $p:ident) => { impl Into<Option<&'op $crate::Tensor>> };
    ($op:ident OptFloat $p:ident) => { impl Into<Option<f64>> };
    ($op:ident OptBool $p:ident) => { impl Into<Option<bool>> };
    ($op:ident OptDtype $p:ident) => { impl Into<Option<$crate::DType>> };
    ($op:ident OptDevice $p:ident) => { impl Into<Option<$crate::Device>> };
    ($op:ident SomeInt $p:ident) => { $crate::ops::macros::given!($op OptInt $p) };
    ($op:ident SomeDim $p:ident) => { $crate::ops::macros::given!($op OptDim $p) };
    ($op:ident SomeNumber $p:ident) => { $crate::ops::macros::given!($op OptNumber $p) };
    ($op:ident SomeOperand $p:ident) => { $crate::ops::macros::given!($op OptOperand $p) };
    ($op:ident SomeTensor $p:ident) => { $crate::ops::macros::given!($op OptTensor $p) };
    ($op:ident Text reduction) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::nn::Reduction>> };
    ($op:ident Text approximate) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::nn::Approximate>> };
    ($op:ident Text nonlinearity) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::nn::Nonlinearity>> };
    ($op:ident Text interpolation) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::ops::arguments::Interpolation>> };
    ($op:ident Text reduce) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::ops::arguments::Combine>> };
    (pad Text mode) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::ops::arguments::PadMode>> };
    ($op:ident Text pad_mode) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::ops::arguments::PadMode>> };
    ($op:ident Text UPLO) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::ops::arguments::Triangle>> };
    ($op:ident OptText rounding_mode) => { impl Into<$crate::ops::arguments::MaybeChoice<'op, $crate::ops::arguments::Rounding>> };
    ($op:ident OptText norm) => { impl Into<$crate::ops::arguments::MaybeChoice<'op, $crate::ops::arguments::FftNorm>> };
    ($op:ident OptText indexing) => { impl Into<$crate::ops::arguments::MaybeChoice<'op, $crate::ops::arguments::GridOrder>> };
    ($op:ident OptText side) => { impl Into<$crate::ops::arguments::MaybeChoice<'op, $crate::ops::arguments::Side>> };
    ($op:ident SomeText reduce) => { impl Into<$crate::ops::arguments::MaybeChoice<'op, $crate::ops::arguments::ScatterReduction>> };
    ($op:ident $kind:ident $p:ident) => { $crate::ops::kinds::$kind };
}

/// What was given as something that can be lent as the kind's type.
macro_rules! held {
    (linalg_qr Text mode $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::ops::arguments::QrMode>::name($v.into()) };
    (segment_reduce Text reduce $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::ops::arguments::SegmentReduction>::name($v.into()) };
    ($op:ident Operand $p:ident $v:ident) => { Into::<$crate::ops::Operand<'_>>::into($v) };
    ($op:ident Number $p:ident $v:ident) => { Into::<$crate::Scalar>::into($v) };
    ($op:ident Sections $p:ident $v:ident) => { Into::<$crate::ops::Sections<'_>>::into($v) };
    ($op:ident Int $p:ident $v:ident) => { $crate::ops::arguments::Integer::wide($v) };
    ($op:ident Start $p:ident $v:ident) => { $crate::ops::arguments::Integer::wide($v) };
    ($op:ident Dim $p:ident $v:ident) => { $crate::ops::arguments::Integer::wide($v) as isize };
    ($op:ident Dims $p:ident $v:ident) => { Into::<$crate::ops::arguments::DimList<'_>>::into($v) };
    ($op:ident Sizes $p:ident $v:ident) => { Into::<$crate::ops::arguments::DimList<'_>>::into($v) };
    ($op:ident OptInt $p:ident $v:ident) => { Into::<$crate::ops::arguments::MaybeInt>::into($v).0 };
    ($op:ident OptDim $p:ident $v:ident) => { Into::<$crate::ops::arguments::MaybeDim>::into($v).0 };
    ($op:ident OptNumber $p:ident $v:ident) => { Into::<$crate::ops::arguments::MaybeNumber>::into($v).0 };
    ($op:ident OptOperand $p:ident $v:ident) => { Into::<$crate::ops::arguments::MaybeOperand<'_>>::into($v).0 };
    ($op:ident OptTensor $p:ident $v:ident) => { Into::<Option<&$crate::Tensor>>::into($v) };
    ($op:ident OptFloat $p:ident $v:ident) => { Into::<Option<f64>>::into($v) };
    ($op:ident OptBool $p:ident $v:ident) => { Into::<Option<bool>>::into($v) };
    ($op:ident OptDtype $p:ident $v:ident) => { Into::<Option<$crate::DType>>::into($v) };
    ($op:ident OptDevice $p:ident $v:ident) => { Into::<Option<$crate::Device>>::into($v) };
    ($op:ident SomeInt $p:ident $v:ident) => { $crate::ops::macros::held!($op OptInt $p $v) };
    ($op:ident SomeDim $p:ident $v:ident) => { $crate::ops::macros::held!($op OptDim $p $v) };
    ($op:ident SomeNumber $p:ident $v:ident) => { $crate::ops::macros::held!($op OptNumber $p $v) };
    ($op:ident SomeOperand $p:ident $v:ident) => { $crate::ops::macros::held!($op OptOperand $p $v) };
    ($op:ident SomeTensor $p:ident $v:ident) => { $crate::ops::macros::held!($op OptTensor $p $v) };
    ($op:ident Text reduction $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::nn::Reduction>::name($v.into()) };
    ($op:ident Text approximate $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::nn::Approximate>::name($v.into()) };
    ($op:ident Text nonlinearity $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::nn::Nonlinearity>::name($v.into()) };
    ($op:ident Text interpolation $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::ops::arguments::Interpolation>::name($v.into()) };
    ($op:ident Text reduce $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::ops::arguments::Combine>::name($v.into()) };
    (pad Text mode $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::ops::arguments::PadMode>::name($v.into()) };
    ($op:ident Text pad_mode $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::ops::arguments::PadMode>::name($v.into()) };
    ($op:ident Text UPLO $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::ops::arguments::Triangle>::name($v.into()) };
    ($op:ident OptText rounding_mode $v:ident) => { $crate::ops::arguments::MaybeChoice::<'_, $crate::ops::arguments::Rounding>::name($v.into()) };
    ($op:ident OptText norm $v:ident) => { $crate::ops::arguments::MaybeChoice::<'_, $crate::ops::arguments::FftNorm>::name($v.into()) };
    ($op:ident OptText indexing $v:ident) => { $crate::ops::arguments::MaybeChoice::<'_, $crate::ops::arguments::GridOrder>::name($v.into()) };
    ($op:ident OptText side $v:ident) => { $crate::ops::arguments::MaybeChoice::<'_, $crate::ops::arguments::Side>::name($v.into()) };
    ($op:ident SomeText reduce $v:ident) => { $crate::ops::arguments::MaybeChoice::<'_, $crate::ops::arguments::ScatterReduction>::name($v.into()) };
    ($op:ident $kind:ident $p:ident $v:ident) => { $v };
}

/// The same, lent.
macro_rules! lent {
    (Dims $p:ident) => {
        &*$p
    };
    (Sizes $p:ident) => {
        &*$p
    };
    ($kind:ident $p:ident) => {
        $p
    };
}

pub(crate) use {given, held, lent};

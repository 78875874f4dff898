//! What programs give to ops, and how it becomes what their bodies take: see [`arguments`](crate::ops::arguments).
//!
//! Each macro is told the row's name, a parameter's kind and its name, since one name of a kind may stand for several enums.

/// The enum that a parameter of a kind is of, by the row and the parameter's name.
macro_rules! word {
    (linalg_qr mode) => {
        $crate::ops::arguments::QrMode
    };
    (segment_reduce reduce) => {
        $crate::ops::arguments::SegmentReduction
    };
    (scatter reduce) => {
        $crate::ops::arguments::ScatterReduction
    };
    (kl_div reduction) => {
        $crate::ops::arguments::KlReduction
    };
    (linalg_lstsq driver) => {
        $crate::ops::arguments::LstsqDriver
    };
    ($op:ident driver) => {
        $crate::ops::arguments::SvdDriver
    };
    ($op:ident reduction) => {
        $crate::nn::Reduction
    };
    ($op:ident approximate) => {
        $crate::nn::Approximate
    };
    ($op:ident nonlinearity) => {
        $crate::nn::Nonlinearity
    };
    ($op:ident interpolation) => {
        $crate::ops::arguments::QuantileInterpolation
    };
    ($op:ident reduce) => {
        $crate::ops::arguments::Combine
    };
    (pad mode) => {
        $crate::ops::arguments::PadMode
    };
    ($op:ident pad_mode) => {
        $crate::ops::arguments::PadMode
    };
    ($op:ident UPLO) => {
        $crate::ops::arguments::Triangle
    };
    ($op:ident rounding_mode) => {
        $crate::ops::arguments::Rounding
    };
    ($op:ident norm) => {
        $crate::ops::arguments::FftNorm
    };
    ($op:ident indexing) => {
        $crate::ops::arguments::GridOrder
    };
    ($op:ident side) => {
        $crate::ops::arguments::Side
    };
    ($op:ident compute_mode) => {
        $crate::ops::arguments::DistanceMode
    };
    ($op:ident function) => {
        lucid_ir::ops::nn::ElementFn
    };
    ($op:ident cell) => {
        lucid_ir::ops::recurrent::RecurrentCell
    };
    ($op:ident how) => {
        lucid_ir::ops::communication::Reduce
    };
    ($op:ident packing) => {
        lucid_ir::ops::quantized::Packing
    };
}

/// What a program gives for a parameter: anything that converts to the kind's type, and for names of kinds an enum.
macro_rules! given {
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
    (einsum Text equation) => { impl AsRef<str> };
    ($op:ident Text group) => { impl AsRef<str> };
    ($op:ident Text $p:ident) => { impl Into<$crate::ops::arguments::Choice<'op, $crate::ops::macros::word!($op $p)>> };
    ($op:ident OptText $p:ident) => { impl Into<$crate::ops::arguments::MaybeChoice<'op, $crate::ops::macros::word!($op $p)>> };
    ($op:ident SomeText $p:ident) => { $crate::ops::macros::given!($op OptText $p) };
    ($op:ident $kind:ident $p:ident) => { $crate::ops::kinds::$kind };
}

/// What was given as something that can be lent as the kind's type.
macro_rules! held {
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
    (einsum Text equation $v:ident) => { $v.as_ref() };
    ($op:ident Text group $v:ident) => { $v.as_ref() };
    ($op:ident Text $p:ident $v:ident) => { $crate::ops::arguments::Choice::<'_, $crate::ops::macros::word!($op $p)>::name($v.into()) };
    ($op:ident OptText $p:ident $v:ident) => { $crate::ops::arguments::MaybeChoice::<'_, $crate::ops::macros::word!($op $p)>::name($v.into()) };
    ($op:ident SomeText $p:ident $v:ident) => { $crate::ops::macros::held!($op OptText $p $v) };
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

/// What was lent, given to the row's function once more.
macro_rules! again {
    (Text $p:ident) => {
        $crate::ops::arguments::Named($p)
    };
    (OptText $p:ident) => {
        $crate::ops::arguments::MaybeNamed($p)
    };
    (SomeText $p:ident) => {
        $crate::ops::arguments::MaybeNamed($p)
    };
    ($kind:ident $p:ident) => {
        $p
    };
}

pub(crate) use {again, given, held, lent, word};

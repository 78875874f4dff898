//! Primitives as trees of plain values, and back: what graph files and shape-polymorphic graphs are made of.
//!
//! Depends on nothing but the arguments' types. Invariant: `decode(encode(x))` is `x`, and decoding what no encoding gave is
//! `None`, never a panic. [`define_primitives`](crate::ops::macros) implements it for each family from its rows.

use crate::ops::conv::ConvArgs;
use crate::ops::index::ScatterMode;
use crate::ops::loss::{self, Alignment};
use crate::ops::nn::ElementFn;
use crate::ops::pool::PoolArgs;
use crate::ops::quantized::{Affine, Packing};
use crate::ops::recurrent::RecurrentCell;
use crate::ops::reduce::Reduction;
use crate::ops::view::Source;
use crate::primitive::Meta;
use lucid_core::random::Key;
use lucid_core::shape::{Layout, SliceDim};
use lucid_core::{DType, Device, Scalar};
use smallvec::{Array, SmallVec};
use std::sync::Arc;

/// A plain value: a leaf or a list.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Nothing.
    Null,
    /// A Boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A name.
    Str(String),
    /// Several values.
    List(Vec<Arg>),
    /// A number that depends on the sizes of inputs.
    Size {
        /// By which formula.
        formula: Polynomial,
        /// What is made of the formula's value.
        form: Form,
    },
}

/// What an [`Arg::Size`] makes of its formula's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The integer itself.
    Int,
    /// It as a real number.
    Real,
    /// One divided by it.
    Inverse,
}

/// `Σ factor · Π symbols`: a size as a formula of the symbols of a graph.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Polynomial {
    /// Pairs of a factor and the symbols that it is multiplied with, by number; one that is repeated is a power.
    pub terms: Vec<(i64, SmallVec<[u8; 4]>)>,
}

impl Polynomial {
    /// The value for these sizes; `None` where it overflows or a symbol is missing.
    pub fn at(&self, symbols: &[usize]) -> Option<i64> {
        self.terms.iter().try_fold(0i64, |sum, (factor, of)| {
            let product = of.iter().try_fold(*factor, |product, &symbol| {
                product.checked_mul(i64::try_from(*symbols.get(usize::from(symbol))?).ok()?)
            })?;
            sum.checked_add(product)
        })
    }
}

impl Arg {
    /// The same with the sizes of inputs put in; `None` where a formula has no value for them.
    pub fn at(&self, symbols: &[usize]) -> Option<Arg> {
        Some(match self {
            Arg::List(list) => Arg::List(list.iter().map(|arg| arg.at(symbols)).collect::<Option<_>>()?),
            Arg::Size { formula, form } => {
                let n = formula.at(symbols)?;
                match form {
                    Form::Int => Arg::Int(n),
                    Form::Real => Arg::Float(n as f64),
                    Form::Inverse => Arg::Float(1.0 / n as f64),
                }
            }
            Arg::Null | Arg::Bool(_) | Arg::Int(_) | Arg::Float(_) | Arg::Str(_) => self.clone(),
        })
    }

    /// The elements of a list of just so many.
    pub fn exactly<const N: usize>(&self) -> Option<&[Arg; N]> {
        self.list()?.try_into().ok()
    }

    /// The elements of a list.
    pub fn list(&self) -> Option<&[Arg]> {
        match self {
            Arg::List(list) => Some(list),
            Arg::Null | Arg::Bool(_) | Arg::Int(_) | Arg::Float(_) | Arg::Str(_) | Arg::Size { .. } => None,
        }
    }

    /// The name at a list's head, and the rest of it.
    pub fn tagged(&self) -> Option<(&str, &[Arg])> {
        match self.list()? {
            [Arg::Str(name), rest @ ..] => Some((name, rest)),
            _ => None,
        }
    }

    /// A list with a name at its head.
    pub fn tag(name: &str, rest: impl IntoIterator<Item = Arg>) -> Arg {
        Arg::List(std::iter::once(Arg::Str(name.to_string())).chain(rest).collect())
    }

    /// A list of encoded values.
    pub fn of<'a, T: Codec + 'a>(list: impl IntoIterator<Item = &'a T>) -> Arg {
        Arg::List(list.into_iter().map(T::encode).collect())
    }

    /// The values of a list.
    pub fn all<T: Codec>(&self) -> Option<Vec<T>> {
        self.list()?.iter().map(T::decode).collect()
    }
}

/// A type with an encoding.
pub trait Codec: Sized {
    /// As a plain value.
    fn encode(&self) -> Arg;
    /// Of a plain value; `None` where it is no encoding.
    fn decode(arg: &Arg) -> Option<Self>;
}

impl Codec for bool {
    fn encode(&self) -> Arg {
        Arg::Bool(*self)
    }
    fn decode(arg: &Arg) -> Option<bool> {
        match arg {
            Arg::Bool(b) => Some(*b),
            Arg::Null | Arg::Int(_) | Arg::Float(_) | Arg::Str(_) | Arg::List(_) | Arg::Size { .. } => None,
        }
    }
}

impl Codec for i64 {
    fn encode(&self) -> Arg {
        Arg::Int(*self)
    }
    fn decode(arg: &Arg) -> Option<i64> {
        match arg {
            Arg::Int(n) => Some(*n),
            Arg::Null | Arg::Bool(_) | Arg::Float(_) | Arg::Str(_) | Arg::List(_) | Arg::Size { .. } => None,
        }
    }
}

macro_rules! unsigned {
    ($($t:ty),*) => {$(
        impl Codec for $t {
            // None of a tensor's sizes is beyond 2^63.
            fn encode(&self) -> Arg {
                i64::try_from(*self).map_or_else(|_| Arg::Str(self.to_string()), Arg::Int)
            }
            fn decode(arg: &Arg) -> Option<$t> {
                match arg {
                    Arg::Int(n) => <$t>::try_from(*n).ok(),
                    Arg::Str(text) => text.parse().ok(),
                    Arg::Null | Arg::Bool(_) | Arg::Float(_) | Arg::List(_) | Arg::Size { .. } => None,
                }
            }
        }
    )*};
}
unsigned!(usize, u64);

impl Codec for u32 {
    fn encode(&self) -> Arg {
        Arg::Int(i64::from(*self))
    }
    fn decode(arg: &Arg) -> Option<u32> {
        i64::decode(arg).and_then(|n| u32::try_from(n).ok())
    }
}

impl Codec for f64 {
    fn encode(&self) -> Arg {
        Arg::Float(*self)
    }
    fn decode(arg: &Arg) -> Option<f64> {
        match arg {
            Arg::Float(x) => Some(*x),
            Arg::Null | Arg::Bool(_) | Arg::Int(_) | Arg::Str(_) | Arg::List(_) | Arg::Size { .. } => None,
        }
    }
}

impl<T: Codec> Codec for Option<T> {
    fn encode(&self) -> Arg {
        self.as_ref().map_or(Arg::Null, T::encode)
    }
    fn decode(arg: &Arg) -> Option<Option<T>> {
        match arg {
            Arg::Null => Some(None),
            given => T::decode(given).map(Some),
        }
    }
}

impl<T: Codec> Codec for Box<T> {
    fn encode(&self) -> Arg {
        T::encode(self)
    }
    fn decode(arg: &Arg) -> Option<Box<T>> {
        T::decode(arg).map(Box::new)
    }
}

impl<A: Array> Codec for SmallVec<A>
where
    A::Item: Codec,
{
    fn encode(&self) -> Arg {
        Arg::of(self)
    }
    fn decode(arg: &Arg) -> Option<SmallVec<A>> {
        arg.list()?.iter().map(A::Item::decode).collect()
    }
}

impl Codec for Arc<[usize]> {
    fn encode(&self) -> Arg {
        Arg::List(self.iter().map(Codec::encode).collect())
    }
    fn decode(arg: &Arg) -> Option<Arc<[usize]>> {
        arg.list()?.iter().map(usize::decode).collect()
    }
}

impl Codec for [bool; 2] {
    fn encode(&self) -> Arg {
        Arg::of(self)
    }
    fn decode(arg: &Arg) -> Option<[bool; 2]> {
        let [a, b] = arg.exactly()?;
        Some([bool::decode(a)?, bool::decode(b)?])
    }
}

impl Codec for [f64; 3] {
    fn encode(&self) -> Arg {
        Arg::of(self)
    }
    fn decode(arg: &Arg) -> Option<[f64; 3]> {
        let [a, b, c] = arg.exactly()?;
        Some([f64::decode(a)?, f64::decode(b)?, f64::decode(c)?])
    }
}

impl Codec for ElementFn {
    fn encode(&self) -> Arg {
        Arg::Str(self.name().to_string())
    }
    fn decode(arg: &Arg) -> Option<ElementFn> {
        let Arg::Str(name) = arg else { return None };
        ElementFn::of("graph", name).ok()
    }
}

impl Codec for Scalar {
    fn encode(&self) -> Arg {
        match self {
            Scalar::Bool(b) => Arg::Bool(*b),
            Scalar::Int(n) => Arg::Int(*n),
            Scalar::Float(x) => Arg::Float(*x),
            Scalar::Wide(n) => Arg::tag("wide", [Arg::Str(n.to_string())]),
            Scalar::Complex(re, im) => Arg::tag("complex", [Arg::Float(*re), Arg::Float(*im)]),
        }
    }
    fn decode(arg: &Arg) -> Option<Scalar> {
        match arg {
            Arg::Bool(b) => Some(Scalar::Bool(*b)),
            Arg::Int(n) => Some(Scalar::Int(*n)),
            Arg::Float(x) => Some(Scalar::Float(*x)),
            Arg::Null | Arg::Str(_) | Arg::Size { .. } => None,
            Arg::List(_) => match arg.tagged()? {
                ("wide", [n]) => u64::decode(n).map(Scalar::Wide),
                ("complex", [re, im]) => Some(Scalar::Complex(f64::decode(re)?, f64::decode(im)?)),
                _ => None,
            },
        }
    }
}

impl Codec for Key {
    fn encode(&self) -> Arg {
        Arg::of(&self.0)
    }
    fn decode(arg: &Arg) -> Option<Key> {
        let [a, b] = arg.exactly()?;
        Some(Key([u32::decode(a)?, u32::decode(b)?]))
    }
}

impl Codec for DType {
    fn encode(&self) -> Arg {
        Arg::Str(self.name().to_string())
    }
    fn decode(arg: &Arg) -> Option<DType> {
        match arg {
            Arg::Str(name) => DType::from_name(name),
            Arg::Null | Arg::Bool(_) | Arg::Int(_) | Arg::Float(_) | Arg::List(_) | Arg::Size { .. } => None,
        }
    }
}

macro_rules! named {
    ($($t:ty { $($var:path = $name:literal),* $(,)? })*) => {$(
        impl Codec for $t {
            fn encode(&self) -> Arg {
                Arg::Str(match self { $($var => $name,)* }.to_string())
            }
            fn decode(arg: &Arg) -> Option<$t> {
                let Arg::Str(name) = arg else { return None };
                match name.as_str() {
                    $($name => Some($var),)*
                    _ => None,
                }
            }
        }
    )*};
}
named! {
    // Not the GPU's real name: a file goes from one to another.
    Device { Device::Cpu = "cpu", Device::Gpu = "gpu", Device::Meta = "meta" }
    RecurrentCell {
        RecurrentCell::Tanh = "tanh", RecurrentCell::Relu = "relu", RecurrentCell::Lstm = "lstm",
        RecurrentCell::Gru = "gru",
    }
    ScatterMode {
        ScatterMode::Set = "set", ScatterMode::Add = "add", ScatterMode::Prod = "prod", ScatterMode::Max = "max",
        ScatterMode::Min = "min",
    }
    loss::Reduction {
        loss::Reduction::None = "none", loss::Reduction::Sum = "sum", loss::Reduction::Mean = "mean",
    }
    Packing {
        Packing::Q4_0 = "Q4_0", Packing::Q8_0 = "Q8_0", Packing::Q4K = "Q4_K", Packing::Q5K = "Q5_K", Packing::Q6K = "Q6_K",
        Packing::Affine4 = "affine4", Packing::Affine8 = "affine8"
    }
}

macro_rules! fields {
    ($($t:ident { $($field:ident),* })*) => {$(
        impl Codec for $t {
            fn encode(&self) -> Arg {
                Arg::List(vec![$(self.$field.encode()),*])
            }
            fn decode(arg: &Arg) -> Option<$t> {
                let mut parts = arg.list()?.iter();
                let made = $t { $($field: Codec::decode(parts.next()?)?),* };
                parts.next().is_none().then_some(made)
            }
        }
    )*};
}
fields! {
    Layout { shape, strides, offset }
    SliceDim { axis, start, step, len }
    ConvArgs { stride, padding, dilation, groups }
    PoolArgs { kernel, stride, padding, dilation, output, count_include_pad, divisor }
    Affine { group, bits }
    Alignment { inputs, labels, blank, zero_infinity }
    Reduction { axes, keepdim }
    Meta { shape, dtype }
}

impl Codec for Source {
    fn encode(&self) -> Arg {
        match self {
            Source::Plain => Arg::tag("plain", []),
            Source::Logical(layout) => Arg::tag("logical", [layout.encode()]),
            Source::Storage(layout) => Arg::tag("storage", [layout.encode()]),
        }
    }
    fn decode(arg: &Arg) -> Option<Source> {
        match arg.tagged()? {
            ("plain", []) => Some(Source::Plain),
            ("logical", [layout]) => Codec::decode(layout).map(Source::Logical),
            ("storage", [layout]) => Codec::decode(layout).map(Source::Storage),
            _ => None,
        }
    }
}

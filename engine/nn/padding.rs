//! Padding layers.

use super::module::located;
use super::{Forward, Module, PaddingMode, Place};
use crate::{Error, Result, Tensor};

/// How much is added before and after each dimension, the last first: `[left, right, top, bottom]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends<const N: usize>([[i64; 2]; N]);

impl<const N: usize> From<i32> for Ends<N> {
    fn from(n: i32) -> Self {
        Ends([[n.into(); 2]; N])
    }
}
impl<const N: usize> From<[[i64; 2]; N]> for Ends<N> {
    fn from(list: [[i64; 2]; N]) -> Self {
        Ends(list)
    }
}

/// Adds elements around the last N dimensions; negative amounts cut off.
///
/// ```
/// use lucid::prelude::*;
/// # fn main() -> Result<()> {
/// let x = tensor!([[[[1.0, 2.0], [3.0, 4.0]]]])?;
/// assert_eq!(nn::ReflectionPad2d::new(1).forward(&x)?.shape(), [1, 1, 4, 4]);
/// // One column on the left, nothing above or below.
/// assert_eq!(nn::ZeroPad2d::new([[1, 0], [0, 0]]).forward(&x)?.shape(), [1, 1, 2, 3]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Module)]
pub struct Pad<const N: usize, const MODE: u8> {
    #[module(skip)]
    ends: Ends<N>,
    value: f64,
    place: Place,
}

const MODES: [PaddingMode; 4] =
    [PaddingMode::Zeros, PaddingMode::Reflect, PaddingMode::Replicate, PaddingMode::Circular];

macro_rules! names {
    ($($(#[$doc:meta])* $one:ident $two:ident $three:ident $mode:literal;)*) => {$(
        $(#[$doc])*
        pub type $one = Pad<1, $mode>;
        $(#[$doc])*
        pub type $two = Pad<2, $mode>;
        $(#[$doc])*
        pub type $three = Pad<3, $mode>;
    )*};
}
names! {
    /// Adds zeros.
    ZeroPad1d ZeroPad2d ZeroPad3d 0;
    /// Adds one number, given by [`Pad::value`].
    ConstantPad1d ConstantPad2d ConstantPad3d 0;
    /// Adds the elements mirrored at the edge.
    ReflectionPad1d ReflectionPad2d ReflectionPad3d 1;
    /// Adds the edge's element.
    ReplicationPad1d ReplicationPad2d ReplicationPad3d 2;
    /// Adds the elements of the other end.
    CircularPad1d CircularPad2d CircularPad3d 3;
}

impl<const N: usize, const MODE: u8> Pad<N, MODE> {
    /// As much at every end, or `[[before, after]; N]` of each dimension, the last first.
    pub fn new(padding: impl Into<Ends<N>>) -> Self {
        Pad { ends: padding.into(), value: 0.0, place: Place::default() }
    }

    /// What is added.
    #[must_use]
    pub fn value(mut self, value: f64) -> Self {
        self.value = value;
        self
    }
}

impl<const N: usize, const MODE: u8> Forward for Pad<N, MODE> {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        located(self, || {
            let list: Vec<isize> = self.ends.0.iter().flatten().map(|&n| n as isize).collect();
            let Some(mode) = MODES.get(usize::from(MODE)) else {
                return Err(Error::value("pad", format!("no padding mode has number {MODE}")));
            };
            let value = (*mode == PaddingMode::Zeros).then(|| self.value.into());
            x.pad(&list, mode.kind(), value)
        })
    }
}

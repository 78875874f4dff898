//! [`tensor`]: tensors of numbers as they stand in a program, in nested arrays.
//!
//! Depends on `tensor` and the op table. Arrays of Rust have their sizes in their types, so that no ragged one exists.

use crate::dtype::Category;
use crate::{Device, Element, Result, Tensor};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};

/// A number, or arrays of numbers nested to any depth: what [`tensor`] takes.
pub trait Nested {
    /// What the numbers are as elements.
    type Element: Element;
    /// Are they as Rust has them where nothing else is said, `i32` or `f64`? Then they stand for integers or real numbers of
    /// any width.
    const PLAIN: bool;
    /// Appends the sizes, outermost first.
    fn sizes(sizes: &mut Vec<usize>);
    /// Appends the numbers, in row-major order.
    fn extend(&self, elements: &mut Vec<Self::Element>);
}

macro_rules! numbers {
    ($($number:ty, $Element:ty, $plain:literal, |$x:ident| $made:expr;)*) => {$(
        impl Nested for $number {
            type Element = $Element;
            const PLAIN: bool = $plain;
            fn sizes(_: &mut Vec<usize>) {}
            fn extend(&self, elements: &mut Vec<$Element>) {
                let $x = *self;
                elements.push($made);
            }
        }
    )*};
}
numbers! {
    i32, i64, true, |x| x.into();
    f64, f64, true, |x| x;
    bool, bool, false, |x| x;
    u8, u8, false, |x| x;
    i8, i8, false, |x| x;
    i16, i16, false, |x| x;
    i64, i64, false, |x| x;
    f16, f16, false, |x| x;
    bf16, bf16, false, |x| x;
    f32, f32, false, |x| x;
    Complex32, Complex32, false, |x| x;
    Complex64, Complex64, false, |x| x;
    (f64, f64), Complex64, true, |x| Complex64::new(x.0, x.1);
}

impl<T: Nested, const N: usize> Nested for [T; N] {
    type Element = T::Element;
    const PLAIN: bool = T::PLAIN;
    fn sizes(sizes: &mut Vec<usize>) {
        sizes.push(N);
        T::sizes(sizes);
    }
    fn extend(&self, elements: &mut Vec<T::Element>) {
        self.iter().for_each(|x| x.extend(elements));
    }
}

/// A tensor of a number, or of nested arrays of numbers, on the default device.
///
/// Numbers that are written without a type become what PyTorch makes of Python's: integers int64, and real numbers the
/// default dtype. So do all of type `i32` and `f64`, since Rust does not tell them apart; [`Tensor::from_slice`] makes
/// tensors of int32 and float64 of them. The other types stay what they are. A pair of `f64` is a complex number.
///
/// # Errors
/// Where the device has no room.
///
/// # Examples
/// ```
/// use lucid::{tensor, DType};
/// let x = tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])?;
/// assert_eq!((x.shape(), x.dtype()), (&[3, 2][..], DType::F32));
/// assert_eq!(tensor([1, 2])?.dtype(), DType::I64);
/// assert_eq!(tensor([1u8, 2])?.dtype(), DType::U8);
/// assert_eq!(tensor((0.0, 1.0))?.dtype(), DType::C64);
/// # lucid::Result::<()>::Ok(())
/// ```
pub fn tensor<N: Nested>(numbers: N) -> Result<Tensor> {
    let made = on_cpu(&numbers)?;
    let default = crate::default_dtype();
    let made = match made.dtype().category() {
        Category::Float if N::PLAIN => made.cast(default)?,
        Category::Complex if N::PLAIN => made.cast(default.to_complex())?,
        Category::Bool | Category::Integer | Category::Float | Category::Complex => made,
    };
    made.to_device(crate::default_device())
}

/// The numbers in the dtype of their elements.
pub(crate) fn on_cpu<N: Nested>(numbers: &N) -> Result<Tensor> {
    let (mut sizes, mut elements) = (Vec::new(), Vec::new());
    N::sizes(&mut sizes);
    numbers.extend(&mut elements);
    Tensor::of_elements(&elements, &sizes, Device::Cpu)
}

//! [`Tensor`]: a handle on storage, with its place on the tape.
//!
//! Ops are methods made from the table in `ops`. What is written here is what has no row: making tensors from data and
//! reading them back, and the bookkeeping of gradients; in-place writes are in `in_place`. Handles are cheap to clone and may cross threads.

use crate::autograd::{self, Auto, Edge, Origin, Standing};
use crate::dispatch::{self, Meta, Storage};
use crate::dtype::Element;
use crate::ops::{create, DimList, Operand};
use crate::shape::{numel, Layout};
use crate::{DType, Device, Error, Result, Scalar};
use std::ops::{Add, Div, Mul, Neg, Sub};
use std::sync::Arc;

/// An array of numbers on one device, with its history where gradients are asked for.
#[derive(Clone)]
pub struct Tensor(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) storage: Storage,
    pub(crate) auto: Auto,
}

impl Tensor {
    #[inline]
    pub(crate) fn from_storage(storage: Storage) -> Tensor {
        Tensor(Arc::new(Inner { storage, auto: Auto::default() }))
    }

    pub(crate) fn with_auto(storage: Storage, auto: Auto) -> Tensor {
        Tensor(Arc::new(Inner { storage, auto }))
    }

    #[inline]
    pub(crate) fn storage(&self) -> &Storage {
        &self.0.storage
    }

    #[inline]
    pub(crate) fn layout(&self) -> &Layout {
        self.0.storage.layout()
    }

    /// A tensor of the given elements, in row-major order.
    ///
    /// # Errors
    /// Where the number of elements is not the shape's, or the device has not the dtype or no room.
    ///
    /// # Examples
    /// ```
    /// use lucid::{DType, Device, Tensor};
    /// let x = Tensor::from_slice(&[1i32, 2, 3, 4], (2, 2), Device::Cpu)?;
    /// assert_eq!((x.shape(), x.dtype()), (&[2, 2][..], DType::I32));
    /// assert!(Tensor::from_slice(&[1i32, 2, 3], [2, 2], Device::Cpu).is_err());
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn from_slice<'a, T: Element>(data: &[T], shape: impl Into<DimList<'a>>, device: Device) -> Result<Tensor> {
        Tensor::of_elements(data, &create::sizes("tensor", &shape.into())?, device)
    }

    /// [`Tensor::from_slice`] of sizes as tensors have them.
    pub(crate) fn of_elements<T: Element>(data: &[T], shape: &[usize], device: Device) -> Result<Tensor> {
        if data.len() != numel(shape) {
            let why = format!("{} elements do not make a tensor of shape {shape:?}", data.len());
            return Err(Error::shape("tensor", why, &[shape]));
        }
        Tensor::of_bytes(lucid_cpu::as_bytes(data), shape, T::DTYPE, device)
    }

    /// A tensor of the given elements as bytes, in row-major order and the machine's byte order.
    ///
    /// # Errors
    /// Where the number of bytes is not the shape's, or the device has not the dtype or no room.
    ///
    /// # Examples
    /// ```
    /// use lucid::{DType, Device, Tensor};
    /// let x = Tensor::from_bytes(&1i32.to_ne_bytes(), [1, 1], DType::I32, Device::Cpu)?;
    /// assert_eq!(x.to_vec2::<i32>()?, [[1]]);
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn from_bytes<'a>(bytes: &[u8], shape: impl Into<DimList<'a>>, dtype: DType, device: Device) -> Result<Tensor> {
        Tensor::of_bytes(bytes, &create::sizes("tensor", &shape.into())?, dtype, device)
    }

    /// [`Tensor::from_bytes`] of sizes as tensors have them.
    pub(crate) fn of_bytes(bytes: &[u8], shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        let size = shape.iter().try_fold(dtype.size(), |size, &n| size.checked_mul(n));
        if size != Some(bytes.len()) {
            let why = format!("{} bytes do not make a {dtype} tensor of shape {shape:?}", bytes.len());
            return Err(Error::shape("tensor", why, &[shape]));
        }
        if crate::float64::on_device(dtype, device) != dtype {
            return Tensor::of_bytes(bytes, shape, dtype, Device::Cpu)?.to_device(device);
        }
        dispatch::from_bytes(bytes, &Meta::new(shape, dtype), device).map(Tensor::from_storage)
    }

    /// A 0-d tensor of one number, unseen by the tape.
    pub(crate) fn constant(value: Scalar, dtype: DType, device: Device) -> Result<Tensor> {
        let mut t = Tensor::full_of(&[], value, dtype, device)?;
        if let Some(inner) = Arc::get_mut(&mut t.0) {
            inner.auto.standing = Standing::Number(value);
        }
        Ok(t)
    }

    /// The number that [`Tensor::constant`] made it of: known without waiting for the device.
    pub(crate) fn number(&self) -> Option<Scalar> {
        match self.0.auto.standing {
            Standing::Number(value) => Some(value),
            Standing::Plain | Standing::Overwritable(_) => None,
        }
    }

    /// Sizes, one per dimension.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.layout().shape
    }

    /// Steps in elements between neighbours along each dimension, as PyTorch reports them.
    #[inline]
    pub fn strides(&self) -> &[usize] {
        &self.layout().strides
    }

    /// Index of the first element in the storage.
    pub fn storage_offset(&self) -> usize {
        self.layout().offset
    }

    /// Number of elements that the storage has.
    pub fn storage_numel(&self) -> usize {
        self.0.storage.storage_numel()
    }

    /// Number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.layout().ndim()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.layout().numel()
    }

    /// Element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.storage.dtype()
    }

    /// Where it lives.
    #[inline]
    pub fn device(&self) -> Device {
        self.0.storage.device()
    }

    /// Are the elements in row-major order without gaps?
    pub fn is_contiguous(&self) -> bool {
        self.layout().is_contiguous()
    }

    /// How often the storage has been written in place; shared by all views of it, but not with [`data`](Tensor::data).
    pub fn version(&self) -> u32 {
        self.0.storage.version()
    }

    /// Are both handles on the same tensor (not merely on equal ones)?
    ///
    /// # Examples
    /// ```
    /// use lucid::tensor;
    /// let x = tensor([1.0, 2.0])?;
    /// assert!(x.is_same(&x.clone()) && !x.is_same(&x.copy()?));
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn is_same(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Do both show the same storage?
    ///
    /// # Examples
    /// ```
    /// use lucid::tensor;
    /// let x = tensor([[1, 2], [3, 4]])?;
    /// assert!(x.t()?.shares_storage(&x) && !x.copy()?.shares_storage(&x));
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn shares_storage(&self, other: &Tensor) -> bool {
        self.0.storage.shares_storage(&other.0.storage)
    }

    /// Does `vmap` hide a dimension of it?
    #[doc(hidden)]
    pub fn is_batched(&self) -> bool {
        self.0.storage.batch().is_some()
    }

    /// Is this the only handle on the tensor, and the only tensor on its storage?
    pub(crate) fn is_unshared(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && self.0.storage.is_unshared()
    }

    /// The same storage, cut off from the tape. Writes through either are seen by both.
    ///
    /// # Errors
    /// None today; a `Result` so that it reads as the ops do.
    ///
    /// # Examples
    /// ```
    /// use lucid::tensor;
    /// let x = tensor([1.0, 2.0])?.requires_grad_(true)?;
    /// let y = (&x * 2.0)?;
    /// assert!(y.requires_grad() && !y.detach()?.requires_grad());
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn detach(&self) -> Result<Tensor> {
        if let Some(batch) = self.0.storage.batch() {
            return batch.value.detach().map(|value| batch.with(value));
        }
        if let Some(detached) = crate::sparse::detached(self)? {
            return Ok(detached);
        }
        Ok(Tensor::with_auto(self.0.storage.clone(), self.0.auto.cut_off()))
    }

    /// The elements in row-major order. Evaluates.
    ///
    /// # Errors
    /// [`Error::DtypeMismatch`] where `T` is not the tensor's dtype, and what the evaluation reports.
    ///
    /// # Examples
    /// ```
    /// use lucid::tensor;
    /// let x = tensor([[1.0, 2.0], [3.0, 4.0]])?.t()?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 3.0, 2.0, 4.0]);
    /// assert!(x.to_vec::<f64>().is_err());
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            let why = format!("the tensor holds {}, not {}; cast it first", self.dtype(), T::DTYPE);
            return Err(Error::dtype("to_vec", why, &[self.dtype(), T::DTYPE]));
        }
        lucid_cpu::from_bytes(&self.to_bytes()?)
    }

    /// The elements as bytes in row-major order. Evaluates.
    ///
    /// # Errors
    /// What the evaluation reports.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        dispatch::to_bytes(self)
    }

    /// The only element. Evaluates.
    ///
    /// # Errors
    /// [`Error::Runtime`] where there is not exactly one element, and what the evaluation reports.
    ///
    /// # Examples
    /// ```
    /// use lucid::{tensor, Scalar};
    /// assert_eq!(tensor([[7]])?.item()?, Scalar::Int(7));
    /// assert_eq!(tensor(0.5)?.item_f64()?, 0.5);
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn item(&self) -> Result<Scalar> {
        if self.is_batched() {
            return Err(Error::runtime("item", crate::batching::ITEM));
        }
        if self.numel() != 1 {
            let why = format!(
                "a Tensor with {} elements cannot be converted to Scalar (shape: {:?})",
                self.numel(),
                self.shape()
            );
            return Err(Error::runtime("item", why));
        }
        let _name = autograd::op_name().is_none().then(|| autograd::OpScope::of("item", 0));
        let bytes = self.to_bytes()?;
        crate::with_dtype!(self.dtype(), T => Ok(lucid_cpu::from_bytes::<T>(&bytes)?[0].into()))
    }

    /// The only element as a float. Evaluates.
    ///
    /// # Errors
    /// As [`Tensor::item`].
    pub fn item_f64(&self) -> Result<f64> {
        self.item().map(Scalar::to_f64)
    }

    /// Is the only element anything but zero? Evaluates.
    ///
    /// # Errors
    /// As [`Tensor::item`].
    pub fn item_bool(&self) -> Result<bool> {
        self.item().map(Scalar::to_bool)
    }

    /// Computes what is pending for this tensor. On the CPU nothing ever is.
    ///
    /// # Errors
    /// What the evaluation reports.
    pub fn eval(&self) -> Result<()> {
        eval(&[self], true)
    }

    // ---- gradients ---------------------------------------------------------------------------------------------------

    /// Is a gradient recorded for what is computed from this tensor?
    pub fn requires_grad(&self) -> bool {
        autograd::requires_grad(self)
    }

    /// Was this tensor made by the user, rather than recorded on the tape?
    pub fn is_leaf(&self) -> bool {
        !autograd::requires_grad(self) || (!self.is_sparse() && crate::batching::bare(self).0.auto.is_leaf())
    }

    /// Is it a view of another tensor?
    pub fn is_view(&self) -> bool {
        self.0.auto.view.as_ref().is_some_and(|v| !v.itself && v.origin() != Origin::Input)
    }

    /// The tensor that this is a view of.
    pub fn view_base(&self) -> Option<Tensor> {
        self.0.auto.view.as_ref().filter(|_| self.is_view()).map(|v| v.base.clone())
    }

    /// Is it an input that a function transform made, a leaf to the function that is transformed?
    #[doc(hidden)]
    pub fn is_input(&self) -> bool {
        let bare = crate::batching::bare(self);
        bare.0.auto.view.as_ref().is_some_and(|v| v.origin() == Origin::Input)
    }

    /// Raises [`version`](Tensor::version), as if the elements had been written: a gradient that needs what was there is an
    /// error from now on.
    #[doc(hidden)]
    pub fn touch(&self) {
        self.storage().touch();
    }

    /// Was it made in inference mode? Such tensors cannot be saved for a gradient.
    #[doc(hidden)]
    pub fn is_inference(&self) -> bool {
        self.0.auto.inference
    }

    /// Says whether gradients are wanted for this leaf, and gives it back.
    ///
    /// # Errors
    /// [`Error::Runtime`] for a dtype without gradients, or a recorded tensor.
    ///
    /// # Examples
    /// ```
    /// use lucid::tensor;
    /// let x = tensor([1.0, 2.0])?.requires_grad_(true)?;
    /// assert!(x.requires_grad() && x.is_leaf() && !(&x * 2.0)?.is_leaf());
    /// assert!(tensor([1, 2])?.requires_grad_(true).is_err());
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn requires_grad_(&self, requires_grad: bool) -> Result<Tensor> {
        if let Some(batch) = self.0.storage.batch() {
            batch.value.requires_grad_(requires_grad)?;
            return Ok(self.clone());
        }
        if requires_grad && self.is_sparse() {
            let why = "sparse tensors are no leaves; make them of values that require a gradient";
            return Err(Error::not_implemented("requires_grad_", why));
        }
        if requires_grad && !self.dtype().is_differentiable() {
            let why =
                format!("only Tensors of floating point and complex dtype can require gradients, got {}", self.dtype());
            return Err(Error::runtime("requires_grad_", why));
        }
        if requires_grad && self.is_inference() && !autograd::inference_mode_enabled() {
            let why = "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.";
            return Err(Error::runtime("requires_grad_", why));
        }
        if !self.is_leaf() && !requires_grad {
            let why = "you can only change requires_grad flags of leaf variables; use .detach()";
            return Err(Error::runtime("requires_grad_", why));
        }
        if self.is_leaf() {
            self.0.auto.set_requires_grad(requires_grad);
        }
        Ok(self.clone())
    }

    /// The gradient that backward passes have summed up.
    pub fn grad(&self) -> Option<Tensor> {
        self.0.auto.grad()
    }

    /// Replaces or removes the gradient.
    ///
    /// # Errors
    /// Where shape, dtype or device are not this tensor's.
    pub fn set_grad(&self, grad: Option<Tensor>) -> Result<()> {
        if let Some(g) = &grad {
            if g.shape() != self.shape() {
                return Err(Error::shape(
                    "grad",
                    "assigned grad has data of a different size",
                    &[self.shape(), g.shape()],
                ));
            }
            if let Some(dtype) = self.grad_dtype().filter(|&dtype| dtype != g.dtype()) {
                let why = "assigned grad has data of a different type than the tensor's grad_dtype";
                return Err(Error::dtype("grad", why, &[dtype, g.dtype()]));
            }
            if g.device() != self.device() {
                return Err(Error::device("grad", "assigned grad is on another device", &[self.device(), g.device()]));
            }
        }
        self.0.auto.set_grad(grad);
        Ok(())
    }

    /// Adds the gradients of this 0-d tensor to its leaves.
    ///
    /// # Errors
    /// [`Error::Runtime`] where there is more than one element or no history, and what the gradients' ops report.
    ///
    /// # Examples
    /// ```
    /// use lucid::{tensor, testing::assert_close};
    /// let x = tensor([1.0, 2.0])?.requires_grad_(true)?;
    /// x.square()?.sum(None, false, None)?.backward()?;
    /// assert_close(&x.grad().unwrap(), [2.0, 4.0]);
    /// # lucid::Result::<()>::Ok(())
    /// ```
    pub fn backward(&self) -> Result<()> {
        autograd::backward(std::slice::from_ref(self), &[None], autograd::BackwardOptions::default(), None)
    }

    /// Where the gradient of this tensor goes.
    pub(crate) fn edge(&self) -> Option<Edge> {
        autograd::edge_of(self)
    }
}

/// Computes what is pending for all of these tensors in one pass; without `wait` it only starts.
///
/// # Errors
/// What the evaluation reports.
pub fn eval(tensors: &[&Tensor], wait: bool) -> Result<()> {
    dispatch::eval(tensors, wait)
}

/// A number in the place of the first tensor: it takes part in the dtype as PyTorch's numbers do.
fn leading(number: Scalar, other: &Tensor) -> Result<Tensor> {
    let dtype = match number {
        Scalar::Float(_) if other.dtype().is_integral() => crate::default_dtype(),
        Scalar::Int(_) if other.dtype() == DType::Bool => DType::I64,
        _ => other.dtype(),
    };
    Tensor::constant(number, dtype, other.device())
}

/// `a op b` where `a` is a number. Of one type each, so that a literal needs no suffix in the middle of an expression.
macro_rules! numbers_first {
    ($Trait:ident $method:ident $($number:ty)*) => {$(
        impl $Trait<&Tensor> for $number {
            type Output = Result<Tensor>;
            fn $method(self, other: &Tensor) -> Result<Tensor> {
                $Trait::$method(&leading(self.into(), other)?, other)
            }
        }
        impl $Trait<Tensor> for $number {
            type Output = Result<Tensor>;
            fn $method(self, other: Tensor) -> Result<Tensor> {
                $Trait::$method(self, &other)
            }
        }
    )*};
}

/// `a op b` for tensors and numbers, giving what the method gives.
macro_rules! operators {
    ($($Trait:ident $method:ident |$a:ident, $b:ident| $body:expr;)*) => {$(
        impl<'a, R: Into<Operand<'a>>> $Trait<R> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, other: R) -> Result<Tensor> {
                let ($a, $b): (&Tensor, Operand<'a>) = (self, other.into());
                $body
            }
        }
        impl<'a, R: Into<Operand<'a>>> $Trait<R> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, other: R) -> Result<Tensor> {
                $Trait::$method(&self, other)
            }
        }
        impl $Trait<Tensor> for &Tensor {
            type Output = Result<Tensor>;
            fn $method(self, other: Tensor) -> Result<Tensor> {
                $Trait::$method(self, &other)
            }
        }
        impl $Trait<Tensor> for Tensor {
            type Output = Result<Tensor>;
            fn $method(self, other: Tensor) -> Result<Tensor> {
                $Trait::$method(&self, &other)
            }
        }
        numbers_first! { $Trait $method f64 i64 }
    )*};
}
operators! {
    Add add |a, b| crate::ops::binary::add(a, b, Scalar::ONE);
    Sub sub |a, b| crate::ops::binary::sub(a, b, Scalar::ONE);
    Mul mul |a, b| crate::ops::binary::mul(a, b);
    Div div |a, b| crate::ops::binary::div(a, b, None);
}

impl Neg for &Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        crate::ops::unary::neg(self)
    }
}

impl Neg for Tensor {
    type Output = Result<Tensor>;
    fn neg(self) -> Result<Tensor> {
        crate::ops::unary::neg(&self)
    }
}

/// Sizes as an op's arguments take them.
pub(crate) fn signed(shape: &[usize]) -> smallvec::SmallVec<[isize; 4]> {
    shape.iter().map(|&n| n as isize).collect()
}

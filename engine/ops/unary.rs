//! Element-wise ops on one tensor.
//!
//! The whole of an op is its row here, its arm in `cpu/elementwise.rs` and its arm in `mlx/elementwise.rs`.

use super::macros::define_ops;
use super::nn::element_back;
use super::nn::ElementFn;
use crate::dispatch::{self, Meta, Prim};
use crate::ops::OpRow;
use crate::{Result, Tensor};
pub use lucid_ir::ops::unary::*;
use lucid_ir::unary_ops;
use std::f64::consts::{FRAC_2_SQRT_PI, LN_10, LN_2};

/// √(2π).
const SQRT_TAU: f64 = 2.506_628_274_631_000_5;

unary_ops!(define_ops);

fn unary(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    let schema = op.schema();
    schema.check(x.dtype())?;
    // What is real is its own conjugate.
    if op == UnaryOp::Conj && !x.dtype().is_complex() {
        return Ok(x.clone());
    }
    match schema.result {
        super::ResultDType::Own if x.dtype() == crate::DType::Bool => unary_as(op, &x.cast(crate::DType::I64)?),
        super::ResultDType::Float if x.dtype().is_integral() => unary_as(op, &x.cast(crate::default_dtype())?),
        _ => unary_as(op, x),
    }
}

fn unary_as(op: UnaryOp, x: &Tensor) -> Result<Tensor> {
    let dtype = op.schema().result.of(x.dtype());
    dispatch::apply1(Prim::Unary(op), &[x], Meta::new(x.shape(), dtype))
}

/// `x 2⁻ᵉ`, in two halves: one power may be out of range where the product is not.
fn without_exponent(x: &Tensor, e: &Tensor) -> Result<Tensor> {
    let half = (-&(e * 0.5)?.trunc()?)?;
    let rest = (-&(e + &half)?)?;
    &(x * &half.exp2()?)? * &rest.exp2()?
}

/// `g` times the slope of `silu`: `s (1 + x (1 - s))` with `s = sigmoid(x)`.
fn silu_gradient(g: &Tensor, x: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_complex() {
        return element_back(g, x, ElementFn::Silu, [0.0; 3]);
    }
    let x = x.conjugated()?;
    let s = x.sigmoid()?;
    g * &(&s * &((x * &(1.0 - &s)?)? + 1.0)?)?
}

/// `g` times the slope of `sigmoid` where its result is `y`: `y (1 - y)`.
fn sigmoid_gradient(g: &Tensor, y: &Tensor) -> Result<Tensor> {
    if !y.dtype().is_complex() {
        return element_back(g, y, ElementFn::SigmoidResult, [0.0; 3]);
    }
    let y = y.conjugated()?;
    (g * &y)? * &(1.0 - &y)?
}

/// `g` times the slope of `tanh` where its result is `y`: `1 - y²`.
fn tanh_gradient(g: &Tensor, y: &Tensor) -> Result<Tensor> {
    match y.dtype().is_complex() {
        true => g * &(1.0 - &y.conjugated()?.square()?)?,
        false => element_back(g, y, ElementFn::TanhResult, [0.0; 3]),
    }
}

/// `y / x` for an odd function `y` of slope ½ at 0: ½ there.
fn over_x(y: &Tensor, x: &Tensor) -> Result<Tensor> {
    let zero = x.eq(0)?;
    let safe = x.filled(&zero, 1.0)?;
    (y / &safe)?.filled(&zero, 0.5)
}

/// `1 / √(x² - 1)`; of complex numbers the product of two roots, whose branch cuts are those of `acosh`.
fn acosh_slope(x: &Tensor) -> Result<Tensor> {
    match x.dtype().is_complex() {
        true => (x - 1.0)?.rsqrt()? * &(x + 1.0)?.rsqrt()?,
        false => (x.square()? - 1.0)?.rsqrt(),
    }
}

impl Tensor {
    /// The complex conjugate; real tensors as they are.
    pub(crate) fn conjugated(&self) -> Result<Tensor> {
        match self.dtype().is_complex() {
            true => self.conj_physical(),
            false => Ok(self.clone()),
        }
    }
}

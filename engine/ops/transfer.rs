//! Changing dtype or device, and copying.
//!
//! A change of device is the one op that sees both backends' arrays; `dispatch` carries it out, in place or through bytes.

use super::macros::define_ops;
use crate::dispatch::{self, Meta, Prim};
use crate::{float64, DType, Device, Result, Tensor};
pub use lucid_ir::ops::transfer::*;
use lucid_ir::transfer_ops;

transfer_ops!(define_ops);

fn cast_body(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let dtype = float64::on_device(dtype, x.device());
    match x.dtype() == dtype {
        true => Ok(x.clone()),
        false => dispatch::apply1(Prim::Transfer(TransferOp::Cast { dtype }), &[x], Meta::new(x.shape(), dtype)),
    }
}

fn move_body(x: &Tensor, device: Device) -> Result<Tensor> {
    let dtype = float64::on_device(x.dtype(), device);
    if dtype != x.dtype() {
        return move_body(&x.cast(dtype)?, device);
    }
    match x.device() == device {
        true => Ok(x.clone()),
        false => dispatch::apply1(Prim::Transfer(TransferOp::Move { device }), &[x], Meta::new(x.shape(), x.dtype())),
    }
}

fn copy_body(x: &Tensor) -> Result<Tensor> {
    dispatch::apply1(Prim::Transfer(TransferOp::Copy), &[x], Meta::new(x.shape(), x.dtype()))
}

//! Sums of products: matrix products and what is made of them.
//!
//! One primitive, the batched product of matrices; kernels are in `cpu/matmul.rs` and `mlx/contract.rs`.

use super::macros::define_ops;
use super::{result_type, Operand};
use crate::autograd::OpScope;
use crate::dispatch::{self, Meta, Prim};
use crate::dtype::Category;
use crate::shape::{self, Shape};
use crate::{sparse, DType, Error, Result, Scalar, Tensor};
use lucid_ir::contract_ops;
pub use lucid_ir::ops::contract::*;

contract_ops!(define_ops);

/// The product of the last two dimensions of tensors of at least two, the others broadcasting.
fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    product_with(a, b, [by_columns(a), by_columns(b)])
}

/// [`product`], with the factors whose gradients are to be column-major.
fn product_with(a: &Tensor, b: &Tensor, columns: [bool; 2]) -> Result<Tensor> {
    let (left, right) = (a.shape(), b.shape());
    let (batch, &[m, k]) = matrices(left)?;
    let (others, &[l, n]) = matrices(right)?;
    if k != l {
        let why = format!("mat1 and mat2 shapes cannot be multiplied ({m}x{k} and {l}x{n})");
        return Err(Error::shape("matmul", why, &[left, right]));
    }
    let shape = match batch.is_empty() && others.is_empty() {
        true => Shape::from_slice(&[m, n]),
        false => {
            let mut shape = shape::broadcast("matmul", batch, others)?;
            shape.extend_from_slice(&[m, n]);
            shape
        }
    };
    dispatch::apply1(Prim::Contract(ContractOp::MatMul { columns }), &[a, b], Meta { shape, dtype: a.dtype() })
}

/// Is it one matrix that is column-major?
fn by_columns(x: &Tensor) -> bool {
    matches!((x.shape(), x.strides()), (&[rows, _], &[1, step]) if step == rows)
}

/// The product of a gradient, by columns where the factor whose gradient it is has that layout, as in PyTorch: a transposed weight's
/// has the layout of the weight then.
fn in_layout(columns: bool, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match columns {
        true => product(&b.transpose(-2, -1)?, &a.transpose(-2, -1)?)?.transpose(-2, -1),
        false => product(a, b),
    }
}

/// The sizes of a batch of matrices, and of each.
fn matrices(shape: &[usize]) -> Result<(&[usize], &[usize; 2])> {
    shape.split_last_chunk().ok_or_else(|| Error::shape("matmul", "expected at least two dimensions", &[shape]))
}

/// The conjugate transpose of the last two dimensions.
fn adjoint(x: &Tensor) -> Result<Tensor> {
    x.transpose(-2, -1)?.conj_physical()
}

fn check_dtypes(op: &'static str, a: &Tensor, b: &Tensor) -> Result<()> {
    schema::matmul.check(a.dtype())?;
    match a.dtype() == b.dtype() {
        true => Ok(()),
        false => {
            let why = "expected both tensors to have the same dtype; cast one with .to()";
            Err(Error::dtype(op, why, &[a.dtype(), b.dtype()]))
        }
    }
}

/// Truth values are not multiplied, but PyTorch sees that where something is to be: the product of matrices if it has no
/// elements, or is a sum of nothing.
fn product_of_nothing(a: &Tensor, b: &Tensor) -> Option<Result<Tensor>> {
    if a.dtype() != DType::Bool || b.dtype() != DType::Bool || a.ndim() < 2 || b.ndim() < 2 {
        return None;
    }
    let whole = || product(&a.cast(DType::U8)?, &b.cast(DType::U8)?)?.cast(DType::Bool);
    match whole() {
        Ok(y) if y.numel() > 0 && a.shape()[a.ndim() - 1] > 0 => None,
        y => Some(y),
    }
}

fn matmul_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if let Err(refused) = check_dtypes("matmul", a, b) {
        return product_of_nothing(a, b).unwrap_or(Err(refused));
    }
    if a.is_sparse() || b.is_sparse() {
        return sparse::product("matmul", a, b);
    }
    let ranks = (a.ndim(), b.ndim());
    // The steps have the names of what PyTorch calls.
    match ranks {
        (0, _) | (_, 0) => {
            let why = "both arguments to matmul need to be at least 1D";
            return Err(Error::shape("matmul", why, &[a.shape(), b.shape()]));
        }
        (2, 2) => return product(a, b),
        (2, 1) => OpScope::rename("matmul", "mv"),
        (3.., 1..) | (1, 3..) => OpScope::rename("matmul", "unsafe_view"),
        _ => {}
    }
    match ranks {
        (1, 1) if a.shape() != b.shape() => {
            let why = "inconsistent tensor size, expected 1D tensors to have the same number of elements";
            Err(Error::shape("dot", why, &[a.shape(), b.shape()]))
        }
        (1, 1) => {
            OpScope::rename("matmul", "dot");
            product(&a.unsqueeze(0)?, &b.unsqueeze(1)?)?.reshape(())
        }
        (1, 2) => {
            let _steps = OpScope::apart(&["matmul"], None);
            let y = mm(&a.unsqueeze(0)?, b)?;
            let _name = OpScope::of("vecmat", 0);
            y.squeeze(Some(&[-2]))
        }
        (1, _) => product(&a.unsqueeze(0)?, b)?.squeeze(Some(&[-2])),
        // The gradient of the matrix is an outer product, by rows.
        (_, 1) => product_with(a, &b.unsqueeze(1)?, [false; 2])?.squeeze(Some(&[-1])),
        // A batch of matrices times one matrix is one product of taller matrices.
        (_, 2) if a.ndim() > 2 && a.layout().is_contiguous() && a.numel() > 0 => {
            let mut shape: Vec<isize> = a.shape().iter().map(|&n| n as isize).collect();
            let _steps = OpScope::apart(&["matmul", "unsafe_view"], None);
            let rows = a.reshape(&[-1, shape[shape.len() - 1]])?;
            let flat = mm(&rows, b)?;
            *shape.last_mut().unwrap_or(&mut 0) = b.shape()[1] as isize;
            let _name = OpScope::of("unsafe_view", 0);
            flat.reshape(&shape)
        }
        _ => product(a, b),
    }
}

/// PyTorch asks factors for the sizes of these dimensions before it looks how many they have.
fn check_sizes(op: &'static str, sizes: &[(&Tensor, isize)]) -> Result<()> {
    sizes.iter().try_for_each(|&(t, dim)| match t.ndim() {
        0 => Err(Error::index(op, format!("Dimension specified as {dim} but tensor has no dimensions"))),
        n => shape::wrap_dim(op, dim, n).map(drop),
    })
}

fn of_rank(op: &'static str, rank_a: usize, rank_b: usize, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if op == "mv" {
        check_sizes(op, &[(a, 0)])?;
    }
    if a.ndim() != rank_a || b.ndim() != rank_b {
        let why = format!("expected tensors of {rank_a} and {rank_b} dimensions, got {} and {}", a.ndim(), b.ndim());
        return Err(Error::shape(op, why, &[a.shape(), b.shape()]));
    }
    matmul_body(a, b)
}

fn bmm_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.ndim() == 3 && b.ndim() == 3 && a.shape()[0] != b.shape()[0] {
        return Err(Error::shape("bmm", "both batches must have the same size", &[a.shape(), b.shape()]));
    }
    of_rank("bmm", 3, 3, a, b)
}

fn outer_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.ndim() != 1 || b.ndim() != 1 {
        return Err(Error::shape("outer", "expected two vectors", &[a.shape(), b.shape()]));
    }
    a.reshape(&[-1, 1])?.mul(b)
}

fn vdot_body(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    of_rank("vdot", 1, 1, &a.conj_physical()?, b)
}

fn summed_bmm(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    let y = bmm(a, b)?;
    y.sum(Some(&[0]), false, Some(y.dtype()))
}

fn add_product(
    op: &'static str,
    multiply: fn(&Tensor, &Tensor) -> Result<Tensor>,
    x: &Tensor,
    a: &Tensor,
    b: &Tensor,
    beta: Scalar,
    alpha: Scalar,
) -> Result<Tensor> {
    match op {
        "addbmm" | "baddbmm" => check_sizes(op, &[(a, 1), (b, 2)])?,
        "addmv" if a.ndim() != 2 || b.ndim() != 1 => {
            let why = format!("vector + matrix @ vector expected, got {}, {}, {}", x.ndim(), a.ndim(), b.ndim());
            return Err(Error::shape(op, why, &[x.shape(), a.shape(), b.shape()]));
        }
        // The product is rounded with the sum, once.
        "addmm" if [x, a, b].iter().all(|t| t.dtype() == x.dtype() && t.dtype().is_float8()) => {
            let single = |t: &Tensor| t.cast(DType::F32);
            return add_product(op, multiply, &single(x)?, &single(a)?, &single(b)?, beta, alpha)?.cast(x.dtype());
        }
        _ => {}
    }
    let y = multiply(a, b)?;
    // What is a sum of nothing is not multiplied, by infinity say.
    let alpha = if a.shape().last() == Some(&0) { Scalar::ONE } else { alpha };
    if x.dtype() != y.dtype() {
        let why = "expected the input and both factors to have the same dtype; cast one with .to()";
        return Err(Error::dtype(op, why, &[x.dtype(), y.dtype()]));
    }
    if y.numel() > 0 {
        // Sums of nothing are added all the same.
        schema::matmul.check(y.dtype())?;
    }
    added(op, x, y, beta, alpha)
}

/// `beta * x + alpha * y` in the shape of `y`.
fn added(op: &'static str, x: &Tensor, y: Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    let (alpha, beta) = (super::binary::within(&y, alpha), super::binary::within(&y, beta));
    let y = if alpha == Scalar::ONE { y } else { y.mul(alpha)? };
    if x.ndim() > y.ndim() || shape::broadcast(op, x.shape(), y.shape())?.as_slice() != y.shape() {
        let why = "the input must be expandable to the product";
        return Err(Error::shape(op, why, &[x.shape(), y.shape()]));
    }
    // With beta 0 the input is ignored, NaN included.
    match beta {
        b if b.to_f64() == 0.0 => y.also_of(x),
        // Element by element: it has the layout of the input.
        Scalar::ONE if op == "addr" => x + &y,
        _ if op == "addr" => x.mul(beta)? + &y,
        Scalar::ONE => y + x,
        _ => y + &x.mul(beta)?,
    }
}

/// `addr`, alone among sums with a product in that it promotes.
fn add_outer(x: &Tensor, a: &Tensor, b: &Tensor, beta: Scalar, alpha: Scalar) -> Result<Tensor> {
    const OP: &str = "addr";
    let dtype = result_type([Operand::Tensor(x), a.into(), b.into()])?;
    for (name, factor) in [("alpha", alpha), ("beta", beta)] {
        if dtype.is_integral() && factor.category() > Category::Integer {
            let why = "For integral input tensors, alpha and beta must not be floating point numbers.";
            return Err(Error::runtime(OP, why));
        }
        if matches!(factor, Scalar::Bool(_)) && dtype != DType::Bool {
            return Err(Error::runtime(OP, format!("Boolean {name} only supported for Boolean results.")));
        }
    }
    let (x, y) = (x.cast(dtype)?, outer(&a.cast(dtype)?, &b.cast(dtype)?)?);
    if dtype == DType::Bool {
        // Truth values: a factor says only whether its part counts.
        let part = |t: &Tensor, factor: Scalar| if factor.to_f64() == 0.0 { t.zeros_like() } else { Ok(t.clone()) };
        return part(&x, beta)?.logical_or(&part(&y, alpha)?);
    }
    added(OP, &x, y, beta, alpha)
}

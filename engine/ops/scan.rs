//! Running sums, products and extrema along one dimension.
//!
//! Kernels are in `cpu/scan.rs` and `gpu/reduce.rs`.

use super::macros::define_ops;
use crate::dispatch::{self, Meta, Prim};
use crate::{shape, DType, Result, Tensor};

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! scan_ops {
    ($cb:ident) => { $cb! { "scan" ScanOp :
        /// The running sum along `dim`; integers and `bool` sum in int64.
        method cumsum(dim: Dim; dtype: OptDtype = None) -> Tensor {
            [inplace] FullGpu Yes DTypes::ALL, Sum,
            prim Sum { axis: usize } Nothing {|c, g| [cumsum_reversed(g, *axis)]},
            run accumulate[|axis| ScanOp::Sum { axis }], torch "", samples ["N(3, 4), 0", "N(3, 4), -1", "I(0, 9, 3, 4), 1"]
        }
        /// The running product along `dim`; integers and `bool` multiply in int64. The gradient assumes no zeros.
        method cumprod(dim: Dim; dtype: OptDtype = None) -> Tensor {
            [inplace] FullGpu Yes DTypes::ALL, Sum,
            prim Prod { axis: usize } Both {|c, g| [
                cumsum_reversed(&(g * &c.out()?.conjugated()?)?, *axis)? / &c.x(0)?.conjugated()?
            ]},
            run accumulate[|axis| ScanOp::Prod { axis }], torch "", samples ["P(3, 4), 0", "P(3, 4), -1", "I(0, 9, 3, 4), 1"]
        }
        /// The index, along `dim`, of the largest element so far; the last at a tie. What `cummax` gathers by.
        function cumulative_argmax(input: Tensor, dim: Dim) -> Tensor {
            [nograd] Keep Yes DTypes::REAL, Index,
            prim ArgMax { axis: usize } Nothing {none},
            run arg_scan[|axis| ScanOp::ArgMax { axis }], torch "-", samples []
        }
        /// The index, along `dim`, of the smallest element so far; the last at a tie. What `cummin` gathers by.
        function cumulative_argmin(input: Tensor, dim: Dim) -> Tensor {
            [nograd] Keep Yes DTypes::REAL, Index,
            prim ArgMin { axis: usize } Nothing {none},
            run arg_scan[|axis| ScanOp::ArgMin { axis }], torch "-", samples []
        }
        /// The largest element so far along `dim`, and its index.
        method cummax(dim: Dim) -> ValuesIndices {
            [] Keep Yes DTypes::REAL, Same,
            run gather_scan[cumulative_argmax], torch "", samples ["N(3, 4), 0", "I(0, 3, 3, 6), -1"]
        }
        /// The smallest element so far along `dim`, and its index.
        method cummin(dim: Dim) -> ValuesIndices {
            [] Keep Yes DTypes::REAL, Same,
            run gather_scan[cumulative_argmin], torch "", samples ["N(3, 4), 0", "I(0, 3, 3, 6), -1"]
        }
    }};
}
scan_ops!(define_ops);

fn scan(op: ScanOp, x: &Tensor, dtype: DType) -> Result<Tensor> {
    dispatch::apply1(Prim::Scan(op), &[x], Meta::new(x.shape(), dtype))
}

fn accumulate(op: fn(usize) -> ScanOp, x: &Tensor, dim: isize, dtype: Option<DType>) -> Result<Tensor> {
    let schema = op(0).schema();
    let axis = shape::wrap_dim(schema.name, dim, x.ndim())?;
    let x = x.cast(dtype.unwrap_or(schema.result.of(x.dtype())))?;
    schema.check(x.dtype())?;
    if x.ndim() == 0 {
        return x.reshape(&[1])?.cumsum(0, None)?.reshape(&[]);
    }
    scan(op(axis), &x, x.dtype())
}

fn arg_scan(op: fn(usize) -> ScanOp, x: &Tensor, dim: isize) -> Result<Tensor> {
    let schema = op(0).schema();
    schema.check(x.dtype())?;
    let axis = shape::wrap_dim(schema.name, dim, x.ndim())?;
    scan(op(axis), &x.detach()?, DType::I64)
}

fn gather_scan(arg: fn(&Tensor, isize) -> Result<Tensor>, x: &Tensor, dim: isize) -> Result<(Tensor, Tensor)> {
    if x.ndim() == 0 {
        let (values, indices) = gather_scan(arg, &x.reshape(&[1])?, dim)?;
        return Ok((values.reshape(&[])?, indices.reshape(&[])?));
    }
    let indices = arg(x, dim)?;
    Ok((x.gather(dim, &indices)?, indices))
}

fn cumsum_reversed(g: &Tensor, axis: usize) -> Result<Tensor> {
    let dim = [axis as isize];
    g.flip(&dim)?.cumsum(dim[0], None)?.flip(&dim)
}

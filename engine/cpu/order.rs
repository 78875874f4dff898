//! Order statistics: the indices of what is chosen along a dimension, and the elements there.
//!
//! Depends on `sort`, `reduce` and `scan`, which find the indices, and on `index`, which reads the elements.

use super::fused::{axis_back, axis_last};
use super::index::stored_only;
use super::simd::threads;
use super::sort::{self, argsort, with_ordered, Ordered, Ranks};
use super::{copy, create, index, reduce, scan, CpuArray};
use crate::shape::{Layout, Shape};
use crate::{DType, Error, Result};
use half::{bf16, f16};
use lucid_ir::backend::{Array, Results};
use lucid_ir::ops::create::CreateOp;
use lucid_ir::ops::index::IndexOp;
use lucid_ir::ops::order::OrderOp;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use lucid_ir::Meta;

/// Values and indices.
pub fn order(op: &OrderOp, x: &CpuArray, out: &[Meta]) -> Result<Results<CpuArray>> {
    let [values, indices] = out else {
        return Err(Error::runtime(op.name(), format!("has two results, not {}", out.len())));
    };
    let zeros = |out: &Meta| create::create(&CreateOp::Full { value: 0.into() }, out);
    if x.shape().is_empty() {
        return Ok(Results::from_iter([copy::copy(x)?, zeros(indices)?]));
    }
    if crate::shape::numel(&values.shape) == 0 {
        return Ok(Results::from_iter([zeros(values)?, zeros(indices)?]));
    }
    let axis = op.axis();
    let kept = op.kept(x.shape()).ok_or_else(|| Error::shape(op.name(), "takes no such shape", &[x.shape()]))?;
    let extremum = |op: ReduceOp| {
        let how = Reduction { axes: [axis].into_iter().collect(), keepdim: true };
        reduce::reduce(&op, &how, x, &Meta::new(&kept, indices.dtype))
    };
    let at = match *op {
        OrderOp::Sort { descending, .. } => sort::order_along(x, axis, Ranks::All { descending }),
        OrderOp::TopK { k, largest, .. } => sort::order_along(x, axis, Ranks::First { k, largest }),
        OrderOp::KthValue { k, .. } => sort::order_along(x, axis, Ranks::At(k - 1)),
        OrderOp::Median { .. } => sort::order_along(x, axis, Ranks::Middle { skip: false }),
        OrderOp::NanMedian { .. } => sort::order_along(x, axis, Ranks::Middle { skip: true }),
        OrderOp::Mode { .. } => modes(x, axis),
        OrderOp::Max { .. } => extremum(ReduceOp::ArgMax),
        OrderOp::Min { .. } => extremum(ReduceOp::ArgMin),
        OrderOp::CumMax { .. } => scan::running_extremum(x, axis, true),
        OrderOp::CumMin { .. } => scan::running_extremum(x, axis, false),
    }?;
    let elements = index::index(&IndexOp::Gather { axis }, &[x, &at], &Meta::new(&kept, x.dtype()))?;
    let shown = |made: CpuArray| made.with_layout(Layout::contiguous(&values.shape));
    Ok(Results::from_iter([shown(elements), shown(at)]))
}

/// The last index, along a dimension, of the most frequent element, the smallest of several. NaN equals nothing.
fn modes(x: &CpuArray, axis: usize) -> Result<CpuArray> {
    let x = axis_last(x, axis)?;
    axis_back(&with_ordered!("mode", &x, T => longest_runs::<T>(&x))?, axis)
}

fn longest_runs<T: Ordered>(x: &CpuArray) -> Result<CpuArray> {
    let order = argsort::<T>(x, Ranks::All { descending: false })?;
    let (guard, order_guard) = (x.read::<T>(), order.read::<i64>());
    let (data, order) = (x.slice(&guard), order.slice(&order_guard));
    let mut shape = Shape::from_slice(x.shape());
    let n = shape.last_mut().map_or(1, |last| std::mem::replace(last, 1));
    CpuArray::build(&shape, |out: &mut [i64]| {
        threads::for_chunks(out, 1, (threads::GRAIN / n).max(1), |first, out| {
            for ((out, row), order) in out.iter_mut().zip(data[first * n..].chunks(n)).zip(order[first * n..].chunks(n))
            {
                let at = |j: usize| row[order[j] as usize];
                let (mut start, mut longest, mut best) = (0, 0, 0);
                for j in 1..n {
                    if at(j).is_nan() || at(j).key() != at(j - 1).key() {
                        start = j;
                    }
                    if j - start > longest {
                        (longest, best) = (j - start, j);
                    }
                }
                *out = order[best];
            }
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, layouts, show};

    fn run(op: OrderOp, x: &CpuArray) -> (Vec<f32>, Vec<i64>) {
        let out = op.results(x.shape(), x.dtype()).unwrap();
        let made = order(&op, x, &out).unwrap();
        assert!(made.iter().zip(&out).all(|(made, out)| made.shape() == &out.shape[..] && made.dtype() == out.dtype));
        (show(&made[0]), show(&made[1]))
    }

    #[test]
    fn elements_come_with_their_indices() {
        for x in layouts(&[2, 3], &[3f32, 1.0, 1.0, 5.0, 7.0, 5.0]) {
            let sorted = run(OrderOp::Sort { axis: 1, descending: false }, &x);
            assert_eq!(sorted, (vec![1.0, 1.0, 3.0, 5.0, 5.0, 7.0], vec![1, 2, 0, 0, 2, 1]));
            assert_eq!(run(OrderOp::TopK { axis: 1, k: 1, largest: true }, &x), (vec![3.0, 7.0], vec![0, 1]));
            assert_eq!(run(OrderOp::TopK { axis: 0, k: 0, largest: true }, &x), (vec![], vec![]));
            assert_eq!(run(OrderOp::KthValue { axis: 1, k: 3, keepdim: false }, &x), (vec![3.0, 7.0], vec![0, 1]));
            assert_eq!(run(OrderOp::Median { axis: 0, keepdim: true }, &x), (vec![3.0, 1.0, 1.0], vec![0, 0, 0]));
            assert_eq!(run(OrderOp::Mode { axis: 1, keepdim: false }, &x), (vec![1.0, 5.0], vec![2, 2]));
            assert_eq!(run(OrderOp::Max { axis: 0, keepdim: false }, &x), (vec![5.0, 7.0, 5.0], vec![1, 1, 1]));
            assert_eq!(run(OrderOp::Min { axis: 1, keepdim: true }, &x), (vec![1.0, 5.0], vec![1, 0]));
            assert_eq!(
                run(OrderOp::CumMin { axis: 1 }, &x),
                (vec![3.0, 1.0, 1.0, 5.0, 5.0, 5.0], vec![0, 1, 2, 0, 0, 2])
            );
        }
        let one = array(&[], &[4f32]);
        assert_eq!(run(OrderOp::Max { axis: 0, keepdim: false }, &one), (vec![4.0], vec![0]));
    }

    #[test]
    fn medians_find_nan_or_pass_over_it() {
        let x = array(&[2, 4], &[3f32, f32::NAN, 1.0, 2.0, f32::NAN, f32::NAN, f32::NAN, f32::NAN]);
        let at = |op| run(op, &x).1;
        assert_eq!(at(OrderOp::Median { axis: 1, keepdim: false }), [1, 0]);
        assert_eq!(at(OrderOp::NanMedian { axis: 1, keepdim: false }), [3, 0]);
    }

    #[test]
    fn nan_is_never_the_mode_beside_numbers_that_are_equal() {
        let x = array(&[5], &[f32::NAN, 2.0, f32::NAN, 2.0, f32::NAN]);
        assert_eq!(run(OrderOp::Mode { axis: 0, keepdim: false }, &x).1, [3]);
    }
}

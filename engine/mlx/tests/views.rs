//! Aliasing: a write through any chain of views is seen by the base and by every other view, as on strided memory.

use super::*;
use crate::shape::{Layout, SliceDim};
use lucid_ir::ops::index::IndexOp;
use lucid_ir::ops::reduce::{ReduceOp, Reduction};
use smallvec::smallvec;

/// A strided reference: one buffer, and layouts into it.
struct Model {
    data: Vec<f32>,
}

fn places(layout: &Layout) -> Vec<usize> {
    let mut all = vec![layout.offset];
    for (&n, &s) in layout.shape.iter().zip(&layout.strides) {
        all = all.iter().flat_map(|&p| (0..n).map(move |i| p + i * s)).collect();
    }
    all
}

impl Model {
    fn read(&self, layout: &Layout) -> Vec<f32> {
        places(layout).into_iter().map(|p| self.data[p]).collect()
    }
    fn write(&mut self, layout: &Layout, values: &[f32]) {
        places(layout).into_iter().zip(values).for_each(|(p, &v)| self.data[p] = v);
    }
}

fn slice(axis: usize, start: usize, step: usize, len: usize) -> ViewOp {
    ViewOp::Slice { dims: smallvec![SliceDim { axis, start, step, len }] }
}

fn random_view(x: &GpuArray, pick: &mut impl FnMut(usize) -> usize) -> Option<ViewOp> {
    let shape = x.layout().shape.clone();
    let n = shape.len();
    Some(match pick(5) {
        0 if n > 0 => {
            let axis = pick(n);
            if shape[axis] == 0 {
                return None;
            }
            let start = pick(shape[axis]);
            let step = 1 + pick(3);
            let len = pick((shape[axis] - start).div_ceil(step) + 1);
            slice(axis, start, step, len.max(1))
        }
        1 if n > 1 => {
            let mut axes: Vec<usize> = (0..n).collect();
            (0..n).for_each(|i| axes.swap(i, pick(n)));
            ViewOp::Permute { axes: axes.as_slice().into() }
        }
        2 => {
            let total: usize = shape.iter().product();
            let a = [1, 2, 3, 4][pick(4)];
            let a = if total / a * a == total { a } else { 1 };
            ViewOp::Reshape { shape: smallvec![a, total / a] }
        }
        3 if n > 1 => {
            let l = x.layout();
            let (len, step) = (shape[0].min(shape[1]), l.strides[0] + l.strides[1]);
            let layout = Layout { shape: smallvec![len], strides: smallvec![step], offset: l.offset };
            ViewOp::AsStrided { layout: Box::new(layout), source: lucid_ir::ops::view::Source::Plain }
        }
        4 => {
            let mut to = shape.clone();
            to.insert(pick(n + 1), 1);
            ViewOp::Reshape { shape: to }
        }
        _ => return None,
    })
}

#[test]
fn writes_through_chains_are_seen_everywhere() {
    let mut state = 12345u64;
    let mut pick = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) as usize) % n.max(1)
    };
    for round in 0..150 {
        let shape: &[usize] = [&[4usize, 6][..], &[2, 3, 4], &[24], &[3, 1, 8], &[2, 2, 2, 3]][round % 5];
        let total = shape.iter().product();
        let start: Vec<f32> = (0..total).map(|i| i as f32).collect();
        let mut model = Model { data: start.clone() };
        let mut views = vec![put(&start, shape)];
        for turn in 0..25 {
            let from = views[pick(views.len())].clone();
            if let Some(op) = random_view(&from, &mut pick)
                && let Some(layout) = op.layout(from.layout())
            {
                views.push(B::view(&op, &from, layout).unwrap());
            }
            let target = views[pick(views.len())].clone();
            if !target.layout().may_overlap() {
                let values: Vec<f32> = (0..target.layout().numel()).map(|i| (1000 * (turn + 1) + i) as f32).collect();
                let src = put(&values, &target.layout().shape);
                let before = target.version();
                B::assign(&target, &src, false).unwrap();
                assert_eq!(target.version(), before + 1);
                model.write(target.layout(), &values);
            }
            for v in &views {
                assert_eq!(get::<f32>(v), model.read(v.layout()), "round {round} turn {turn}: {v:?}");
                assert!(v.shares_storage(&views[0]));
                assert_eq!(v.version(), views[0].version());
            }
        }
    }
}

#[test]
fn a_source_may_share_the_storage() {
    let x = put(&[1f32, 2.0, 3.0, 4.0], &[2, 2]);
    let t = permute(&x, &[1, 0]);
    B::assign(&x, &t, false).unwrap();
    assert_eq!(get::<f32>(&x), [1.0, 3.0, 2.0, 4.0]);
    assert_eq!(get::<f32>(&t), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn long_chains_stay_short() {
    let x = put(&(0..64).map(|i| i as f32).collect::<Vec<_>>(), &[64]);
    let mut v = x.clone();
    for i in 0..40 {
        v = if i % 2 == 0 { reshape(&v, &[v.layout().numel() / 2, 2]) } else { permute(&v, &[1, 0]) };
        if !v.layout().is_contiguous() {
            v = view(slice(1, 0, 1, v.layout().shape[1] - 1), &v);
            if v.layout().reshaped(&[v.layout().numel() / 2, 2]).is_none() {
                break;
            }
        }
    }
    assert_eq!(get::<f32>(&v).len(), v.layout().numel());
}

#[test]
fn a_transpose_undone_records_nothing() {
    let x = put(&noise(24, 1), &[2, 3, 4]);
    let before = mlx_ffi::counters::thread();
    let y = permute(&permute(&x, &[2, 0, 1]), &[1, 2, 0]);
    let z = reshape(&reshape(&y, &[6, 4]), &[2, 3, 4]);
    assert_eq!(get::<f32>(&z), get::<f32>(&x));
    assert_eq!((mlx_ffi::counters::thread() - before).ops, 0);
}

#[test]
fn copies_and_constants_are_apart() {
    let x = put(&[1f32, 2.0], &[2]);
    let y = B::copy(&x).unwrap();
    B::assign(&y, &put(&[5f32, 6.0], &[2]), false).unwrap();
    assert_eq!(get::<f32>(&x), [1.0, 2.0]);
    assert!(!x.shares_storage(&y));
    let full = |v: f64| B::create(&lucid_ir::ops::create::CreateOp::Full { value: v.into() }, &meta(&[])).unwrap();
    let one = full(1.0);
    B::assign(&one, &full(2.0), false).unwrap();
    assert_eq!((get::<f32>(&one), get::<f32>(&full(1.0))), (vec![2.0], vec![1.0]));
}

#[test]
fn expanded_views_read_and_refuse_writes() {
    let x = put(&[1f32, 2.0], &[2, 1]);
    let e = view(ViewOp::Expand { shape: smallvec![3, 2, 2] }, &x);
    assert_eq!(get::<f32>(&e), [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0]);
    assert!(B::assign(&e, &put(&[0f32; 12], &[3, 2, 2]), false).is_err());
    let t = permute(&x, &[1, 0]);
    let e = view(ViewOp::Expand { shape: smallvec![2, 2] }, &t);
    assert_eq!(get::<f32>(&e), [1.0, 2.0, 1.0, 2.0]);
}

#[test]
fn layouts_beyond_an_array_are_refused() {
    let layout = Layout { shape: smallvec![2, 2], strides: smallvec![1, 4], offset: 1 };
    let op = ViewOp::AsStrided { layout: Box::new(layout.clone()), source: lucid_ir::ops::view::Source::Plain };
    let x = put(&[0.0, 1.0, 2.0, 3.0], &[4]);
    let beyond = B::view(&op, &x, layout.clone()).unwrap();
    let error = B::assign(&beyond, &put(&[9.0; 4], &[2, 2]), false).unwrap_err().to_string();
    assert!(error.contains("as_strided") && error.contains("spans 7 elements"), "{error}");
    let mut read = false;
    assert!(B::with_bytes(&beyond, &mut |_| read = true).is_err() && !read);
    assert_eq!(get::<f32>(&x), [0.0, 1.0, 2.0, 3.0]);
    let op = IndexOp::StridedAdd { layout: Box::new(layout), shape: smallvec![4] };
    let error = B::index(&op, &[&put(&[9.0; 4], &[2, 2])], &Meta::new(&[4], DType::F32)).unwrap_err().to_string();
    assert!(error.contains("strided_scatter_add") && error.contains("spans 7 elements"), "{error}");
}

#[test]
fn no_array_but_a_broadcast_one_overlaps() {
    let x = put(&(0..20).map(|i| i as f32).collect::<Vec<_>>(), &[20]);
    for (shape, strides) in [([3, 4], [2, 1]), ([4, 3], [1, 1]), ([3, 4], [0, 1]), ([3, 4], [4, 1]), ([2, 3], [3, 2])] {
        let layout =
            Layout { shape: smallvec![shape[0], shape[1]], strides: smallvec![strides[0], strides[1]], offset: 1 };
        let wanted: Vec<f32> = places(&layout).into_iter().map(|p| p as f32).collect();
        let op = ViewOp::AsStrided { layout: Box::new(layout.clone()), source: lucid_ir::ops::view::Source::Plain };
        let view = B::view(&op, &x, layout.clone()).unwrap();
        assert_eq!(get::<f32>(&view), wanted);
        let turned = ViewOp::Permute { axes: smallvec![1, 0] };
        let turned = B::view(&turned, &view, turned.layout(&layout).unwrap()).unwrap();
        let along = Reduction { axes: smallvec![0], keepdim: false };
        let sums = B::reduce(&ReduceOp::Sum, &along, &turned, &Meta::new(&[shape[0]], DType::F32)).unwrap();
        let rows: Vec<f32> = wanted.chunks(shape[1]).map(|row| row.iter().sum()).collect();
        assert_eq!(get::<f32>(&sums), rows);
    }
}

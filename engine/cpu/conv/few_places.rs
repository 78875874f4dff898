//! Convolutions of few places an image: the windows of a block of images are the columns of one matrix, so that one product
//! reads the weight for all of them.
//!
//! Depends on `blas`. Elements of the images of a block are neighbours: columns are copied, and added, by as many at a time.
//! Invariant: results do not depend on the number of threads.

use super::super::blas::{gemm, Gemm, Matrix, Product};
use super::super::fused::{Compute, Float};
use super::Sizes;
use crate::fallible::{scratch, scratch_from};

/// Places of an image up to which it is one of few.
const FEW: usize = 64;
/// Elements of a group's weight from which reading it once for several images pays.
const WEIGHT: usize = 1 << 12;
/// Elements of one from which it pays for a single image.
const LARGE_WEIGHT: usize = 1 << 18;
/// Elements of a block of columns, about; more where the weight has more, which each block reads.
const COLUMNS: usize = 1 << 19;
/// Elements that are transposed at a time.
const SIDE: usize = 64;

/// Do the sizes suit it?
pub fn suits(s: &Sizes) -> bool {
    let weight = s.outputs.saturating_mul(s.depth());
    let least = if s.batch > 1 { WEIGHT } else { LARGE_WEIGHT };
    s.batch > 0 && (1..=FEW).contains(&s.area) && (1..=4 * FEW).contains(&s.space) && s.outputs > 1 && weight >= least
}

/// The same for the convolution itself, where each column is read by as many products as there are outputs.
pub fn suits_forward(s: &Sizes) -> bool {
    suits(s) && s.outputs >= 2 * s.area
}

/// What is the same for all blocks.
struct Plan {
    /// For each tap that any place meets, its number and the element that each place meets.
    taps: Vec<(usize, Vec<Option<usize>>)>,
    /// Images of a block.
    images: usize,
}

impl Plan {
    fn new(s: &Sizes) -> Plan {
        let mut taps = Vec::new();
        for tap in 0..s.taps {
            let places: Vec<Option<usize>> = scratch_from((0..s.area).map(|place| element(s, tap, place)));
            if places.iter().any(Option::is_some) {
                taps.push((tap, places));
            }
        }
        let row = (s.inputs * taps.len()).max(1) * s.area;
        let most = COLUMNS.max(s.outputs.saturating_mul(s.depth()));
        Plan { taps, images: (most / row).clamp(1, s.batch) }
    }

    /// Rows of the matrix of columns.
    fn depth(&self, s: &Sizes) -> usize {
        s.inputs * self.taps.len()
    }

    /// A group's weight (outputs, depth) of the taps that count; itself where all do.
    fn weight<'a, T: Compute>(&self, s: &Sizes, w: &'a [T], room: &'a mut Vec<T>) -> &'a [T] {
        if self.taps.len() == s.taps {
            return w;
        }
        *room = scratch_from(w.chunks(s.taps).flat_map(|w| self.taps.iter().map(move |&(tap, _)| w[tap])));
        room
    }

    /// The columns (depth, places, images) of a block's elements (inputs, space, images).
    fn columns<T: Compute>(&self, s: &Sizes, x: &[T], n: usize, columns: &mut [T]) {
        if n == 1 {
            let rows = x.chunks(s.space).flat_map(|plane| self.taps.iter().map(move |(_, places)| (plane, places)));
            for (to, (plane, places)) in columns.chunks_mut(s.area).zip(rows) {
                to.iter_mut().zip(places).for_each(|(o, at)| *o = at.map_or(T::of(0.0), |at| plane[at]));
            }
            return;
        }
        let mut rows = columns.chunks_mut(n);
        for plane in x.chunks(s.space * n) {
            for at in self.taps.iter().flat_map(|(_, places)| places) {
                let Some(to) = rows.next() else { return };
                match *at {
                    Some(at) => to.copy_from_slice(&plane[at * n..][..n]),
                    None => to.fill(T::of(0.0)),
                }
            }
        }
    }

    /// Adds columns to the elements that they were made of.
    fn add<T: Compute>(&self, s: &Sizes, columns: &[T], n: usize, x: &mut [T]) {
        if n == 1 {
            let mut rows = columns.chunks(s.area);
            for plane in x.chunks_mut(s.space) {
                for ((_, places), from) in self.taps.iter().zip(&mut rows) {
                    let met = places.iter().zip(from).filter_map(|(at, &y)| at.map(|at| (at, y)));
                    met.for_each(|(at, y)| plane[at] = plane[at] + y);
                }
            }
            return;
        }
        let mut rows = columns.chunks(n);
        for plane in x.chunks_mut(s.space * n) {
            for at in self.taps.iter().flat_map(|(_, places)| places) {
                let (Some(from), at) = (rows.next(), *at) else { return };
                if let Some(at) = at {
                    plane[at * n..][..n].iter_mut().zip(from).for_each(|(x, &y)| *x = *x + y);
                }
            }
        }
    }
}

/// The element of a channel that a place meets at a tap.
fn element(s: &Sizes, tap: usize, place: usize) -> Option<usize> {
    let [d, h, w] = &s.windows;
    let (td, th, tw) = (tap / (h.taps * w.taps), tap / w.taps % h.taps, tap % w.taps);
    let (pd, ph, pw) = (place / (h.count * w.count), place / w.count % h.count, place % w.count);
    Some((d.at(pd, td)? * h.size + h.at(ph, th)?) * w.size + w.at(pw, tw)?)
}

/// Rows of `len` elements, `apart` from one another, as columns.
fn gathered<T: Compute>(x: &[T], rows: usize, len: usize, apart: usize, out: &mut [T]) {
    for from in (0..len).step_by(SIDE) {
        let to = len.min(from + SIDE);
        for i in 0..rows {
            let row = &x[i * apart + from..i * apart + to];
            out[from * rows + i..].iter_mut().step_by(rows).zip(row).for_each(|(o, &x)| *o = x);
        }
    }
}

/// The same the other way round.
fn scattered<T: Compute>(columns: &[T], rows: usize, len: usize, apart: usize, out: &mut [T]) {
    for from in (0..len).step_by(SIDE) {
        let to = len.min(from + SIDE);
        for i in 0..rows {
            let row = &mut out[i * apart + from..i * apart + to];
            row.iter_mut().zip(columns[from * rows + i..].iter().step_by(rows)).for_each(|(o, &x)| *o = x);
        }
    }
}

fn rows<T>(data: &[T], ld: usize) -> Matrix<'_, T> {
    Matrix { data, ld, trans: false }
}

fn transposed<T>(data: &[T], ld: usize) -> Matrix<'_, T> {
    Matrix { data, ld, trans: true }
}

/// The blocks of images: the first of each, and how many.
fn blocks(s: &Sizes, images: usize) -> impl Iterator<Item = (usize, usize)> {
    let batch = s.batch;
    (0..batch).step_by(images).map(move |first| (first, images.min(batch - first)))
}

/// Convolution with `w` plus `bias`.
pub fn forward<T: Float + Compute + Gemm>(s: &Sizes, x: &[T], w: &[T], bias: Option<&[T]>, out: &mut [T]) {
    let plan = Plan::new(s);
    let (depth, most) = (plan.depth(s), plan.images);
    let (into, from) = (s.inputs * s.space, s.outputs * s.area);
    let mut block = scratch(T::of(0.0), into * most);
    let mut columns = scratch(T::of(0.0), depth * s.area * most);
    let mut made = scratch(T::of(0.0), from * most);
    for group in 0..s.groups {
        let mut room = Vec::new();
        let weight = plan.weight(s, s.weight(w, group), &mut room);
        for (first, n) in blocks(s, most) {
            let unit = first * s.groups + group;
            let (block, columns) = (&mut block[..into * n], &mut columns[..depth * s.area * n]);
            let made = &mut made[..from * n];
            gathered(&x[unit * into..], n, into, s.groups * into, block);
            plan.columns(s, block, n, columns);
            let beta = match bias {
                Some(bias) => {
                    let bias = &bias[group * s.outputs..][..s.outputs];
                    made.chunks_mut(s.area * n).zip(bias).for_each(|(row, &b)| row.fill(b));
                    T::ONE
                }
                None => <T as Gemm>::ZERO,
            };
            let cols = s.area * n;
            let product = Product::of([s.outputs, cols, depth], rows(weight, depth), rows(columns, cols));
            gemm(&Product { beta, ..product }, made);
            scattered(made, n, from, s.groups * from, &mut out[unit * from..]);
        }
    }
}

/// Gradient of the input from `g`, the output's.
pub fn input_gradient<T: Float + Compute + Gemm>(s: &Sizes, g: &[T], w: &[T], out: &mut [T]) {
    let plan = Plan::new(s);
    let (depth, most) = (plan.depth(s), plan.images);
    let (into, from) = (s.inputs * s.space, s.outputs * s.area);
    let mut block = scratch(T::of(0.0), into * most);
    let mut columns = scratch(T::of(0.0), depth * s.area * most);
    let mut grads = scratch(T::of(0.0), from * most);
    for group in 0..s.groups {
        let mut room = Vec::new();
        let weight = plan.weight(s, s.weight(w, group), &mut room);
        for (first, n) in blocks(s, most) {
            let unit = first * s.groups + group;
            let (block, columns) = (&mut block[..into * n], &mut columns[..depth * s.area * n]);
            let grads = &mut grads[..from * n];
            gathered(&g[unit * from..], n, from, s.groups * from, grads);
            let cols = s.area * n;
            gemm(&Product::of([depth, cols, s.outputs], transposed(weight, depth), rows(grads, cols)), columns);
            block.fill(T::of(0.0));
            plan.add(s, columns, n, block);
            scattered(block, n, into, s.groups * into, &mut out[unit * into..]);
        }
    }
}

/// Gradient of the weight from the input and `g`, the output's gradient.
pub fn weight_gradient<T: Float + Compute + Gemm>(s: &Sizes, x: &[T], g: &[T], out: &mut [T]) {
    let plan = Plan::new(s);
    let (depth, most) = (plan.depth(s), plan.images);
    let (into, from) = (s.inputs * s.space, s.outputs * s.area);
    let mut block = scratch(T::of(0.0), into * most);
    let mut columns = scratch(T::of(0.0), depth * s.area * most);
    let mut grads = scratch(T::of(0.0), from * most);
    let all = plan.taps.len() == s.taps;
    let mut some = scratch(T::of(0.0), if all { 0 } else { s.outputs * depth });
    for (group, out) in out.chunks_mut(s.outputs * s.depth()).enumerate() {
        let sum = if all { &mut *out } else { &mut some[..] };
        for (first, n) in blocks(s, most) {
            let unit = first * s.groups + group;
            let (block, columns) = (&mut block[..into * n], &mut columns[..depth * s.area * n]);
            let grads = &mut grads[..from * n];
            gathered(&x[unit * into..], n, into, s.groups * into, block);
            plan.columns(s, block, n, columns);
            gathered(&g[unit * from..], n, from, s.groups * from, grads);
            let cols = s.area * n;
            let product = Product::of([s.outputs, depth, cols], rows(grads, cols), transposed(columns, cols));
            gemm(&Product { beta: if first == 0 { <T as Gemm>::ZERO } else { T::ONE }, ..product }, sum);
        }
        if !all {
            out.fill(T::of(0.0));
            for (to, from) in out.chunks_mut(s.taps).zip(some.chunks(plan.taps.len().max(1))) {
                plan.taps.iter().zip(from).for_each(|(&(tap, _), &y)| to[tap] = y);
            }
        }
    }
}

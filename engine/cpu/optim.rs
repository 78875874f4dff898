//! Optimizer steps: one pass over each parameter with its gradient and state.
//!
//! Depends on `simd`, and on `optim` for the formulas. 16-bit floats are computed with in `float32` and rounded once.
//! Invariant: every parameter is checked before the first one is written.

use super::fused::{with_float, Compute, Float};
use super::simd::{run_light, threads, Task, Wide};
use super::CpuArray;
use crate::{Error, Result};
use lucid_ir::backend::Array;
use lucid_ir::optim::algebra::Algebra;
use lucid_ir::optim::rules::{Rule, Visit};
use lucid_ir::optim::Step;
use std::convert::Infallible;
use std::marker::PhantomData;

/// Elements of each array that a thread takes at once.
const BLOCK: usize = 8192;

/// Steps all parameters: each batch holds, for each parameter, what [`Step`] lists. The gradient alone is not written.
pub fn steps(batches: &[(Step, Vec<Vec<&CpuArray>>)]) -> Result<()> {
    for (step, groups) in batches {
        groups.iter().try_for_each(|group| check(group, step.arity()))?;
    }
    for (step, groups) in batches {
        for group in groups {
            with_float!("step", group[0].dtype(), T => step.visit(One::<T>(group, PhantomData)))?;
        }
    }
    Ok(())
}

fn check(group: &[&CpuArray], wanted: usize) -> Result<()> {
    let (Some(first), true) = (group.first(), group.len() == wanted) else {
        return Err(Error::backend("step", format!("expected {wanted} arrays for a parameter, got {}", group.len())));
    };
    if let Some(odd) = group.iter().find(|a| a.dtype() != first.dtype() || !a.dtype().is_float()) {
        let why = "a parameter, its gradient and its state must have one floating dtype";
        return Err(Error::dtype("step", why, &[first.dtype(), odd.dtype()]));
    }
    if let Some(odd) = group.iter().find(|a| a.shape() != first.shape()) {
        let why = "a parameter, its gradient and its state must have one shape";
        return Err(Error::shape("step", why, &[first.shape(), odd.shape()]));
    }
    let written = |i: usize| i != 1;
    for (i, a) in group.iter().enumerate().filter(|&(i, _)| written(i)) {
        if !a.layout().is_contiguous() {
            return Err(Error::runtime("step", "parameters and state must be contiguous"));
        }
        super::copy::refuse_read_only("step", a)?;
        if group[..i].iter().enumerate().any(|(j, b)| written(j) && a.buffer().overlaps(b.buffer())) {
            return Err(Error::runtime("step", "a parameter and its state must not share storage"));
        }
    }
    Ok(())
}

/// A parameter with its gradient and state.
struct One<'a, T>(&'a [&'a CpuArray], PhantomData<T>);

impl<T: Float> Visit for One<'_, T> {
    type Out = Result<()>;

    fn rule<R: Rule, const S: usize>(self, rule: R) -> Result<()> {
        let One(group, _) = self;
        // A gradient that shares a written array's buffer could not be read while that is locked.
        let shared = group.iter().enumerate().any(|(i, a)| i != 1 && a.buffer().overlaps(group[1].buffer()));
        let gradient = if shared { super::copy::copy(group[1])? } else { group[1].contiguous()? };
        let n = gradient.numel();
        let part = |a: &CpuArray| a.layout().offset..a.layout().offset + n;
        let written: Vec<&CpuArray> = group.iter().enumerate().filter(|&(i, _)| i != 1).map(|(_, a)| *a).collect();
        let mut guards = written.iter().map(|a| a.buffer().write::<T>()).collect::<Result<Vec<_>>>()?;
        let guard = gradient.read::<T>();
        let mut arrays = guards.iter_mut().zip(&written).map(|(guard, a)| &mut guard[part(a)]);
        let p = arrays.next().unwrap_or_default();
        let state: [&mut [T]; S] = std::array::from_fn(|_| arrays.next().unwrap_or_default());
        each(rule, p, gradient.slice(&guard), state);
        drop(guards);
        written.iter().for_each(|a| a.touch());
        Ok(())
    }
}

/// Plain numbers.
struct Lane<W>(PhantomData<W>);

macro_rules! plain {
    ($($name:ident($($arg:ident: $ty:ty),*) $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(&self, $($arg: $ty),*) -> std::result::Result<W, Infallible> {
            Ok($body)
        }
    )*};
}
impl<W: Compute> Algebra for Lane<W> {
    type V = W;
    type E = Infallible;
    plain! {
        add(a: &W, b: &W) *a + *b;
        sub(a: &W, b: &W) *a - *b;
        mul(a: &W, b: &W) *a * *b;
        div(a: &W, b: &W) *a / *b;
        // NaN wins, as in torch.maximum.
        max(a: &W, b: &W) if *a > *b || a.is_nan() { *a } else { *b };
        times(a: &W, c: f64) *a * W::of(c);
        plus(a: &W, c: f64) *a + W::of(c);
        neg(a: &W) -*a;
        abs(a: &W) a.abs();
        sqrt(a: &W) num_traits::Float::sqrt(*a);
        square(a: &W) *a * *a;
        sign(a: &W) if *a > W::of(0.0) { W::of(1.0) } else if *a < W::of(0.0) { W::of(-1.0) } else { W::of(0.0) };
        clamp(a: &W, low: f64, high: f64) {
            let x = if *a < W::of(low) { W::of(low) } else { *a };
            if x > W::of(high) { W::of(high) } else { x }
        };
        by_sign(s: &W, below: f64, above: f64)
            if *s < W::of(0.0) { W::of(below) } else if *s > W::of(0.0) { W::of(above) } else { W::of(1.0) };
        unless_negative(s: &W, a: &W) if *s < W::of(0.0) { W::of(0.0) } else { *a };
    }
}

struct Piece<'a, T, R, const S: usize> {
    rule: R,
    p: &'a mut [T],
    g: &'a [T],
    state: &'a mut [&'a mut [T]; S],
}
impl<T: Wide<W: Compute>, R: Rule, const S: usize> Task for Piece<'_, T, R, S> {
    type Out = ();
    #[inline(always)]
    fn run<const F: bool>(self) {
        let Piece { rule, p, g, state } = self;
        let plain = Lane(PhantomData);
        for (i, (p, g)) in p.chunks_mut(LANES).zip(g.chunks(LANES)).enumerate() {
            let (mut wide, grad) = (load(p), load(g));
            let mut kept: [[T::W; LANES]; S] = std::array::from_fn(|s| load(part(state[s], i)));
            for lane in 0..LANES {
                let mut s: [T::W; S] = std::array::from_fn(|s| kept[s][lane]);
                let Ok(new) = rule.update(&plain, wide[lane], grad[lane], &mut s);
                wide[lane] = new;
                for (kept, s) in kept.iter_mut().zip(s) {
                    kept[lane] = s;
                }
            }
            store(wide, p);
            for (kept, state) in kept.into_iter().zip(state.iter_mut()) {
                let end = state.len().min((i + 1) * LANES);
                store(kept, &mut state[(i * LANES).min(end)..end]);
            }
        }
    }
}

/// Elements worked on at once: a fixed number, so that the loop over them is vectorised whatever the rule.
const LANES: usize = 32;

/// The elements of a state that belong to a group of lanes.
#[inline(always)]
fn part<T>(state: &[T], i: usize) -> &[T] {
    let end = state.len().min((i + 1) * LANES);
    &state[(i * LANES).min(end)..end]
}

#[inline(always)]
fn load<T: Wide<W: Compute>>(x: &[T]) -> [T::W; LANES] {
    match <&[T; LANES]>::try_from(x) {
        Ok(x) => std::array::from_fn(|i| x[i].widen()),
        Err(_) => std::array::from_fn(|i| x.get(i).map_or(T::W::of(0.0), |x| x.widen())),
    }
}

#[inline(always)]
fn store<T: Wide>(from: [T::W; LANES], to: &mut [T]) {
    match <&mut [T; LANES]>::try_from(&mut *to) {
        Ok(to) => (0..LANES).for_each(|i| to[i] = T::narrow(from[i])),
        Err(_) => to.iter_mut().zip(from).for_each(|(to, x)| *to = T::narrow(x)),
    }
}

/// Applies a rule to all elements, over the pool where there are many.
fn each<T: Float, R: Rule, const S: usize>(rule: R, p: &mut [T], g: &[T], state: [&mut [T]; S]) {
    let mut states = state.map(|s| s.chunks_mut(BLOCK));
    let pieces = p.chunks_mut(BLOCK).zip(g.chunks(BLOCK));
    let mut pieces: Vec<_> =
        pieces.map(|(p, g)| (p, g, states.each_mut().map(|s| s.next().unwrap_or_default()))).collect();
    threads::for_chunks(&mut pieces, 1, threads::GRAIN / BLOCK / 2, |_, pieces| {
        for (p, g, state) in pieces {
            let state = &mut state.each_mut().map(|s| &mut **s);
            run_light(Piece { rule, p, g, state });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{array, show};
    use half::bf16;
    use lucid_ir::optim::step::{Adam, Sgd};

    fn step(step: &Step, groups: &[Vec<&CpuArray>]) -> Result<()> {
        steps(&[(*step, groups.to_vec())])
    }

    fn sgd(momentum: f64, first: bool) -> Step {
        Sgd { lr: 0.1, momentum, dampening: 0.5, weight_decay: 0.01, nesterov: false, maximize: false, first }.into()
    }

    fn adam(decoupled: bool, amsgrad: bool, t: u64) -> Step {
        let (lr, beta1, beta2, eps, t) = (0.01, 0.9, 0.999, 1e-8, t as f64);
        let decoupled_weight_decay = decoupled;
        Adam { lr, beta1, beta2, eps, weight_decay: 0.1, decoupled_weight_decay, amsgrad, maximize: false, t }.into()
    }

    #[test]
    fn sgd_with_momentum() {
        let (p, g, b) = (array(&[2], &[1f64, -2.0]), array(&[2], &[0.5f64, 1.0]), array(&[2], &[9f64, 9.0]));
        step(&sgd(0.9, true), &[vec![&p, &g, &b]]).unwrap();
        assert_eq!(show::<f64>(&b), [0.51, 0.98]);
        assert_eq!(show::<f64>(&p), [1.0 - 0.1 * 0.51, -2.0 - 0.1 * 0.98]);
        step(&sgd(0.9, false), &[vec![&p, &g, &b]]).unwrap();
        let grad = 0.5 + 0.01 * 0.949;
        let buffer = 0.51 * 0.9 + 0.5 * grad;
        assert!((show::<f64>(&p)[0] - (0.949 - 0.1 * buffer)).abs() < 1e-15);
        assert_eq!((p.version(), b.version(), g.version()), (2, 2, 0));
        let nesterov: Step = Sgd {
            lr: 1.0,
            momentum: 0.5,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: true,
            maximize: true,
            first: true,
        }
        .into();
        let p = array(&[1], &[0f32]);
        step(&nesterov, &[vec![&p, &array(&[1], &[2f32]), &array(&[1], &[0f32])]]).unwrap();
        assert_eq!(show::<f32>(&p), [3.0]);
    }

    #[test]
    fn sgd_without_momentum_on_views() {
        let whole = array(&[4], &[1f32, 2.0, 3.0, 4.0]);
        let part =
            |offset| whole.with_layout(crate::shape::Layout { shape: [2][..].into(), strides: [1][..].into(), offset });
        let g = array(&[1], &[1f32]);
        let g = g.with_layout(g.layout().broadcast_to(&[2]));
        let plain: Step = Sgd {
            lr: 0.5,
            momentum: 0.0,
            dampening: 0.0,
            weight_decay: 0.0,
            nesterov: false,
            maximize: false,
            first: false,
        }
        .into();
        step(&plain, &[vec![&part(0), &g], vec![&part(2), &part(2)]]).unwrap();
        assert_eq!(show::<f32>(&whole), [0.5, 1.5, 1.5, 2.0]);
    }

    #[test]
    fn adam_follows_the_formula() {
        for (decoupled, amsgrad) in [(false, false), (true, false), (true, true), (false, true)] {
            let n = 20_000;
            let start: Vec<f64> = (0..n).map(|i| (i % 17) as f64 / 7.0 - 1.0).collect();
            let (p, m, v) = (array(&[n], &start), array(&[n], &vec![0f64; n]), array(&[n], &vec![0f64; n]));
            let most = array(&[n], &vec![0f64; n]);
            let (mut x, mut mean, mut square, mut top) = (start[3], 0.0f64, 0.0f64, 0.0f64);
            for t in 1..4u64 {
                let g: Vec<f64> = (0..n).map(|i| ((i as u64 + t) % 5) as f64 - 1.5).collect();
                let mut group = vec![&p];
                let gradient = array(&[n], &g);
                group.extend([&gradient, &m, &v]);
                if amsgrad {
                    group.push(&most);
                }
                step(&adam(decoupled, amsgrad, t), &[group]).unwrap();
                let mut grad = g[3];
                if decoupled {
                    x *= 1.0 - 0.01 * 0.1
                } else {
                    grad += 0.1 * x
                }
                mean = 0.9 * mean + 0.1 * grad;
                square = 0.999 * square + 0.001 * grad * grad;
                top = top.max(square);
                let t = t as i32;
                let root = (if amsgrad { top } else { square }).sqrt() / (1.0 - 0.999f64.powi(t)).sqrt();
                x -= 0.01 / (1.0 - 0.9f64.powi(t)) * mean / (root + 1e-8);
            }
            assert!((show::<f64>(&p)[3] - x).abs() < 1e-12);
            assert_eq!(p.version(), 3);
        }
    }

    #[test]
    fn halves_and_nothing() {
        let one = |x: f32| array(&[], &[bf16::from_f32(x)]);
        let (p, g, m, v) = (one(1.0), one(1.0), one(0.0), one(0.0));
        step(&adam(true, false, 1), &[vec![&p, &g, &m, &v]]).unwrap();
        assert_eq!(show::<bf16>(&p), [bf16::from_f32(0.999 - 0.01)]);
        let none = || array::<f32>(&[0], &[]);
        let (a, b) = (none(), none());
        step(&sgd(0.0, false), &[vec![&a, &b]]).unwrap();
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (p, g) = (array(&[2], &[1f32, 2.0]), array(&[2], &[1f64, 2.0]));
        assert!(step(&sgd(0.0, false), &[vec![&p, &g]]).is_err());
        assert!(step(&sgd(0.0, false), &[vec![&p, &array(&[1], &[1f32])]]).is_err());
        assert!(step(&sgd(0.9, false), &[vec![&p, &p]]).is_err());
        let g = array(&[2], &[1f32, 2.0]);
        assert!(step(&sgd(0.9, false), &[vec![&p, &g, &p]]).is_err());
        assert_eq!((show::<f32>(&p), p.version()), (vec![1.0, 2.0], 0));
    }
}

//! Run-time choice of the instruction set, and the loops over slices that everything else is made of.
//!
//! Depends on `multiversion`. A kernel is a small `Copy` struct whose `#[inline(always)]` method works on one element
//! without branches; the loops here are compiled once per instruction set and vectorised around it by LLVM.
//! Invariant: `FMA` is true only in code compiled for a target that has the instruction (elsewhere it is a libm call).

use multiversion::{multiversion, target::target_cfg_f};
use std::marker::PhantomData as P;

/// Work to be compiled once per instruction set.
pub trait Task {
    /// What it returns.
    type Out;
    /// The work; must be `#[inline(always)]`, and so must all it calls in its inner loops.
    fn run<const FMA: bool>(self) -> Self::Out;
}

/// Runs a task with the best instruction set of this machine.
#[multiversion(targets(
    "x86_64+avx512f+avx512bw+avx512cd+avx512dq+avx512vl+avx2+avx+bmi1+bmi2+f16c+fma+lzcnt+movbe+popcnt",
    "x86_64+avx2+avx+bmi1+bmi2+f16c+fma+lzcnt+movbe+popcnt"
))]
pub fn run<K: Task>(task: K) -> K::Out {
    task.run::<{ cfg!(target_arch = "aarch64") || target_cfg_f!(target_feature = "fma") }>()
}

/// Runs a task with AVX2 where there is: for work that waits for memory anyway, at two thirds of the code of [`run`].
#[multiversion(targets("x86_64+avx2+avx+bmi1+bmi2+f16c+fma+lzcnt+movbe+popcnt"))]
pub fn run_light<K: Task>(task: K) -> K::Out {
    task.run::<{ cfg!(target_arch = "aarch64") || target_cfg_f!(target_feature = "fma") }>()
}

/// A function of one element.
pub trait Map1<A, O>: Copy {
    /// The function; must be `#[inline(always)]`.
    fn map<const FMA: bool>(self, a: A) -> O;
}

/// A function of two elements.
pub trait Map2<A, B, O>: Copy {
    /// The function; must be `#[inline(always)]`.
    fn map<const FMA: bool>(self, a: A, b: B) -> O;
}

/// An operand of a loop: a slice as long as the output, one value for all, or either for each row.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a, T> {
    /// One value per output element.
    Slice(&'a [T]),
    /// The same value for every output element.
    Value(T),
    /// Rows of the output have their own. A kernel that is told of them is called once for all, which saves more than the
    /// work on a short one takes.
    Rows(Rows<'a, T>),
}

/// What rows of `n` elements meet.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a, T> {
    /// Where the first one's elements are, those of the next `pitch` further.
    pub data: &'a [T],
    /// Elements of a row.
    pub n: usize,
    /// From row to row; 0 where all meet the same.
    pub pitch: usize,
    /// Is it one value for the row? Else `n`.
    pub one: bool,
}

impl<'a, T: Copy> Arg<'a, T> {
    /// The element of that number.
    ///
    /// # Panics
    /// Beyond the slice.
    #[inline(always)]
    pub fn at(&self, i: usize) -> T {
        match self {
            Arg::Slice(x) => x[i],
            Arg::Value(x) => *x,
            Arg::Rows(x) => x.data[i / x.n * x.pitch + if x.one { 0 } else { i % x.n }],
        }
    }

    /// Elements of a row, where there are rows.
    #[inline(always)]
    fn width(&self) -> usize {
        match self {
            Arg::Slice(_) | Arg::Value(_) => usize::MAX,
            Arg::Rows(x) => x.n,
        }
    }

    /// What the row of that number meets, rows of `n` elements; no rows itself.
    #[inline(always)]
    fn row(self, i: usize, n: usize) -> Arg<'a, T> {
        match self {
            Arg::Slice(x) => {
                let from = i.saturating_mul(n).min(x.len());
                Arg::Slice(&x[from..from.saturating_add(n).min(x.len())])
            }
            Arg::Value(_) => self,
            Arg::Rows(x) if x.one => Arg::Value(x.data[i * x.pitch]),
            Arg::Rows(x) => Arg::Slice(&x.data[i * x.pitch..][..n]),
        }
    }
}

/// Does something for each row of two operands' rows, or once where they have none.
///
/// A macro, since a closure that is large is not inlined, and then compiled for the least of instruction sets.
macro_rules! each_row {
    ($a:expr, $b:expr, $out:expr, |$x:ident, $y:ident, $o:ident| $body:expr) => {{
        let (a, b) = ($a, $b);
        let n = a.width().min(b.width());
        let (mut rest, mut i) = ($out, 0);
        while !rest.is_empty() {
            let ($o, tail) = rest.split_at_mut(n.min(rest.len()));
            let ($x, $y) = (a.row(i, n), b.row(i, n));
            $body;
            (rest, i) = (tail, i + 1);
        }
    }};
}

/// The same by calls.
pub fn by_rows<'a, A, B, O>(
    a: Arg<'a, A>,
    b: Arg<'a, B>,
    out: &mut [O],
    mut f: impl FnMut(Arg<'a, A>, Arg<'a, B>, &mut [O]),
) where
    A: Copy,
    B: Copy,
{
    each_row!(a, b, out, |a, b, out| f(a, b, out));
}

/// The same where results are written over the first operand.
pub fn over_rows<'a, A, B: Copy>(a: &mut [A], b: Rows<'a, B>, mut f: impl FnMut(&mut [A], Arg<'a, B>)) {
    by_rows(Arg::Value(()), Arg::Rows(b), a, |_, b, a| f(a, b));
}

macro_rules! task {
    ($name:ident<$($g:ident),*> [$($bound:tt)*] { $($field:ident: $ty:ty),* } => $body:block) => {
        #[allow(clippy::type_complexity)]
        struct $name<'a, $($g),*>($($ty,)* std::marker::PhantomData<(&'a (), $(fn() -> $g),*)>);
        impl<'a, $($g: Copy),*> Task for $name<'a, $($g),*> where $($bound)* {
            type Out = ();
            #[inline(always)]
            fn run<const FMA: bool>(self) {
                let $name($($field,)* _) = self;
                $body
            }
        }
    };
}

task!(Loop1<K, A, O> [K: Map1<A, O>] { k: K, a: &'a [A], out: &'a mut [O] } => {
    for (o, &a) in out.iter_mut().zip(a) { *o = k.map::<FMA>(a); }
});
/// The loop over the elements of a row of `$a`, a slice or one value, which is a slice of one whose result the others get:
/// one loop for both, since each is compiled for every kernel and instruction set.
macro_rules! beside_value {
    ($a:expr, $out:expr, |$x:ident| $y:expr) => {{
        let one;
        let (a, n) = match $a {
            Arg::Slice(a) => (a, $out.len()),
            a => {
                one = [a.at(0)];
                (&one[..], 1)
            }
        };
        let (head, rest) = $out.split_at_mut(n);
        for (o, &$x) in head.iter_mut().zip(a) {
            *o = $y;
        }
        if !rest.is_empty() {
            rest.fill(head[0]);
        }
    }};
}
task!(Loop2<K, A, B, O> [K: Map2<A, B, O>] { k: K, a: Arg<'a, A>, b: Arg<'a, B>, out: &'a mut [O] } => {
    each_row!(a, b, out, |a, b, out| match (a, b) {
        (Arg::Slice(a), Arg::Slice(b)) => {
            for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) { *o = k.map::<FMA>(a, b); }
        }
        (a, Arg::Slice(b)) => {
            let a = a.at(0);
            for (o, &b) in out.iter_mut().zip(b) { *o = k.map::<FMA>(a, b); }
        }
        (a, b) => {
            let b = b.at(0);
            beside_value!(a, out, |a| k.map::<FMA>(a, b));
        }
    });
});
task!(Symmetric<K, A, O> [K: Map2<A, A, O>] { k: K, a: Arg<'a, A>, b: Arg<'a, A>, out: &'a mut [O] } => {
    each_row!(a, b, out, |a, b, out| match (a, b) {
        (Arg::Slice(a), Arg::Slice(b)) => {
            for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) { *o = k.map::<FMA>(a, b); }
        }
        (b, a @ Arg::Slice(_)) | (a, b) => {
            let b = b.at(0);
            beside_value!(a, out, |a| k.map::<FMA>(a, b));
        }
    });
});
task!(Accumulate<K, A, O> [K: Map2<O, A, O>] { k: K, acc: &'a mut [O], a: &'a [A] } => {
    for (o, &a) in acc.iter_mut().zip(a) { *o = k.map::<FMA>(*o, a); }
});
task!(Fill<T> [] { value: T, out: &'a mut [T] } => {
    for o in out { *o = value; }
});
task!(Over1<K, T> [K: Map1<T, T>] { k: K, x: &'a mut [T] } => {
    for x in x { *x = k.map::<FMA>(*x); }
});
task!(OverS<K, A, B> [K: Map2<A, B, A>] { k: K, a: &'a mut [A], b: B } => {
    for a in a { *a = k.map::<FMA>(*a, b); }
});
/// `out[i] = k(a[i])`, over the shorter of the two.
pub fn map1<A: Copy, O: Copy, K: Map1<A, O>>(k: K, a: &[A], out: &mut [O]) {
    run(Loop1(k, a, out, P));
}

/// [`map1`] for cheap kernels.
pub fn light1<A: Copy, O: Copy, K: Map1<A, O>>(k: K, a: &[A], out: &mut [O]) {
    run_light(Loop1(k, a, out, P));
}

/// `out[i] = k(a[i], b[i])`, over the shortest.
pub fn map2<A: Copy, B: Copy, O: Copy, K: Map2<A, B, O>>(k: K, a: Arg<A>, b: Arg<B>, out: &mut [O]) {
    run(Loop2(k, a, b, out, P));
}

/// `x[i] = k(x[i])`.
pub fn light1_over<T: Copy, K: Map1<T, T>>(k: K, x: &mut [T]) {
    run_light(Over1(k, x, P));
}

/// `a[i] = k(a[i], b[i])`, over the shorter of the two.
pub fn light2_over<A: Copy, B: Copy, K: Map2<A, B, A>>(k: K, a: &mut [A], b: Arg<B>) {
    match b {
        Arg::Slice(b) => accumulate(k, a, b),
        Arg::Value(b) => run_light(OverS(k, a, b, P)),
        Arg::Rows(b) => over_rows(a, b, |a, b| light2_over(k, a, b)),
    }
}

/// [`map2`] for cheap kernels.
pub fn light2<A: Copy, B: Copy, O: Copy, K: Map2<A, B, O>>(k: K, a: Arg<A>, b: Arg<B>, out: &mut [O]) {
    run_light(Loop2(k, a, b, out, P));
}

/// [`light2`] for kernels with `k(a, b) == k(b, a)`.
pub fn light2_symmetric<A: Copy, O: Copy, K: Map2<A, A, O>>(k: K, a: Arg<A>, b: Arg<A>, out: &mut [O]) {
    run_light(Symmetric(k, a, b, out, P));
}

/// `acc[i] = k(acc[i], a[i])`, over the shorter of the two.
pub fn accumulate<A: Copy, O: Copy, K: Map2<O, A, O>>(k: K, acc: &mut [O], a: &[A]) {
    run_light(Accumulate(k, acc, a, P));
}

/// `out[i] = value`.
pub fn fill<T: Copy>(value: T, out: &mut [T]) {
    run_light(Fill(value, out, P));
}

/// `out[i] = f(a[i])` by calls: for what is too rare or too slow to be compiled by itself.
pub fn call1<A: Copy, O>(f: fn(A) -> O, a: &[A], out: &mut [O]) {
    for (o, &a) in out.iter_mut().zip(a) {
        *o = f(a);
    }
}

/// `out[i] = f(a[i], b[i])` by calls.
pub fn call2<A: Copy, B: Copy, O>(f: fn(A, B) -> O, a: Arg<A>, b: Arg<B>, out: &mut [O]) {
    by_rows(a, b, out, |a, b, out| {
        for (i, o) in out.iter_mut().enumerate() {
            *o = f(a.at(i), b.at(i));
        }
    });
}

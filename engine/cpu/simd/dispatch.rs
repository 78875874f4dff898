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

/// An operand of a loop: a slice as long as the output, or one value for all.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a, T> {
    /// One value per output element.
    Slice(&'a [T]),
    /// The same value for every output element.
    Value(T),
}

impl<T: Copy> Arg<'_, T> {
    /// The element of that number.
    ///
    /// # Panics
    /// Beyond the slice.
    #[inline(always)]
    pub fn at(&self, i: usize) -> T {
        match self {
            Arg::Slice(x) => x[i],
            Arg::Value(x) => *x,
        }
    }
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
task!(LoopVV<K, A, B, O> [K: Map2<A, B, O>] { k: K, a: &'a [A], b: &'a [B], out: &'a mut [O] } => {
    for ((o, &a), &b) in out.iter_mut().zip(a).zip(b) { *o = k.map::<FMA>(a, b); }
});
task!(LoopVS<K, A, B, O> [K: Map2<A, B, O>] { k: K, a: &'a [A], b: B, out: &'a mut [O] } => {
    for (o, &a) in out.iter_mut().zip(a) { *o = k.map::<FMA>(a, b); }
});
task!(LoopSV<K, A, B, O> [K: Map2<A, B, O>] { k: K, a: A, b: &'a [B], out: &'a mut [O] } => {
    for (o, &b) in out.iter_mut().zip(b) { *o = k.map::<FMA>(a, b); }
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
    match (a, b) {
        (Arg::Slice(a), Arg::Slice(b)) => run(LoopVV(k, a, b, out, P)),
        (Arg::Slice(a), Arg::Value(b)) => run(LoopVS(k, a, b, out, P)),
        (Arg::Value(a), Arg::Slice(b)) => run(LoopSV(k, a, b, out, P)),
        (Arg::Value(a), Arg::Value(b)) => out.fill(k.map::<false>(a, b)),
    }
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
    }
}

/// [`map2`] for cheap kernels.
pub fn light2<A: Copy, B: Copy, O: Copy, K: Map2<A, B, O>>(k: K, a: Arg<A>, b: Arg<B>, out: &mut [O]) {
    match (a, b) {
        (Arg::Slice(a), Arg::Slice(b)) => run_light(LoopVV(k, a, b, out, P)),
        (Arg::Slice(a), Arg::Value(b)) => run_light(LoopVS(k, a, b, out, P)),
        (Arg::Value(a), Arg::Slice(b)) => run_light(LoopSV(k, a, b, out, P)),
        (Arg::Value(a), Arg::Value(b)) => out.fill(k.map::<false>(a, b)),
    }
}

/// [`light2`] for kernels with `k(a, b) == k(b, a)`.
pub fn light2_symmetric<A: Copy, O: Copy, K: Map2<A, A, O>>(k: K, a: Arg<A>, b: Arg<A>, out: &mut [O]) {
    match (a, b) {
        (Arg::Slice(a), Arg::Slice(b)) => run_light(LoopVV(k, a, b, out, P)),
        (Arg::Slice(a), Arg::Value(b)) | (Arg::Value(b), Arg::Slice(a)) => run_light(LoopVS(k, a, b, out, P)),
        (Arg::Value(a), Arg::Value(b)) => out.fill(k.map::<false>(a, b)),
    }
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
    for (i, o) in out.iter_mut().enumerate() {
        *o = f(a.at(i), b.at(i));
    }
}

//! Run-time choice of the instruction set, and the loops over slices that everything else is made of.
//!
//! Depends on `multiversion`. A kernel is a small `Copy` struct whose `#[inline(always)]` method works on one element
//! without branches; the loops here are compiled once per instruction set and vectorised around it by LLVM.
//! Invariant: `FMA` is true only in code compiled for a target that has the instruction (elsewhere it is a libm call).

use multiversion::{multiversion, target::target_cfg_f};

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

/// A function of three elements.
pub trait Map3<A, B, C, O>: Copy {
    /// The function; must be `#[inline(always)]`.
    fn map<const FMA: bool>(self, a: A, b: B, c: C) -> O;
}

/// An operand of a loop: a slice as long as the output, or one value for all.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a, T> {
    /// One value per output element.
    Slice(&'a [T]),
    /// The same value for every output element.
    Value(T),
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
task!(Loop3<K, A, B, C, O> [K: Map3<A, B, C, O>] { k: K, a: &'a [A], b: &'a [B], c: &'a [C], out: &'a mut [O] } => {
    for (((o, &a), &b), &c) in out.iter_mut().zip(a).zip(b).zip(c) { *o = k.map::<FMA>(a, b, c); }
});

/// `out[i] = k(a[i])`, over the shorter of the two.
pub fn map1<A: Copy, O: Copy, K: Map1<A, O>>(k: K, a: &[A], out: &mut [O]) {
    run(Loop1(k, a, out, std::marker::PhantomData));
}

/// `out[i] = k(a[i], b[i])`, over the shortest.
pub fn map2<A: Copy, B: Copy, O: Copy, K: Map2<A, B, O>>(k: K, a: Arg<A>, b: Arg<B>, out: &mut [O]) {
    use std::marker::PhantomData as P;
    match (a, b) {
        (Arg::Slice(a), Arg::Slice(b)) => run(LoopVV(k, a, b, out, P)),
        (Arg::Slice(a), Arg::Value(b)) => run(LoopVS(k, a, b, out, P)),
        (Arg::Value(a), Arg::Slice(b)) => run(LoopSV(k, a, b, out, P)),
        (Arg::Value(a), Arg::Value(b)) => {
            let value = k.map::<false>(a, b);
            out.fill(value);
        }
    }
}

/// `out[i] = k(a[i], b[i], c[i])`, over the shortest.
pub fn map3<A: Copy, B: Copy, C: Copy, O: Copy, K: Map3<A, B, C, O>>(k: K, a: &[A], b: &[B], c: &[C], out: &mut [O]) {
    run(Loop3(k, a, b, c, out, std::marker::PhantomData));
}

/// `acc[i] = k(acc[i], a[i])`, over the shorter of the two.
pub fn accumulate<A: Copy, O: Copy, K: Map2<O, A, O>>(k: K, acc: &mut [O], a: &[A]) {
    run(Accumulate(k, acc, a, std::marker::PhantomData));
}

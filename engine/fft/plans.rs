//! Plans of one-dimensional transforms, and the cache that keeps those used lately.
//!
//! A plan holds twiddle factors of about its length, so the cache is bounded by the sum of lengths. Invariant: no
//! plan is made under the lock, so that one of a long transform keeps nobody waiting.

use crate::batch::{Batch, Batched};
use crate::butterfly::Lanes;
use lucid_core::fallible::ensure_room;
use lucid_core::Result;
use num_complex::Complex;
use parking_lot::Mutex;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::collections::HashMap;
use std::sync::Arc;

/// Sum of the lengths of the plans that are kept.
const LENGTHS: usize = 1 << 22;
/// Plans that are kept.
const PLANS: usize = 256;
/// Bytes that planning takes for each element at most, in elements: Bluestein's algorithm pads to four times the
/// length.
const ROOM: usize = 16;

/// The two dtypes of real numbers that transforms are computed in.
pub trait Real: FftNum + Lanes + Batched {
    #[doc(hidden)]
    fn cache() -> &'static Mutex<Cache<Self>>;
    /// A number as near as there is.
    fn of(x: f64) -> Self;
}

macro_rules! real {
    ($T:ident) => {
        impl Real for $T {
            fn cache() -> &'static Mutex<Cache<$T>> {
                static CACHE: Mutex<Cache<$T>> = Mutex::new(Cache::new());
                &CACHE
            }
            fn of(x: f64) -> $T {
                x as $T
            }
        }
    };
}
real!(f32);
real!(f64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Complex { inverse: bool },
    Real { inverse: bool },
}

#[derive(Clone)]
enum Plan<T> {
    Complex(Arc<dyn Fft<T>>),
    Real(RealPlan<T>),
}

/// A transform of real numbers.
#[derive(Clone)]
pub(crate) enum RealPlan<T> {
    /// Of an even number: the transform of half as many complex numbers, one of several rows where there is a faster one, and the factors of [`butterflies`](crate::butterfly::butterflies),
    /// `i exp(-2 pi i k / n)` or their conjugates for the inverse.
    Even { fft: Arc<dyn Fft<T>>, twiddles: Arc<[Complex<T>]>, batch: Option<Arc<Batch>> },
    /// Of an odd number: the transform of as many complex ones.
    Odd(Arc<dyn Fft<T>>),
}

impl<T: Real> RealPlan<T> {
    fn new(n: usize, inverse: bool) -> Result<RealPlan<T>> {
        if !n.is_multiple_of(2) {
            return Ok(RealPlan::Odd(complex(n, inverse)?));
        }
        let twiddle = |k: usize| {
            let (sin, cos) = (std::f64::consts::TAU * k as f64 / n as f64).sin_cos();
            Complex::new(T::of(sin), T::of(if inverse { -cos } else { cos }))
        };
        let twiddles: Arc<[Complex<T>]> = (0..(n / 2).div_ceil(2)).map(twiddle).collect();
        let batch = T::plan(n / 2, &twiddles);
        Ok(RealPlan::Even { fft: complex(n / 2, inverse)?, twiddles, batch })
    }
}

/// A plan and the time of its last use.
type Used<T> = (Plan<T>, u64);

/// Plans by what they are for.
pub struct Cache<T> {
    plans: Option<HashMap<(usize, Kind), Used<T>>>,
    lengths: usize,
    clock: u64,
}

impl<T> Cache<T> {
    const fn new() -> Cache<T> {
        Cache { plans: None, lengths: 0, clock: 0 }
    }
}

impl<T: Real> Cache<T> {
    fn get(&mut self, key: (usize, Kind)) -> Option<Plan<T>> {
        self.clock += 1;
        let (plan, used) = self.plans.as_mut()?.get_mut(&key)?;
        *used = self.clock;
        Some(plan.clone())
    }

    fn put(&mut self, key: (usize, Kind), plan: &Plan<T>) {
        let plans = self.plans.get_or_insert_default();
        if plans.insert(key, (plan.clone(), self.clock)).is_none() {
            self.lengths += key.0;
        }
        while plans.len() > 1 && (plans.len() > PLANS || self.lengths > LENGTHS) {
            let oldest = plans.iter().filter(|(k, _)| **k != key).min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(k, _)| *k) else { break };
            plans.remove(&oldest);
            self.lengths -= oldest.0;
        }
    }
}

fn plan<T: Real>(n: usize, kind: Kind) -> Result<Plan<T>> {
    let key = (n, kind);
    if let Some(plan) = T::cache().lock().get(key) {
        return Ok(plan);
    }
    ensure_room(n, ROOM * size_of::<Complex<T>>())?;
    let plan = match kind {
        Kind::Complex { inverse } => {
            let direction = if inverse { FftDirection::Inverse } else { FftDirection::Forward };
            Plan::Complex(FftPlanner::new().plan_fft(n, direction))
        }
        Kind::Real { inverse } => Plan::Real(RealPlan::new(n, inverse)?),
    };
    T::cache().lock().put(key, &plan);
    Ok(plan)
}

/// The complex transform of `n` elements, not scaled.
pub(crate) fn complex<T: Real>(n: usize, inverse: bool) -> Result<Arc<dyn Fft<T>>> {
    match plan(n, Kind::Complex { inverse })? {
        Plan::Complex(plan) => Ok(plan),
        Plan::Real(_) => Err(lucid_core::Error::runtime("fft", "a plan of another kind")),
    }
}

/// The transform of `n` real numbers, or its inverse, not scaled.
pub(crate) fn real<T: Real>(n: usize, inverse: bool) -> Result<RealPlan<T>> {
    match plan(n, Kind::Real { inverse })? {
        Plan::Real(plan) => Ok(plan),
        Plan::Complex(_) => Err(lucid_core::Error::runtime("fft", "a plan of another kind")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_forgets_what_was_not_used_lately() {
        let mut cache = Cache::<f32>::new();
        let kind = Kind::Complex { inverse: false };
        let one = plan::<f32>(1, kind).unwrap();
        for n in 1..=PLANS + 3 {
            cache.put((n, kind), &one);
            assert!(cache.get((1, kind)).is_some());
        }
        assert_eq!(cache.plans.as_ref().map(HashMap::len), Some(PLANS));
        assert!(cache.get((2, kind)).is_none());
        cache.put((LENGTHS + 1, kind), &one);
        assert_eq!(cache.plans.as_ref().map(HashMap::len), Some(1));
        assert_eq!(cache.lengths, LENGTHS + 1);
    }

    #[test]
    fn a_length_without_room_is_an_error() {
        assert!(complex::<f64>(1 << 60, false).is_err());
    }
}

//! Arithmetic on single elements, by dtype: what the element-wise kernels are made of.
//!
//! Depends on nothing. Invariant: integers wrap and never trap (division by zero is refused before a kernel runs), and
//! everything is what PyTorch gives for the same elements.

/// Elements with the basic arithmetic.
pub trait Number: Copy {
    fn add(self, b: Self) -> Self;
    fn sub(self, b: Self) -> Self;
    fn mul(self, b: Self) -> Self;
    fn neg(self) -> Self;
}

macro_rules! number {
    ($($t:ty),* ; $($i:ty),*) => {
        $(impl Number for $t {
            #[inline(always)]
            fn add(self, b: $t) -> $t { self + b }
            #[inline(always)]
            fn sub(self, b: $t) -> $t { self - b }
            #[inline(always)]
            fn mul(self, b: $t) -> $t { self * b }
            #[inline(always)]
            fn neg(self) -> $t { -self }
        })*
        $(impl Number for $i {
            #[inline(always)]
            fn add(self, b: $i) -> $i { self.wrapping_add(b) }
            #[inline(always)]
            fn sub(self, b: $i) -> $i { self.wrapping_sub(b) }
            #[inline(always)]
            fn mul(self, b: $i) -> $i { self.wrapping_mul(b) }
            #[inline(always)]
            fn neg(self) -> $i { self.wrapping_neg() }
        })*
    };
}
number!(f32, f64; u8, i8, i16, i32, i64);

/// `bool`: or, exclusive or (which nothing uses), and.
impl Number for bool {
    #[inline(always)]
    fn add(self, b: bool) -> bool {
        self | b
    }
    #[inline(always)]
    fn sub(self, b: bool) -> bool {
        self ^ b
    }
    #[inline(always)]
    fn mul(self, b: bool) -> bool {
        self & b
    }
    #[inline(always)]
    fn neg(self) -> bool {
        self
    }
}

/// Real numbers, `bool` less.
pub trait RealNumber: Number + PartialOrd {
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    fn floor_divide(self, b: Self) -> Self;
    fn remainder(self, b: Self) -> Self;
    fn fmod(self, b: Self) -> Self;
}

macro_rules! real_float {
    ($($t:ty),*) => {
        $(impl RealNumber for $t {
            #[inline(always)]
            fn abs(self) -> $t { <$t>::abs(self) }
            #[inline(always)]
            fn sign(self) -> $t {
                // NaN has the sign 0 in PyTorch.
                <$t>::from(i8::from(self > 0.0) - i8::from(self < 0.0))
            }
            #[inline(always)]
            fn floor_divide(self, b: $t) -> $t {
                if b == 0.0 {
                    return self / b;
                }
                let rest = self % b;
                let mut q = (self - rest) / b;
                if rest != 0.0 && (b < 0.0) != (rest < 0.0) {
                    q -= 1.0;
                }
                if q == 0.0 {
                    return (0.0 as $t).copysign(self / b);
                }
                let floor = q.floor();
                if q - floor > 0.5 { floor + 1.0 } else { floor }
            }
            #[inline(always)]
            fn remainder(self, b: $t) -> $t {
                let rest = self % b;
                if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
            }
            #[inline(always)]
            fn fmod(self, b: $t) -> $t { self % b }
        })*
    };
}
real_float!(f32, f64);

macro_rules! real_integer {
    ($($t:ty),*) => {
        $(impl RealNumber for $t {
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn abs(self) -> $t { if self < 0 { self.wrapping_neg() } else { self } }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn sign(self) -> $t { (self > 0) as $t - (self < 0) as $t }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn floor_divide(self, b: $t) -> $t {
                // One division, and no branch on what has no pattern.
                let q = self.wrapping_div(b);
                let rest = self.wrapping_sub(q.wrapping_mul(b));
                q - <$t>::from((rest != 0) & ((rest < 0) != (b < 0)))
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn remainder(self, b: $t) -> $t {
                let rest = self.wrapping_rem(b);
                rest + b * <$t>::from((rest != 0) & ((rest < 0) != (b < 0)))
            }
            #[inline(always)]
            fn fmod(self, b: $t) -> $t { self.wrapping_rem(b) }
        })*
    };
}
real_integer!(u8, i8, i16, i32, i64);

/// Integers and `bool`.
pub trait Bits: Copy {
    fn and(self, b: Self) -> Self;
    fn or(self, b: Self) -> Self;
    fn xor(self, b: Self) -> Self;
    fn not(self) -> Self;
}
macro_rules! bits {
    ($($t:ty),*) => {
        $(impl Bits for $t {
            #[inline(always)]
            fn and(self, b: $t) -> $t { self & b }
            #[inline(always)]
            fn or(self, b: $t) -> $t { self | b }
            #[inline(always)]
            fn xor(self, b: $t) -> $t { self ^ b }
            #[inline(always)]
            fn not(self) -> $t { !self }
        })*
    };
}
bits!(bool, u8, i8, i16, i32, i64);

/// Floats whose neighbours are found by counting their bits up or down.
pub trait Neighbours: Copy + PartialOrd {
    fn up(self) -> Self;
    fn down(self) -> Self;
}
macro_rules! neighbours {
    ($($t:ty),*) => {
        $(impl Neighbours for $t {
            fn up(self) -> $t { self.next_up() }
            fn down(self) -> $t { self.next_down() }
        })*
    };
}
neighbours!(f32, f64);
macro_rules! half_neighbours {
    ($($t:ty),*) => {
        $(impl Neighbours for $t {
            fn up(self) -> Self {
                Self::from_bits(match self.to_bits() {
                    0x8000 => 1,
                    b if b & 0x8000 == 0 => b + 1,
                    b => b - 1,
                })
            }
            fn down(self) -> Self {
                -(-self).up()
            }
        })*
    };
}
half_neighbours!(half::f16, half::bf16);

/// The number next to `a` on the way to `b`; NaN where either is.
pub fn next_after<T: Neighbours>(a: T, b: T) -> T {
    match a.partial_cmp(&b) {
        Some(std::cmp::Ordering::Less) => a.up(),
        Some(std::cmp::Ordering::Greater) => a.down(),
        Some(std::cmp::Ordering::Equal) => b,
        None if a.partial_cmp(&a).is_none() => a,
        None => b,
    }
}

/// Integers: shifts, powers, divisors.
pub trait Integer: Copy + PartialEq + Default {
    fn shift_left(self, b: Self) -> Self;
    fn shift_right(self, b: Self) -> Self;
    fn power(self, b: Self) -> Self;
    fn gcd(self, b: Self) -> Self;
    fn lcm(self, b: Self) -> Self;
}
macro_rules! integer {
    ($($t:ty),*) => {
        $(impl Integer for $t {
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn shift_left(self, b: $t) -> $t {
                if b < 0 || b as u64 >= <$t>::BITS as u64 { 0 } else { self.wrapping_shl(b as u32) }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn shift_right(self, b: $t) -> $t {
                // Out of range: all bits become the sign, as by the largest shift that keeps it.
                let signed = <$t>::MIN < 0;
                if b < 0 || b as u64 >= <$t>::BITS as u64 {
                    return if signed { self >> (<$t>::BITS - 1) } else { 0 };
                }
                self >> b
            }
            #[allow(unused_comparisons)]
            fn gcd(self, b: $t) -> $t {
                let size = |x: $t| if x < 0 { (x as i64).unsigned_abs() } else { x as u64 };
                super::special::gcd(size(self), size(b)) as $t
            }
            // In C's arithmetic, as PyTorch's: of narrow types in 32 bits, cut off at the end.
            fn lcm(self, b: $t) -> $t {
                let g = self.gcd(b);
                if g == 0 {
                    0
                } else if <$t>::BITS < 32 {
                    (self as i32 / g as i32).wrapping_mul(b as i32).wrapping_abs() as $t
                } else {
                    RealNumber::abs(self.wrapping_div(g).wrapping_mul(b))
                }
            }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn power(self, b: $t) -> $t {
                if b < 0 {
                    return match self {
                        1 => 1,
                        x if x.wrapping_add(1) == 0 => if b % 2 == 0 { 1 } else { x },
                        _ => 0,
                    };
                }
                let (mut base, mut e, mut y) = (self, b, 1 as $t);
                while e > 0 {
                    if e & 1 == 1 {
                        y = y.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    e >>= 1;
                }
                y
            }
        })*
    };
}
integer!(u8, i8, i16, i32, i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_floors() {
        for (a, b, floor, rest, fmod) in [(7, 2, 3, 1, 1), (-7, 2, -4, 1, -1), (7, -2, -4, -1, 1), (-7, -2, 3, -1, -1)]
        {
            assert_eq!((i32::floor_divide(a, b), i32::remainder(a, b), RealNumber::fmod(a, b)), (floor, rest, fmod));
            let (x, y) = (f64::from(a), f64::from(b));
            assert_eq!((x.floor_divide(y), x.remainder(y)), (f64::from(floor), f64::from(rest)));
        }
        assert_eq!(i8::MIN.floor_divide(-1), i8::MIN);
        assert_eq!(1f32.floor_divide(0.0), f32::INFINITY);
        assert!((-0.5f32).floor_divide(f32::INFINITY) == -1.0 && 0f32.floor_divide(0.0).is_nan());
        assert!(5f32.remainder(0.0).is_nan());
    }

    #[test]
    fn shifts_and_powers() {
        assert_eq!(
            (3i8.shift_left(1), 3i8.shift_left(8), 3i8.shift_left(-1), (-3i8).shift_right(9), 200u8.shift_right(8)),
            (6, 0, 0, -1, 0)
        );
        assert_eq!((Integer::power(2i64, 10), Integer::power(2i32, -1), Integer::power(-1i32, -3)), (1024, 0, -1));
        assert_eq!((Integer::power(1i8, -2), Integer::power(0i32, 0), Integer::power(-1i16, -2)), (1, 1, 1));
        assert_eq!(((-2f32).sign(), f64::NAN.sign(), 0u8.sign(), (-5i64).sign()), (-1.0, 0.0, 0, -1));
    }
}

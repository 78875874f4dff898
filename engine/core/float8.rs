//! Floats of 8 bits: `float8_e4m3fn` and `float8_e5m2`, as the OCP specification and PyTorch have them.
//!
//! Depends on nothing else in the engine. Invariant: a number is rounded once, to the nearest, ties to the even one;
//! `float8_e4m3fn` has no infinities, so that what is beyond 448 becomes 448, as in PyTorch.

use std::fmt;

/// The nearest float of 1 sign bit, `7 - M` exponent bits and `M` bits of precision, of a number that it can hold.
#[inline(always)]
const fn nearest<const M: u32>(magnitude: u32, bias: u32) -> u8 {
    let smallest_normal = (128 - bias) << 23;
    let bits = if magnitude < smallest_normal {
        // The sum with this number rounds to a multiple of the smallest subnormal.
        let unit = (128 - bias + 23 - M) << 23;
        (f32::from_bits(magnitude) + f32::from_bits(unit)).to_bits() - unit
    } else {
        let odd = (magnitude >> (23 - M)) & 1;
        (magnitude - ((127 - bias) << 23) + (1 << (22 - M)) - 1 + odd) >> (23 - M)
    };
    bits as u8
}

/// 4 bits of exponent, 3 of precision, no infinities: numbers to 448.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct F8E4M3FN(u8);

/// 5 bits of exponent, 2 of precision: numbers to 57344, infinities, NaN.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct F8E5M2(u8);

impl F8E4M3FN {
    /// Of float32; 448 where the number is beyond it.
    #[inline]
    pub const fn from_f32(x: f32) -> F8E4M3FN {
        let (sign, magnitude) = ((x.to_bits() >> 24) as u8 & 0x80, x.to_bits() & 0x7fff_ffff);
        F8E4M3FN(
            sign | match magnitude {
                0x7f80_0001.. => 0x7f,
                // 448.
                0x43e0_0000.. => 0x7e,
                _ => nearest::<3>(magnitude, 7),
            },
        )
    }

    /// As float32.
    #[inline]
    pub const fn to_f32(self) -> f32 {
        let (exponent, fraction) = ((self.0 >> 3) as u32 & 0xf, self.0 as u32 & 7);
        let magnitude = match (exponent, fraction) {
            (15, 7) => f32::NAN,
            (0, _) => fraction as f32 / 512.0,
            _ => f32::from_bits(((exponent + 120) << 23) | (fraction << 20)),
        };
        if self.0 & 0x80 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }
}

impl F8E5M2 {
    /// Of float32; infinite where the number is 61440 or beyond.
    #[inline]
    pub const fn from_f32(x: f32) -> F8E5M2 {
        let (sign, magnitude) = ((x.to_bits() >> 24) as u8 & 0x80, x.to_bits() & 0x7fff_ffff);
        F8E5M2(
            sign | match magnitude {
                0x7f80_0001.. => 0x7f,
                // 65536.
                0x4780_0000.. => 0x7c,
                _ => nearest::<2>(magnitude, 15),
            },
        )
    }

    /// As float32.
    #[inline]
    pub const fn to_f32(self) -> f32 {
        let (exponent, fraction) = ((self.0 >> 2) as u32 & 0x1f, self.0 as u32 & 3);
        let magnitude = match (exponent, fraction) {
            (31, 0) => f32::INFINITY,
            (31, _) => f32::NAN,
            (0, _) => fraction as f32 / 65536.0,
            _ => f32::from_bits(((exponent + 112) << 23) | (fraction << 21)),
        };
        if self.0 & 0x80 == 0 {
            magnitude
        } else {
            -magnitude
        }
    }
}

macro_rules! float8 {
    ($($t:ident),*) => {$(
        impl $t {
            /// Of these bits.
            #[inline]
            pub const fn from_bits(bits: u8) -> $t {
                $t(bits)
            }

            /// Its bits.
            #[inline]
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// Of float64, by way of float32 as in PyTorch.
            #[inline]
            pub const fn from_f64(x: f64) -> $t {
                $t::from_f32(x as f32)
            }

            /// As float64.
            #[inline]
            pub const fn to_f64(self) -> f64 {
                self.to_f32() as f64
            }
        }

        impl PartialEq for $t {
            #[inline]
            fn eq(&self, other: &$t) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl fmt::Debug for $t {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(f)
            }
        }
    )*};
}
float8!(F8E4M3FN, F8E5M2);

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of a format in order, without NaN and infinities, and what follows the largest.
    fn nearest_by_search(x: f32, to_f32: impl Fn(u8) -> f32, count: u8) -> u8 {
        let distance = |bits: u8| (f64::from(to_f32(bits)) - f64::from(x)).abs();
        let best = (0..count).min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
        best.unwrap_or(0)
    }

    #[test]
    fn numbers_come_back() {
        for bits in 0..=u8::MAX {
            let (x, y) = (F8E4M3FN::from_bits(bits), F8E5M2::from_bits(bits));
            match x.to_f32().is_nan() {
                true => assert_eq!(bits & 0x7f, 0x7f),
                false => assert_eq!(F8E4M3FN::from_f32(x.to_f32()).to_bits(), bits),
            }
            match y.to_f32().is_nan() {
                true => assert!(bits & 0x7f > 0x7c),
                false => assert_eq!(F8E5M2::from_f32(y.to_f32()).to_bits(), bits),
            }
        }
    }

    #[test]
    fn rounds_to_the_nearest() {
        // Miri takes a thousand times as long.
        for i in (0..20_000u32).step_by(if cfg!(miri) { 499 } else { 1 }) {
            let x = f32::from_bits(0x3500_0000 + i * 0xc85);
            if x < 448.0 {
                let want = nearest_by_search(x, |bits| F8E4M3FN::from_bits(bits).to_f32(), 0x7f);
                assert_eq!(F8E4M3FN::from_f32(x).to_bits(), want, "{x}");
            }
            if x < 57344.0 {
                let want = nearest_by_search(x, |bits| F8E5M2::from_bits(bits).to_f32(), 0x7c);
                assert_eq!(F8E5M2::from_f32(x).to_bits(), want, "{x}");
            }
        }
        for (x, bits) in [(448.0, 0x7e), (465.0, 0x7e), (1e9, 0x7e), (f32::INFINITY, 0x7e), (f32::NAN, 0x7f)] {
            assert_eq!(F8E4M3FN::from_f32(x).to_bits(), bits, "{x}");
        }
        for (x, bits) in [(57344.0, 0x7b), (61439.0, 0x7b), (61440.0, 0x7c), (1e9, 0x7c), (f32::INFINITY, 0x7c)] {
            assert_eq!(F8E5M2::from_f32(x).to_bits(), bits, "{x}");
        }
        assert_eq!(F8E5M2::from_f32(f32::NAN).to_bits(), 0x7f);
        assert_eq!(F8E5M2::from_f32(-0.0).to_bits(), 0x80);
    }
}

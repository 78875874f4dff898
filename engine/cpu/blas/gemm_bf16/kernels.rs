//! Blocks of sums of products of pairs, by each instruction set that multiplies pairs.
//!
//! Depends on `std::arch`. What the instructions have in common: products are exact, sums are `f32` rounded to nearest even
//! whatever the control register says, and subnormal inputs and results count as zeros. Invariant: a kernel's functions are
//! called where `exists` was true.

use super::BLOCK;
use crate::simd::transpose::{transpose, Tile, SIDE};
use std::arch::asm;
use std::arch::x86_64::*;

/// A way of multiplying pairs.
pub(super) trait Kernel {
    /// What a thread holds while it multiplies.
    type Session;
    /// Tiles worth packing on another thread.
    const WORTH_PACKING: usize = 128;
    /// Multiplications worth another thread.
    const WORTH_A_TASK: usize;

    /// Has the machine, and lets the system use, the instructions?
    fn exists() -> bool;
    /// Prepares this thread.
    fn begin() -> Self::Session;
    /// Words of a tile with rows and columns exchanged.
    fn transpose(tile: &mut Tile);
    /// `BLOCK` × `BLOCK` sums, rows `ld` apart, of products of two strips with two, over `len` tiles; added to what is there
    /// or written.
    ///
    /// # Safety
    /// The machine must have the instructions and the thread a session; each pointer to tiles must lead to `len` of them, and
    /// the sums must be this thread's.
    unsafe fn sums(a: [*const Tile; 2], b: [*const Tile; 2], len: usize, to: *mut f32, ld: usize, add: bool);
}

/// AVX-512 BF16: one instruction adds 16 products of two pairs each.
pub(super) struct Avx512;

/// Rows whose sums stay in registers, two each.
const ROWS: usize = 8;

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn by_registers(a: [*const Tile; 2], b: [*const Tile; 2], len: usize, to: *mut f32, ld: usize, add: bool) {
    for group in 0..BLOCK / ROWS {
        let (strip, first) = (group * ROWS / SIDE, group * ROWS % SIDE);
        // SAFETY: the contract of `Kernel::sums`; the rows of a group are some of a strip's.
        unsafe {
            let to = to.add(group * ROWS * ld);
            let mut sums = [[_mm512_setzero_ps(); 2]; ROWS];
            if add {
                for (i, sums) in sums.iter_mut().enumerate() {
                    for (s, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm512_loadu_ps(to.add(i * ld + s * SIDE));
                    }
                }
            }
            for t in 0..len {
                let (a, b) = (&(&*a[strip].add(t)).0[first..][..ROWS], b.map(|b| &(*b.add(t)).0));
                for pair in 0..SIDE {
                    let right = b.map(|b| as_pairs(_mm512_load_si512(b[pair].as_ptr().cast())));
                    for (sums, a) in sums.iter_mut().zip(a) {
                        let left = as_pairs(_mm512_set1_epi32(a[pair] as i32));
                        for (sum, right) in sums.iter_mut().zip(right) {
                            *sum = _mm512_dpbf16_ps(*sum, left, right);
                        }
                    }
                }
            }
            for (i, sums) in sums.into_iter().enumerate() {
                for (s, sum) in sums.into_iter().enumerate() {
                    _mm512_storeu_ps(to.add(i * ld + s * SIDE), sum);
                }
            }
        }
    }
}

#[inline(always)]
fn as_pairs(x: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits, and any bits are a value.
    unsafe { std::mem::transmute(x) }
}

impl Kernel for Avx512 {
    type Session = ();
    const WORTH_A_TASK: usize = 1 << 19;

    fn exists() -> bool {
        is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16")
    }
    fn begin() {}
    fn transpose(tile: &mut Tile) {
        // SAFETY: AVX-512F is part of what `exists` asked for.
        unsafe { transpose(tile) }
    }
    unsafe fn sums(a: [*const Tile; 2], b: [*const Tile; 2], len: usize, to: *mut f32, ld: usize, add: bool) {
        // SAFETY: handed on.
        unsafe { by_registers(a, b, len, to, ld, add) }
    }
}

/// AMX: one instruction adds the products of a tile with a tile to 16 × 16 sums.
pub(super) struct Amx;

/// What the tile registers are configured to while it lives.
pub(super) struct Configured(());

/// The operand of `ldtilecfg`: palette 1, then bytes of a row and rows of each register.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

static CONFIG: Config = {
    let (mut row_bytes, mut rows) = ([0; 16], [0; 16]);
    let mut register = 0;
    while register < 8 {
        (row_bytes[register], rows[register]) = (4 * SIDE as u16, SIDE as u8);
        register += 1;
    }
    Config { palette: 1, start_row: 0, reserved: [0; 14], row_bytes, rows }
};

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: whoever made it knew that the instruction exists. It frees the system from saving the registers.
        unsafe { asm!("tilerelease", options(nostack, nomem)) };
    }
}

/// Does the processor say that it has AMX for `bfloat16`, and does the system save its registers?
fn has_tiles() -> bool {
    #[target_feature(enable = "xsave")]
    fn saved() -> u64 {
        // SAFETY: the caller saw that the system has switched the instruction on.
        unsafe { _xgetbv(0) }
    }
    const OSXSAVE: u32 = 1 << 27;
    const AMX_BF16: u32 = 1 << 22;
    const AMX_TILE: u32 = 1 << 24;
    const TILE_STATE: u64 = 3 << 17;
    if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let features = __cpuid_count(7, 0).edx;
    // SAFETY: OSXSAVE says that the instruction exists.
    features & AMX_BF16 != 0 && features & AMX_TILE != 0 && unsafe { saved() } & TILE_STATE == TILE_STATE
}

/// Asks the system for leave to use the tile registers, for all threads of the process; those to come inherit it.
#[cfg(target_os = "linux")]
fn may_use_tiles() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILE_DATA: libc::c_long = 18;
    // SAFETY: takes two numbers, and changes nothing but the leave.
    unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA) == 0 }
}

/// How another system is asked is not known here.
#[cfg(not(target_os = "linux"))]
fn may_use_tiles() -> bool {
    false
}

impl Kernel for Amx {
    type Session = Configured;
    const WORTH_A_TASK: usize = 1 << 23;

    fn exists() -> bool {
        is_x86_feature_detected!("avx512f") && has_tiles() && may_use_tiles()
    }
    fn begin() -> Configured {
        // SAFETY: AMX exists; the operand is 64 bytes of a valid configuration.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const CONFIG, options(nostack, readonly)) };
        Configured(())
    }
    fn transpose(tile: &mut Tile) {
        // SAFETY: AVX-512F is part of what `exists` asked for.
        unsafe { transpose(tile) }
    }
    unsafe fn sums(a: [*const Tile; 2], b: [*const Tile; 2], len: usize, to: *mut f32, ld: usize, add: bool) {
        // SAFETY: the contract: pointers lead to `len` tiles, at least one, and to the sums. The tile registers are named as
        // written over; their configuration outlives the block.
        unsafe {
            let below = to.add(SIDE * ld);
            asm!(
                "test {add:e}, {add:e}",
                "jz 2f",
                "tileloadd tmm0, [{to} + {ld}]",
                "tileloadd tmm1, [{to} + {ld} + 64]",
                "tileloadd tmm2, [{below} + {ld}]",
                "tileloadd tmm3, [{below} + {ld} + 64]",
                "jmp 3f",
                "2:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                "3:",
                "tileloadd tmm4, [{a0} + {row}]",
                "tileloadd tmm6, [{b0} + {row}]",
                "tileloadd tmm7, [{b1} + {row}]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tileloadd tmm5, [{a1} + {row}]",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {a0}, 1024",
                "add {a1}, 1024",
                "add {b0}, 1024",
                "add {b1}, 1024",
                "dec {len}",
                "jnz 3b",
                "tilestored [{to} + {ld}], tmm0",
                "tilestored [{to} + {ld} + 64], tmm1",
                "tilestored [{below} + {ld}], tmm2",
                "tilestored [{below} + {ld} + 64], tmm3",
                add = in(reg) u32::from(add),
                to = in(reg) to,
                below = in(reg) below,
                ld = in(reg) 4 * ld,
                row = in(reg) 4 * SIDE,
                a0 = inout(reg) a[0] => _,
                a1 = inout(reg) a[1] => _,
                b0 = inout(reg) b[0] => _,
                b1 = inout(reg) b[1] => _,
                len = inout(reg) len => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

/// The instruction in plain Rust, for tests on machines that have none of them.
#[cfg(test)]
pub(super) struct Plain;

#[cfg(test)]
impl Kernel for Plain {
    type Session = ();
    const WORTH_PACKING: usize = 2;
    const WORTH_A_TASK: usize = 1 << 12;

    fn exists() -> bool {
        true
    }
    fn begin() {}
    fn transpose(tile: &mut Tile) {
        let before = *tile;
        for (i, row) in tile.0.iter_mut().enumerate() {
            for (word, line) in row.iter_mut().zip(&before.0) {
                *word = line[i];
            }
        }
    }
    unsafe fn sums(a: [*const Tile; 2], b: [*const Tile; 2], len: usize, to: *mut f32, ld: usize, add: bool) {
        let halves = |word: u32| [f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000)];
        for (i, j) in (0..BLOCK).flat_map(|i| (0..BLOCK).map(move |j| (i, j))) {
            // SAFETY: the contract of `Kernel::sums`.
            unsafe {
                let to = to.add(i * ld + j);
                let mut sum = if add { *to } else { 0.0 };
                for t in 0..len {
                    let (a, b) = (&(*a[i / SIDE].add(t)).0, &(*b[j / SIDE].add(t)).0);
                    for (pair, row) in b.iter().enumerate() {
                        let (x, y) = (halves(a[i % SIDE][pair]), halves(row[j % SIDE]));
                        sum += x[0] * y[0] + x[1] * y[1];
                    }
                }
                *to = sum;
            }
        }
    }
}

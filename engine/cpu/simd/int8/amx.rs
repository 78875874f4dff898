//! Many rows of activations with AMX: tiles of 16 rows of each factor, whose products are summed in integers over one
//! group and then scaled in `f32`.
//!
//! The instructions are written as assembly, since their intrinsics are not stable. Invariant: [`has_amx`] is asked first; it
//! asks the system for the tiles' state, once for the process.

use super::x86::each_row;
use super::{Activations, Form, Packed, GROUP};
use crate::fallible::scratch;
use std::arch::asm;
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// Rows of either factor in a tile.
pub const TALL: usize = 16;
/// Rows of the matrix that are unpacked at a time: two tiles.
pub const PANEL: usize = 2 * TALL;

/// Does the machine have the instructions, and the system let us use them?
pub fn has_amx() -> bool {
    static ASKED: OnceLock<bool> = OnceLock::new();
    *ASKED.get_or_init(|| {
        if !super::x86::has_vnni() || !cfg!(target_os = "linux") {
            return false;
        }
        // Leaf 7: tiles and their products of bytes.
        let features = __cpuid_count(7, 0).edx;
        let (request, tiles) = (0x1023, 18);
        features >> 24 & 3 == 3 && ask(request, tiles)
    })
}

#[cfg(target_os = "linux")]
fn ask(request: i64, tiles: i64) -> bool {
    // SAFETY: the call takes numbers and changes what the kernel saves of this process's registers, nothing else.
    unsafe { libc::syscall(libc::SYS_arch_prctl, request, tiles) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn ask(_: i64, _: i64) -> bool {
    false
}

/// The shapes of tiles: 0 to 3 are sums, 4 and 5 activations, 6 and 7 the matrix; `width` elements of a row are summed.
fn shapes(width: usize) -> [u8; 64] {
    let mut made = [0u8; 64];
    made[0] = 1;
    for tile in 0..8 {
        let (rows, bytes) = match tile {
            0..4 => (TALL, 64),
            4 | 5 => (TALL, width),
            _ => (width / 4, 64),
        };
        made[16 + 2 * tile] = bytes as u8;
        made[48 + tile] = rows as u8;
    }
    made
}

/// Sums of four pairs of tiles, `[pair of rows of x][pair of the matrix][row of x][row of the matrix]`.
#[repr(C, align(64))]
struct Sums([[[[i32; TALL]; TALL]; 2]; 2]);

/// Two tiles of activations by two of the matrix, over `width` elements; `SIGNED` says what the matrix has.
///
/// # Safety
/// Tiles must be configured; `x` must have two tiles of 16 rows of `width` bytes, `x_step` bytes apart, and `w` two of
/// `width / 4` rows of 64 bytes, `w_step` apart.
#[inline(always)]
unsafe fn multiply<const SIGNED: bool>(
    x: *const i8,
    x_step: usize,
    width: usize,
    w: *const u8,
    w_step: usize,
    to: &mut Sums,
) {
    let to = to.0.as_mut_ptr().cast::<i32>();
    macro_rules! run {
        ($by:literal) => {
            asm!(
                "tileloadd tmm6, [{w0} + {line}]",
                "tileloadd tmm4, [{x0} + {width}]",
                "tilezero tmm0",
                concat!($by, " tmm0, tmm4, tmm6"),
                "tileloadd tmm7, [{w1} + {line}]",
                "tilezero tmm1",
                concat!($by, " tmm1, tmm4, tmm7"),
                "tilestored [{to} + {line}], tmm0",
                "tileloadd tmm5, [{x1} + {width}]",
                "tilezero tmm2",
                concat!($by, " tmm2, tmm5, tmm6"),
                "tilestored [{to} + {line} + 1024], tmm1",
                "tilezero tmm3",
                concat!($by, " tmm3, tmm5, tmm7"),
                "tilestored [{to} + {line} + 2048], tmm2",
                "tilestored [{to} + {line} + 3072], tmm3",
                w0 = in(reg) w, w1 = in(reg) w.add(w_step),
                x0 = in(reg) x, x1 = in(reg) x.add(x_step),
                to = in(reg) to, line = in(reg) 64usize, width = in(reg) width,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack, preserves_flags),
            )
        };
    }
    // SAFETY: the contract.
    unsafe {
        match SIGNED {
            true => run!("tdpbssd"),
            false => run!("tdpbsud"),
        }
    }
}

/// Rows of activations in tiles.
pub struct Tiles {
    /// Elements, `[pair of tiles][part of a row][tile][row][element]`, where a part has as many as are summed at once.
    elements: Vec<i8>,
    /// Scales and scaled sums of groups, `[pair of tiles][group][row of 32]`.
    scales: Vec<f32>,
    sums: Vec<f32>,
    groups: usize,
    count: usize,
    width: usize,
}

impl Tiles {
    pub fn of(x: &Activations, count: usize, form: Form) -> Tiles {
        let (groups, pairs) = (x.columns / GROUP, count.div_ceil(PANEL));
        let width = if form == Form::Q6K { 16 } else { GROUP };
        let n = pairs * groups * PANEL;
        let mut made = Tiles {
            elements: scratch(0, n * GROUP),
            scales: scratch(0.0, n),
            sums: scratch(0.0, n),
            groups,
            count,
            width,
        };
        for m in 0..count {
            let (row, pair, r) = (x.row(m), m / PANEL, m % PANEL);
            for g in 0..groups {
                let at = (pair * groups + g) * PANEL + r;
                (made.scales[at], made.sums[at]) = (row.scales[g], row.sums[g]);
            }
            let from = pair * groups * PANEL * GROUP;
            for (part, q) in row.q.chunks_exact(width).enumerate() {
                let at = from + (part * PANEL + r) * width;
                made.elements[at..at + width].copy_from_slice(q);
            }
        }
        made
    }
}

/// 32 rows of the matrix, `[group][tile][4 of 32][row]`, four elements in a word, less the form's offset.
struct Panel {
    elements: Vec<u32>,
    /// `[group][half][row of 32]`.
    scales: Vec<f32>,
    biases: Vec<f32>,
}

impl Panel {
    #[inline(always)]
    fn put(&mut self, r: usize, g: usize, u: [u32; 8], scales: [f32; 2], bias: f32) {
        let at = (g * 2 + r / TALL) * 8 * TALL;
        let elements = &mut self.elements[at..at + 8 * TALL];
        u.into_iter().enumerate().for_each(|(k, u)| elements[k * TALL + r % TALL] = u);
        let both = &mut self.scales[g * 2 * PANEL..(g + 1) * 2 * PANEL];
        (both[r], both[PANEL + r]) = (scales[0], scales[1]);
        self.biases[g * PANEL + r] = bias;
    }
}

/// Adds scaled sums of a group.
///
/// # Safety
/// The machine must have AVX-512F; `scales` must have 32 numbers, and so must `own`.
#[target_feature(enable = "avx512f")]
unsafe fn scale(sums: &Sums, scales: *const f32, own: *const f32, out: &mut [[f32; PANEL]; PANEL]) {
    // SAFETY: the contract; `out` has 32 rows of 32.
    unsafe {
        let by = [_mm512_loadu_ps(scales), _mm512_loadu_ps(scales.add(TALL))];
        for (m, out) in out.iter_mut().enumerate() {
            let own = _mm512_set1_ps(*own.add(m));
            for (half, &by) in by.iter().enumerate() {
                let sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums.0[m / TALL][half][m % TALL].as_ptr().cast()));
                let to = out.as_mut_ptr().add(half * TALL);
                _mm512_storeu_ps(to, _mm512_fmadd_ps(sum, _mm512_mul_ps(by, own), _mm512_loadu_ps(to)));
            }
        }
    }
}

/// Adds biases times the activations' sums.
///
/// # Safety
/// As for [`scale`].
#[target_feature(enable = "avx512f")]
unsafe fn shift(biases: *const f32, sums: *const f32, out: &mut [[f32; PANEL]; PANEL]) {
    // SAFETY: the contract; `out` has 32 rows of 32.
    unsafe {
        let by = [_mm512_loadu_ps(biases), _mm512_loadu_ps(biases.add(TALL))];
        for (m, out) in out.iter_mut().enumerate() {
            let own = _mm512_set1_ps(*sums.add(m));
            for (half, &by) in by.iter().enumerate() {
                let to = out.as_mut_ptr().add(half * TALL);
                _mm512_storeu_ps(to, _mm512_fmadd_ps(by, own, _mm512_loadu_ps(to)));
            }
        }
    }
}

/// All rows of activations with rows `from` of the matrix on: `made` has pieces of as many rows as are unpacked at a time, each
/// `[m][row]`.
///
/// # Panics
/// Without AMX, and for slices that do not fit.
pub fn many(x: &Tiles, w: &Packed<'_>, from: usize, made: &mut [f32]) {
    let (groups, count) = (x.groups, x.count);
    assert!(has_amx() && groups * GROUP == w.columns && made.len().is_multiple_of(count));
    let mut panel = Panel {
        elements: scratch(0, groups * PANEL * 8),
        scales: scratch(0.0, groups * 2 * PANEL),
        biases: scratch(0.0, groups * PANEL),
    };
    let shapes = shapes(x.width);
    // Other libraries set the shapes of their tiles once for a thread, and must find them again.
    let mut before = [0u8; 64];
    // SAFETY: the machine has tiles; the shapes are those of the first palette, and both arrays have 64 bytes.
    unsafe {
        asm!("sttilecfg [{}]", in(reg) before.as_mut_ptr(), options(nostack, preserves_flags));
        asm!("ldtilecfg [{}]", in(reg) shapes.as_ptr(), options(nostack, preserves_flags));
    }
    let offset = w.form.offset() as u8;
    let bias = matches!(w.form, Form::Q4K | Form::Q5K | Form::Affine4 | Form::Affine8);
    let mut sums = Sums([[[[0; TALL]; TALL]; 2]; 2]);
    for (p, made) in made.chunks_mut(PANEL * count).enumerate() {
        let rows = made.len() / count;
        let first = from + p * PANEL;
        each_row(w, first..first + rows, offset, |r, g, u, scales, bias| panel.put(r, g, u, scales, bias));
        for pair in 0..count.div_ceil(PANEL) {
            let mut out = [[0f32; PANEL]; PANEL];
            let first = pair * groups * PANEL;
            for g in 0..groups {
                // SAFETY: tiles are configured for this width; the pair has `groups` groups of 32 rows, and so has the panel.
                unsafe {
                    let own = x.scales.as_ptr().add(first + g * PANEL);
                    let by = panel.scales.as_ptr().add(g * 2 * PANEL);
                    for half in 0..GROUP / x.width {
                        let q = x.elements.as_ptr().add((first + g * PANEL) * GROUP + half * PANEL * x.width);
                        let w8 = panel.elements.as_ptr().add(g * PANEL * 8 + half * 64).cast::<u8>();
                        match w.form {
                            Form::Affine8 => multiply::<false>(q, TALL * x.width, x.width, w8, 512, &mut sums),
                            _ => multiply::<true>(q, TALL * x.width, x.width, w8, 512, &mut sums),
                        }
                        scale(&sums, by.add(half * PANEL), own, &mut out);
                    }
                    if bias {
                        shift(panel.biases.as_ptr().add(g * PANEL), x.sums.as_ptr().add(first + g * PANEL), &mut out);
                    }
                }
            }
            for (made, sums) in made[pair * PANEL * rows..].chunks_exact_mut(rows).zip(&out) {
                made.copy_from_slice(&sums[..rows]);
            }
        }
    }
    // SAFETY: nothing reads the tiles any more; what was stored is a configuration, or none.
    unsafe { asm!("ldtilecfg [{}]", in(reg) before.as_ptr(), options(nostack, preserves_flags)) };
}

//! The kernels for AVX2 and AVX-512 VNNI.
//!
//! Few rows of activations read packed rows as they are, 32 elements in a register. Many meet 16 rows of the matrix at a
//! time, which are unpacked once so that a register has four neighbours of each. Invariant: public functions check that the
//! machine has the instructions and that slices are long enough.

use super::{plain, Activations, Form, Packed, Row, GROUP};
use crate::fallible::scratch;
use std::arch::x86_64::*;

/// Rows of the matrix that many rows of activations meet at a time.
pub const TALL: usize = 16;
/// Rows of activations that are multiplied at a time.
const WIDE: usize = 8;
/// Bytes ahead of what is multiplied that are asked for: of 1 to 4 KiB this reads fastest from memory.
const AHEAD: usize = 1536;
/// Groups whose scales are made at a time.
const CHUNK: usize = 8;

pub fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
}

pub fn has_vnni() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vnni")
}

/// Forms as constants of functions.
const Q4_0: u8 = 0;
const Q8_0: u8 = 1;
const Q4K: u8 = 2;
const Q5K: u8 = 3;
const Q6K: u8 = 4;
const AFFINE4: u8 = 5;
const AFFINE8: u8 = 6;

macro_rules! by_form {
    ($form:expr, $f:ident($($arg:expr),*)) => {
        match $form {
            Form::Q4_0 => $f::<Q4_0>($($arg),*),
            Form::Q8_0 => $f::<Q8_0>($($arg),*),
            Form::Q4K => $f::<Q4K>($($arg),*),
            Form::Q5K => $f::<Q5K>($($arg),*),
            Form::Q6K => $f::<Q6K>($($arg),*),
            Form::Affine4 => $f::<AFFINE4>($($arg),*),
            Form::Affine8 => $f::<AFFINE8>($($arg),*),
        }
    };
}

/// Two registers of 4-bit elements in one: the lower halves of 16 bytes, then the higher ones.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn nibbles(at: *const u8) -> __m256i {
    // SAFETY: the caller's rows have 16 bytes there.
    let v = unsafe { _mm_loadu_si128(at.cast()) };
    _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16::<4>(v), v), _mm256_set1_epi8(15))
}

/// Elements of group `j` of the chunk at `row`, counted from 0 on.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn group<const FORM: u8>(row: *const u8, j: usize) -> __m256i {
    let low = _mm256_set1_epi8(15);
    // SAFETY: the caller's row has the whole chunk.
    unsafe {
        let load = |at: usize| _mm256_loadu_si256(row.add(at).cast());
        match FORM {
            Q4_0 => nibbles(row.add(j * 18 + 2)),
            AFFINE4 => nibbles(row.add(j * 16)),
            Q8_0 => _mm256_xor_si256(load(j * 34 + 2), _mm256_set1_epi8(-128)),
            AFFINE8 => load(j * 32),
            Q4K | Q5K => {
                let bytes = load(if FORM == Q4K { 16 } else { 48 } + j / 2 * 32);
                let bytes = if j.is_multiple_of(2) { bytes } else { _mm256_srli_epi16::<4>(bytes) };
                let made = _mm256_and_si256(bytes, low);
                if FORM == Q4K {
                    return made;
                }
                let bit = _mm256_set1_epi8(1 << j as u32 as i8);
                let set = _mm256_cmpeq_epi8(_mm256_and_si256(load(16), bit), bit);
                _mm256_or_si256(made, _mm256_and_si256(set, _mm256_set1_epi8(16)))
            }
            _ => {
                let (part, k) = (j / 4, j % 4);
                let bytes = load(64 * part + 32 * (k % 2));
                let bytes = if k < 2 { bytes } else { _mm256_srli_epi16::<4>(bytes) };
                let high = load(128 + 32 * part);
                let high = match k {
                    0 => _mm256_slli_epi16::<4>(high),
                    1 => _mm256_slli_epi16::<2>(high),
                    2 => high,
                    _ => _mm256_srli_epi16::<2>(high),
                };
                let high = _mm256_and_si256(high, _mm256_set1_epi8(0x30));
                _mm256_or_si256(_mm256_and_si256(bytes, low), high)
            }
        }
    }
}

/// Scales of a chunk's groups (of `Q6K` those of their halves, all first ones before all second ones) and their biases.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn scales<const FORM: u8>(row: *const u8, sides: (*const f32, *const f32)) -> (__m256, __m256, __m256) {
    let zero = _mm256_setzero_ps();
    // SAFETY: the caller's row has the whole chunk, and so have its sides.
    unsafe {
        let word = |at: usize| row.add(at).cast::<u16>().read_unaligned() as i16;
        match FORM {
            Q4_0 | Q8_0 => {
                let n = if FORM == Q4_0 { 18 } else { 34 };
                let (a, b, c, d) = (word(0), word(n), word(2 * n), word(3 * n));
                let (e, f, g, h) = (word(4 * n), word(5 * n), word(6 * n), word(7 * n));
                let made = _mm256_cvtph_ps(_mm_setr_epi16(a, b, c, d, e, f, g, h));
                (made, made, zero)
            }
            AFFINE4 | AFFINE8 => {
                let made = _mm256_loadu_ps(sides.0);
                (made, made, _mm256_loadu_ps(sides.1))
            }
            Q4K | Q5K => {
                let both = _mm_cvtph_ps(_mm_setr_epi16(word(0), word(2), 0, 0, 0, 0, 0, 0));
                // 6-bit numbers: the lower 4 bits of the second half are in bytes 8 on, their rest above the first half's.
                let read = |at: usize| u32::from_le(row.add(4 + at).cast::<u32>().read_unaligned());
                let (a, b, c) = (read(0), read(4), read(8));
                let (six, four, two) = (0x3f3f_3f3fu32, 0x0f0f_0f0fu32, 0x0303_0303u32);
                let s = u64::from(a & six) | u64::from(c & four | (a >> 6 & two) << 4) << 32;
                let m = u64::from(b & six) | u64::from(c >> 4 & four | (b >> 6 & two) << 4) << 32;
                let float = |x: u64| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(x as i64)));
                let d = _mm256_broadcastss_ps(both);
                let least = _mm256_broadcastss_ps(_mm_movehdup_ps(both));
                let made = _mm256_mul_ps(d, float(s));
                (made, made, _mm256_sub_ps(zero, _mm256_mul_ps(least, float(m))))
            }
            _ => {
                let d = _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_setr_epi16(word(208), 0, 0, 0, 0, 0, 0, 0)));
                let bytes = _mm_loadu_si128(row.add(192).cast());
                let order = _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15);
                let bytes = _mm_shuffle_epi8(bytes, order);
                let first = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
                let second = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes)));
                (_mm256_mul_ps(d, first), _mm256_mul_ps(d, second), zero)
            }
        }
    }
}

const fn is_affine(form: u8) -> bool {
    form == AFFINE4 || form == AFFINE8
}
const fn has_bias(form: u8) -> bool {
    is_affine(form) || form == Q4K || form == Q5K
}
const fn is_wide(form: u8) -> bool {
    form == Q8_0 || form == AFFINE8
}
/// Bytes of a chunk.
const fn bytes_of(form: u8) -> usize {
    match form {
        Q4_0 => 8 * 18,
        Q8_0 => 8 * 34,
        Q4K => 144,
        Q5K => 176,
        Q6K => 210,
        AFFINE4 => 8 * 16,
        _ => 8 * 32,
    }
}

/// Sums of four products each, added to `from`.
#[inline]
#[target_feature(enable = "avx2,avx512vl,avx512vnni")]
fn fours_vnni(from: __m256i, u: __m256i, q: __m256i) -> __m256i {
    _mm256_dpbusd_epi32(from, u, q)
}

/// The same with AVX2; elements of 8 bits count from -128 on here.
#[inline]
#[target_feature(enable = "avx2")]
fn fours_avx2<const FORM: u8>(from: __m256i, u: __m256i, q: __m256i) -> __m256i {
    let pairs = if is_wide(FORM) {
        let s = _mm256_xor_si256(u, _mm256_set1_epi8(-128));
        _mm256_maddubs_epi16(_mm256_abs_epi8(s), _mm256_sign_epi8(q, s))
    } else {
        _mm256_maddubs_epi16(u, q)
    };
    _mm256_add_epi32(from, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
}

#[inline]
#[target_feature(enable = "avx2")]
fn total(x: __m256) -> f32 {
    let x = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps::<1>(x));
    let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)))
}

macro_rules! dot_chunks {
    ($name:ident, $features:literal, $fours:expr, $takes:expr) => {
        /// The inner product over whole chunks.
        ///
        /// # Safety
        /// The machine must have the instructions; `row`, `sides` and `x` must have `chunks` chunks.
        #[target_feature(enable = $features)]
        unsafe fn $name<const FORM: u8>(row: &[u8], sides: (&[f32], &[f32]), x: Row<'_>, chunks: usize) -> f32 {
            let mut sums = [_mm256_setzero_ps(); 4];
            let mut biased = _mm256_setzero_ps();
            let mut by = [[0f32; CHUNK]; 2];
            for c in 0..chunks {
                // SAFETY: the contract; a chunk has 8 groups of 32 elements, 8 lanes each.
                unsafe {
                    let row = row.as_ptr().add(c * bytes_of(FORM));
                    // Rows follow each other in memory; what is behind the last one is not read, only asked for.
                    for line in 0..bytes_of(FORM).div_ceil(64) {
                        _mm_prefetch::<_MM_HINT_T0>(row.wrapping_add(AHEAD + 64 * line).cast());
                    }
                    let sides = match is_affine(FORM) {
                        true => (sides.0.as_ptr().add(c * CHUNK), sides.1.as_ptr().add(c * CHUNK)),
                        false => (sides.0.as_ptr(), sides.1.as_ptr()),
                    };
                    let (first, second, bias) = scales::<FORM>(row, sides);
                    let own = _mm256_loadu_ps(x.scales.as_ptr().add(c * CHUNK));
                    _mm256_storeu_ps(by[0].as_mut_ptr(), _mm256_mul_ps(first, own));
                    if FORM == Q6K {
                        _mm256_storeu_ps(by[1].as_mut_ptr(), _mm256_mul_ps(second, own));
                    }
                    if has_bias(FORM) {
                        biased = _mm256_fmadd_ps(bias, _mm256_loadu_ps(x.sums.as_ptr().add(c * CHUNK)), biased);
                    }
                    let (q, lanes) = (x.q.as_ptr().add(c * CHUNK * GROUP), x.lanes.as_ptr().add(c * CHUNK * 8));
                    let takes = $takes(FORM);
                    let mut one = |j: usize| {
                        let from = match takes {
                            true => _mm256_loadu_si256(lanes.add(8 * j).cast()),
                            false => _mm256_setzero_si256(),
                        };
                        let q = _mm256_loadu_si256(q.add(GROUP * j).cast());
                        let made = $fours(from, group::<FORM>(row, j), q);
                        let by = match FORM == Q6K {
                            true => _mm256_set_m128(_mm_broadcast_ss(&by[1][j]), _mm_broadcast_ss(&by[0][j])),
                            false => _mm256_broadcast_ss(&by[0][j]),
                        };
                        sums[j % 4] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(made), by, sums[j % 4]);
                    };
                    one(0);
                    one(1);
                    one(2);
                    one(3);
                    one(4);
                    one(5);
                    one(6);
                    one(7);
                }
            }
            let pairs = (_mm256_add_ps(sums[0], sums[1]), _mm256_add_ps(sums[2], sums[3]));
            total(_mm256_add_ps(_mm256_add_ps(pairs.0, pairs.1), biased))
        }
    };
}
const fn takes_vnni(form: u8) -> bool {
    matches!(form, Q4_0 | Q8_0 | Q6K)
}
const fn takes_avx2(form: u8) -> bool {
    matches!(form, Q4_0 | AFFINE8 | Q6K)
}
dot_chunks!(chunks_vnni, "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni", fours_vnni, takes_vnni);
dot_chunks!(chunks_avx2, "avx2,fma,f16c", fours_avx2::<FORM>, takes_avx2);

/// Do the slices have what the sizes say?
fn check(form: Form, row: &[u8], sides: (&[f32], &[f32]), x: Row<'_>) -> (usize, usize) {
    let groups = x.scales.len();
    let (elements, bytes) = form.block();
    assert!(row.len() * elements == groups * GROUP * bytes && x.q.len() == groups * GROUP);
    assert!(x.lanes.len() == groups * 8 && x.sums.len() == groups);
    assert!(sides.0.len() >= groups && sides.1.len() >= groups);
    (groups, groups / CHUNK)
}

fn rest(form: Form, row: &[u8], sides: (&[f32], &[f32]), x: Row<'_>, chunks: usize, shift: i32) -> f32 {
    (chunks * CHUNK..x.scales.len()).map(|g| plain::part(form, row, sides, x, g, shift)).sum()
}

/// The inner product of a row with rounded activations.
///
/// # Panics
/// Without AVX-512 VNNI, and for slices that do not fit.
pub fn dot_vnni(form: Form, row: &[u8], sides: (&[f32], &[f32]), x: Row<'_>) -> f32 {
    let (_, chunks) = check(form, row, sides, x);
    // SAFETY: `product_by` has asked for the instructions; `check` for the sizes.
    let most = unsafe { by_form!(form, chunks_vnni(row, sides, x, chunks)) };
    most + rest(form, row, sides, x, chunks, 0)
}

/// The same with AVX2.
///
/// # Panics
/// Without AVX2, and for slices that do not fit.
pub fn dot_avx2(form: Form, row: &[u8], sides: (&[f32], &[f32]), x: Row<'_>) -> f32 {
    let (_, chunks) = check(form, row, sides, x);
    // SAFETY: `product_by` has asked for the instructions; `check` for the sizes.
    let most = unsafe { by_form!(form, chunks_avx2(row, sides, x, chunks)) };
    most + rest(form, row, sides, x, chunks, if form.is_wide() { 128 } else { 0 })
}

/// Sixteen rows: four neighbours of each are side by side, `[group][4 of 32][row]`.
struct Panel {
    elements: Vec<u32>,
    /// Scales of both halves of the groups, `[group][half][row]`, and biases.
    scales: Vec<f32>,
    biases: Vec<f32>,
}

/// # Safety
/// The machine must have AVX2, FMA and F16C; the row and its sides must have the chunk.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn each_of_chunk<const FORM: u8>(
    row: &[u8],
    sides: (&[f32], &[f32]),
    chunk: usize,
    offset: u8,
    each: &mut impl FnMut(usize, [u32; 8], [f32; 2], f32),
) {
    // SAFETY: the contract.
    unsafe {
        let at = row.as_ptr().add(chunk * bytes_of(FORM));
        let sides = match is_affine(FORM) {
            true => (sides.0.as_ptr().add(chunk * CHUNK), sides.1.as_ptr().add(chunk * CHUNK)),
            false => (sides.0.as_ptr(), sides.1.as_ptr()),
        };
        let (first, second, bias) = scales::<FORM>(at, sides);
        let mut by = [[0f32; CHUNK]; 3];
        _mm256_storeu_ps(by[0].as_mut_ptr(), first);
        _mm256_storeu_ps(by[1].as_mut_ptr(), second);
        _mm256_storeu_ps(by[2].as_mut_ptr(), bias);
        for (j, ((&first, &second), &bias)) in by[0].iter().zip(&by[1]).zip(&by[2]).enumerate() {
            let mut words = [0u32; 8];
            let made = _mm256_sub_epi8(group::<FORM>(at, j), _mm256_set1_epi8(offset as i8));
            _mm256_storeu_si256(words.as_mut_ptr().cast(), made);
            each(chunk * CHUNK + j, words, [first, second], bias);
        }
    }
}

/// Calls `each` with the groups of a row from a multiple of eight on, eight of them or what is left: its number, its
/// elements less `offset`, four in a word, the scales of its halves and its bias.
///
/// # Panics
/// Without AVX2, and for slices that do not fit.
#[inline]
pub fn each_group(
    form: Form,
    row: &[u8],
    sides: (&[f32], &[f32]),
    from: usize,
    offset: u8,
    mut each: impl FnMut(usize, [u32; 8], [f32; 2], f32),
) {
    let (elements, bytes) = form.block();
    let groups = row.len() / bytes * elements / GROUP;
    assert!(from.is_multiple_of(CHUNK) && sides.0.len() >= groups && sides.1.len() >= groups && has_avx2());
    if from + CHUNK <= groups {
        // SAFETY: the assertion has asked for the instructions and the sizes.
        return unsafe { by_form!(form, each_of_chunk(row, sides, from / CHUNK, offset, &mut each)) };
    }
    for g in from..groups {
        let u = plain::group(form, row, g).map(|u| u.wrapping_sub(offset));
        let (scales, bias) = plain::scales(form, row, sides, g);
        let four = |k: usize| u32::from_le_bytes([u[4 * k], u[4 * k + 1], u[4 * k + 2], u[4 * k + 3]]);
        each(g, std::array::from_fn(four), scales, bias);
    }
}

/// Calls `each` with every group of rows `rows` of a matrix, all rows' groups from one place before those from the next,
/// and the row's number among them; see [`each_group`].
pub fn each_row(
    w: &Packed<'_>,
    rows: std::ops::Range<usize>,
    offset: u8,
    mut each: impl FnMut(usize, usize, [u32; 8], [f32; 2], f32),
) {
    let groups = w.columns / GROUP;
    let of_sides = if w.sides.is_some() { groups } else { 0 };
    let mut sides = (scratch(0f32, rows.len() * of_sides), scratch(0f32, rows.len() * of_sides));
    let empty = scratch(0f32, if w.sides.is_some() { 0 } else { groups });
    if let Some(fill) = w.sides {
        let both = sides.0.chunks_mut(groups).zip(sides.1.chunks_mut(groups));
        rows.clone().zip(both).for_each(|(row, (s, b))| fill(row, s, b));
    }
    for from in (0..groups).step_by(CHUNK) {
        for (r, row) in rows.clone().enumerate() {
            let sides = match w.sides {
                Some(_) => (&sides.0[r * groups..(r + 1) * groups], &sides.1[r * groups..(r + 1) * groups]),
                None => (&empty[..], &empty[..]),
            };
            let bytes = &w.bytes[row * w.stride()..(row + 1) * w.stride()];
            each_group(w.form, bytes, sides, from, offset, |g, u, scales, bias| each(r, g, u, scales, bias));
        }
    }
}

#[inline(always)]
fn put(panel: &mut Panel, r: usize, g: usize, words: [u32; 8], scales: [f32; 2], bias: f32) {
    let elements = &mut panel.elements[g * 8 * TALL..(g + 1) * 8 * TALL];
    words.into_iter().enumerate().for_each(|(k, word)| elements[k * TALL + r] = word);
    let both = &mut panel.scales[g * 2 * TALL..(g + 1) * 2 * TALL];
    (both[r], both[TALL + r]) = (scales[0], scales[1]);
    panel.biases[g * TALL + r] = bias;
}

/// Rows of activations, [`WIDE`] side by side.
pub struct Tiles {
    /// Four neighbours of each row, `[tile][group][4 of 32][row]`.
    elements: Vec<i32>,
    /// What the offset of 16 elements comes to, `[tile][group][half][row]`.
    lanes: Vec<i32>,
    /// Scales and scaled sums, `[tile][group][row]`.
    scales: Vec<f32>,
    sums: Vec<f32>,
    groups: usize,
    count: usize,
}

impl Tiles {
    pub fn of(x: &Activations, count: usize) -> Tiles {
        let (groups, tiles) = (x.columns / GROUP, count.div_ceil(WIDE));
        let n = tiles * groups * WIDE;
        let mut made = Tiles {
            elements: scratch(0, n * 8),
            lanes: scratch(0, n * 2),
            scales: scratch(0.0, n),
            sums: scratch(0.0, n),
            groups,
            count,
        };
        for m in 0..count {
            let (row, from) = (x.row(m), m / WIDE * groups * WIDE + m % WIDE);
            for (g, q) in row.q.chunks_exact(GROUP).enumerate() {
                let at = from + g * WIDE;
                (made.scales[at], made.sums[at]) = (row.scales[g], row.sums[g]);
                let lanes = &row.lanes[g * 8..(g + 1) * 8];
                let at = m / WIDE * groups * WIDE + g * WIDE;
                made.lanes[at * 2 + m % WIDE] = lanes[..4].iter().sum();
                made.lanes[at * 2 + WIDE + m % WIDE] = lanes[4..].iter().sum();
                for (k, q) in q.chunks_exact(4).enumerate() {
                    let word = i32::from_le_bytes([q[0] as u8, q[1] as u8, q[2] as u8, q[3] as u8]);
                    made.elements[(at * 8) + k * WIDE + m % WIDE] = word;
                }
            }
        }
        made
    }
}

/// The first `M` rows of a tile of activations with a panel: sums `[m][row]`.
///
/// # Safety
/// The machine must have AVX-512 VNNI; there must be such a tile, and the panel must have as many groups.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn tile<const M: usize, const HALVES: bool, const BIAS: bool, const TAKES: bool>(
    panel: &Panel,
    x: &Tiles,
    number: usize,
    out: &mut [[f32; TALL]; WIDE],
) {
    let mut sums = [_mm512_setzero_ps(); M];
    // SAFETY: the contract.
    unsafe {
        let first = number * x.groups * WIDE;
        let (mut q, mut lanes) = (x.elements.as_ptr().add(first * 8), x.lanes.as_ptr().add(first * 2));
        let (mut own, mut totals) = (x.scales.as_ptr().add(first), x.sums.as_ptr().add(first));
        let (mut w, mut scales) = (panel.elements.as_ptr(), panel.scales.as_ptr());
        let mut biases = panel.biases.as_ptr();
        for _ in 0..x.groups {
            for h in 0..if HALVES { 2 } else { 1 } {
                let mut made = [_mm512_setzero_si512(); M];
                if TAKES {
                    for (m, made) in made.iter_mut().enumerate() {
                        let mut taken = *lanes.add(h * WIDE + m);
                        if !HALVES {
                            taken += *lanes.add(WIDE + m);
                        }
                        *made = _mm512_set1_epi32(taken);
                    }
                }
                let count = if HALVES { 4 } else { 8 };
                for k in 4 * h..4 * h + count {
                    let w = _mm512_loadu_si512(w.add(k * TALL).cast());
                    for (m, made) in made.iter_mut().enumerate() {
                        *made = _mm512_dpbusd_epi32(*made, w, _mm512_set1_epi32(*q.add(k * WIDE + m)));
                    }
                }
                let scale = _mm512_loadu_ps(scales.add(h * TALL));
                for (m, (sum, made)) in sums.iter_mut().zip(made).enumerate() {
                    let by = _mm512_mul_ps(scale, _mm512_set1_ps(*own.add(m)));
                    *sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(made), by, *sum);
                }
            }
            if BIAS {
                let bias = _mm512_loadu_ps(biases);
                for (m, sum) in sums.iter_mut().enumerate() {
                    *sum = _mm512_fmadd_ps(bias, _mm512_set1_ps(*totals.add(m)), *sum);
                }
            }
            (q, lanes, own, totals) = (q.add(8 * WIDE), lanes.add(2 * WIDE), own.add(WIDE), totals.add(WIDE));
            (w, scales, biases) = (w.add(8 * TALL), scales.add(2 * TALL), biases.add(TALL));
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        // SAFETY: it has room for sixteen.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), sum) };
    }
}

/// # Safety
/// As for [`tile`].
unsafe fn tile_of<const M: usize>(form: Form, panel: &Panel, x: &Tiles, number: usize, out: &mut [[f32; TALL]; WIDE]) {
    // SAFETY: the contract.
    unsafe {
        match form {
            Form::Q4_0 | Form::Q8_0 => tile::<M, false, false, true>(panel, x, number, out),
            Form::Q6K => tile::<M, true, false, true>(panel, x, number, out),
            Form::Q4K | Form::Q5K | Form::Affine4 | Form::Affine8 => {
                tile::<M, false, true, false>(panel, x, number, out)
            }
        }
    }
}

/// All rows of activations with rows `from` of the matrix on: `made` has pieces of as many rows as are unpacked at a time, each
/// `[m][row]`.
///
/// # Panics
/// Without AVX-512 VNNI, and for slices that do not fit.
pub fn many(x: &Tiles, w: &Packed<'_>, from: usize, made: &mut [f32]) {
    let (groups, count) = (x.groups, x.count);
    assert!(has_vnni() && groups * GROUP == w.columns && made.len().is_multiple_of(count));
    let mut panel = Panel {
        elements: scratch(0, groups * 8 * TALL),
        scales: scratch(0.0, groups * 2 * TALL),
        biases: scratch(0.0, groups * TALL),
    };
    for (p, made) in made.chunks_mut(TALL * count).enumerate() {
        let rows = made.len() / count;
        let first = from + p * TALL;
        each_row(w, first..first + rows, 0, |r, g, u, scales, bias| put(&mut panel, r, g, u, scales, bias));
        for number in 0..count.div_ceil(WIDE) {
            let here = (count - number * WIDE).min(WIDE);
            let mut out = [[0f32; TALL]; WIDE];
            // SAFETY: the assertion has asked for the instructions and for as many groups.
            unsafe {
                match here > WIDE / 2 {
                    true => tile_of::<WIDE>(w.form, &panel, x, number, &mut out),
                    false => tile_of::<{ WIDE / 2 }>(w.form, &panel, x, number, &mut out),
                }
            }
            for (made, sums) in made[number * WIDE * rows..].chunks_exact_mut(rows).zip(&out[..here]) {
                made.copy_from_slice(&sums[..rows]);
            }
        }
    }
}

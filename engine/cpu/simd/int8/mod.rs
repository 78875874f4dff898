//! Products of packed matrices with activations that are rounded to 8 bits, in integers: 32 neighbours of a row of
//! activations share a scale, each packed format has its own groups.
//!
//! `x86` has the kernels for AVX2 and AVX-512 VNNI, `amx` those for AMX, chosen at run time; the loops here are the reference, and what other
//! machines run (LLVM makes NEON's dot products of them). Invariant: every way sums the same integers; only the order in which
//! groups are added differs.

#[cfg(target_arch = "x86_64")]
mod amx;
mod plain;
#[cfg(target_arch = "x86_64")]
mod x86;

use super::threads;
use crate::fallible::scratch;
use half::f16;

/// Neighbours of a row of activations that share a scale.
pub const GROUP: usize = 32;
/// A float whose unit in the last place is 1.
const MAGIC: f32 = 12_582_912.0;
/// Rows of `x` from which rows of the matrix are unpacked for all of them.
#[cfg(target_arch = "x86_64")]
const MANY: usize = 4;

/// How the elements of a matrix are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// ggml's 4 bits, a scale for 32.
    Q4_0,
    /// ggml's 8 bits, a scale for 32.
    Q8_0,
    /// ggml's 4 bits, 6-bit scales and minimums for 32 of 256.
    Q4K,
    /// ggml's 5 bits, 6-bit scales and minimums for 32 of 256.
    Q5K,
    /// ggml's 6 bits, 8-bit scales for 16 of 256.
    Q6K,
    /// 4 bits, two neighbours in a byte, scales and biases beside them.
    Affine4,
    /// 8 bits, scales and biases beside them.
    Affine8,
}

impl Form {
    /// Elements and bytes of a block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Form::Q4_0 => (32, 18),
            Form::Q8_0 => (32, 34),
            Form::Q4K => (256, 144),
            Form::Q5K => (256, 176),
            Form::Q6K => (256, 210),
            Form::Affine4 => (32, 16),
            Form::Affine8 => (32, 32),
        }
    }

    /// What is taken from packed elements, which are counted from 0 on.
    const fn offset(self) -> i32 {
        match self {
            Form::Q4_0 => 8,
            Form::Q8_0 => 128,
            Form::Q6K => 32,
            Form::Q4K | Form::Q5K | Form::Affine4 | Form::Affine8 => 0,
        }
    }

    /// Do elements have 8 bits?
    #[cfg(target_arch = "x86_64")]
    const fn is_wide(self) -> bool {
        matches!(self, Form::Q8_0 | Form::Affine8)
    }
}

/// The scales and biases of a row's groups of 32, where they lie beside its elements.
pub type Sides<'a> = &'a (dyn Fn(usize, &mut [f32], &mut [f32]) + Sync);

/// A packed matrix.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    /// How.
    pub form: Form,
    /// Its rows, one behind the other.
    pub bytes: &'a [u8],
    /// How many.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Fills in the scales and biases of a row; of affine forms alone.
    pub sides: Option<Sides<'a>>,
}

impl Packed<'_> {
    fn stride(&self) -> usize {
        let (elements, bytes) = self.form.block();
        self.columns / elements * bytes
    }
}

/// Rounded rows.
struct Activations {
    /// Elements, in the order in which the form's kernels meet them.
    q: Vec<i8>,
    /// For each 4 of them, what their offset comes to.
    lanes: Vec<i32>,
    /// The scale of each group.
    scales: Vec<f32>,
    /// The sum of each group, scaled.
    sums: Vec<f32>,
    columns: usize,
}

/// One of the rows.
#[derive(Clone, Copy)]
struct Row<'a> {
    q: &'a [i8],
    lanes: &'a [i32],
    scales: &'a [f32],
    sums: &'a [f32],
}

/// The place in a group of the element that kernels meet at `i`: of 4 bits in pairs all lower ones come first.
const fn place(form: Form, i: usize) -> usize {
    match form {
        Form::Affine4 => i % 16 * 2 + i / 16,
        _ => i,
    }
}

impl Activations {
    fn of(x: &[f32], columns: usize, form: Form, offset: i32) -> Activations {
        let groups = x.len() / GROUP;
        let mut made = Activations {
            q: scratch(0, x.len()),
            lanes: scratch(0, x.len() / 4),
            scales: scratch(0.0, groups),
            sums: scratch(0.0, groups),
            columns,
        };
        for (g, x) in x.chunks_exact(GROUP).enumerate() {
            let most = x.iter().fold(0f32, |m, &v| if v.abs() > m { v.abs() } else { m });
            // What is not finite makes no number of its row.
            let sound = x.iter().all(|v| v.is_finite());
            let scale = if sound { most / 127.0 } else { f32::NAN };
            let by = if sound && most > 0.0 { 127.0 / most } else { 0.0 };
            let q = &mut made.q[g * GROUP..(g + 1) * GROUP];
            let mut sum = 0;
            for (i, q) in q.iter_mut().enumerate() {
                // Rounds to the nearest, halves to even ones: the sum has the integer in its lowest bits.
                let whole = (x[place(form, i)] * by + MAGIC).to_bits() as i32 - MAGIC.to_bits() as i32;
                *q = whole as i8;
                sum += i32::from(*q);
            }
            for (lane, q) in made.lanes[g * 8..(g + 1) * 8].iter_mut().zip(q.chunks_exact(4)) {
                *lane = -offset * q.iter().map(|&q| i32::from(q)).sum::<i32>();
            }
            made.scales[g] = scale;
            made.sums[g] = scale * sum as f32;
        }
        made
    }

    fn row(&self, i: usize) -> Row<'_> {
        let (n, groups) = (self.columns, self.columns / GROUP);
        Row {
            q: &self.q[i * n..(i + 1) * n],
            lanes: &self.lanes[i * n / 4..(i + 1) * n / 4],
            scales: &self.scales[i * groups..(i + 1) * groups],
            sums: &self.sums[i * groups..(i + 1) * groups],
        }
    }
}

/// The ways to multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Vnni,
    /// AMX for many rows, VNNI for few.
    #[cfg(target_arch = "x86_64")]
    Amx,
}

impl Way {
    /// Those that this machine has, the best first.
    fn all() -> Vec<Way> {
        let mut made = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if amx::has_amx() {
                made.push(Way::Amx);
            }
            if x86::has_vnni() {
                made.push(Way::Vnni);
            }
            if x86::has_avx2() {
                made.push(Way::Avx2);
            }
        }
        made.push(Way::Plain);
        made
    }

    /// The offset that its kernels take from elements of a form.
    fn offset(self, form: Form) -> i32 {
        match self {
            // Bytes are counted from -128 on there.
            #[cfg(target_arch = "x86_64")]
            Way::Avx2 if form.is_wide() => form.offset() - 128,
            _ => form.offset(),
        }
    }
}

/// `y = x Wᵀ`, where `x` (M, K) is rounded to 8 bits in groups of 32; `y` is (M, N).
///
/// # Panics
/// Where the slices do not hold what the sizes say, or rows are not whole blocks.
pub fn product(x: &[f32], w: &Packed<'_>, y: &mut [f32]) {
    product_by(Way::all()[0], x, w, y);
}

fn product_by(way: Way, x: &[f32], w: &Packed<'_>, y: &mut [f32]) {
    let Packed { form, rows, columns, .. } = *w;
    if y.is_empty() {
        return;
    }
    let count = y.len() / rows;
    let affine = matches!(form, Form::Affine4 | Form::Affine8);
    assert!(columns.is_multiple_of(form.block().0) && w.bytes.len() == rows * w.stride());
    assert!(x.len() == count * columns && y.len() == count * rows && w.sides.is_some() == affine);
    if columns == 0 {
        return y.fill(0.0);
    }
    let x = Activations::of(x, columns, form, way.offset(form));
    // Columns of `y` together, so that threads write to places of their own.
    let mut made = scratch(0f32, y.len());
    #[cfg(target_arch = "x86_64")]
    if way == Way::Amx && count >= MANY {
        let grain = (threads::GRAIN / (columns * count)).max(1) * amx::PANEL * count;
        let x = amx::Tiles::of(&x, count, form);
        threads::for_chunks(&mut made, amx::PANEL * count, grain, |from, made| amx::many(&x, w, from / count, made));
        return gather(&made, amx::PANEL, count, rows, y);
    }
    #[cfg(target_arch = "x86_64")]
    if way == Way::Vnni && count >= MANY {
        let grain = (threads::GRAIN / (columns * count)).max(1) * x86::TALL * count;
        let x = x86::Tiles::of(&x, count);
        threads::for_chunks(&mut made, x86::TALL * count, grain, |from, made| x86::many(&x, w, from / count, made));
        return gather(&made, x86::TALL, count, rows, y);
    }
    let grain = (threads::GRAIN / columns).max(1) * count;
    threads::for_chunks(&mut made, count, grain, |from, made| {
        let groups = columns / GROUP;
        let mut sides = (scratch(0f32, groups), scratch(0f32, groups));
        for (i, made) in made.chunks_exact_mut(count).enumerate() {
            let row = from / count + i;
            if let Some(fill) = w.sides {
                fill(row, &mut sides.0, &mut sides.1);
            }
            let bytes = &w.bytes[row * w.stride()..(row + 1) * w.stride()];
            for (m, made) in made.iter_mut().enumerate() {
                let x = x.row(m);
                *made = match way {
                    Way::Plain => plain::dot(form, bytes, (&sides.0, &sides.1), x),
                    #[cfg(target_arch = "x86_64")]
                    Way::Avx2 => x86::dot_avx2(form, bytes, (&sides.0, &sides.1), x),
                    #[cfg(target_arch = "x86_64")]
                    Way::Vnni | Way::Amx => x86::dot_vnni(form, bytes, (&sides.0, &sides.1), x),
                };
            }
        }
    });
    gather(&made, 1, count, rows, y);
}

/// `y` (M, N) of what pieces of `tall` of the N columns have made, each `[m][column]`.
fn gather(made: &[f32], tall: usize, count: usize, rows: usize, y: &mut [f32]) {
    if count == 1 {
        return y.copy_from_slice(made);
    }
    for (p, made) in made.chunks(tall * count).enumerate() {
        let here = made.len() / count;
        for (m, made) in made.chunks_exact(here).enumerate() {
            y[m * rows + p * tall..][..here].copy_from_slice(made);
        }
    }
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32()
}

#[cfg(test)]
mod tests;

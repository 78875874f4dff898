use super::kernels::Plain;
use super::*;

/// Products of every transposition, cut in every direction and with factors, against sums in double precision.
fn check<K: Kernel>() {
    let entry = |i: usize, seed: usize| bf16::from_f32(((i * 7919 + seed * 31) % 257) as f32 / 128.0 - 1.0);
    for (m, n, k) in [(1, 1, 1), (16, 16, 32), (17, 33, 31), (32, 64, 96), (40, 50, 290), (97, 65, 70), (5, 300, 33)] {
        for (ta, tb, pad, alpha, beta) in [
            (false, false, 0, 1.0, 0.0),
            (true, false, 2, -0.5, 1.0),
            (false, true, 1, 2.0, 0.5),
            (true, true, 3, 1.0, 1.0),
        ] {
            let (lda, ldb, ldc) = (if ta { m } else { k } + pad, if tb { k } else { n } + pad, n + pad);
            let a: Vec<bf16> = (0..m.max(k) * lda).map(|i| entry(i, 1)).collect();
            let b: Vec<bf16> = (0..n.max(k) * ldb).map(|i| entry(i, 2)).collect();
            // What is not read may be anything.
            let before = |i: usize| if beta == 0.0 { bf16::NAN } else { entry(i, 3) };
            let at = |x: &[bf16], ld: usize, t: bool, i: usize, j: usize| {
                f64::from(x[if t { j * ld + i } else { i * ld + j }])
            };
            for cut in [1, 2, CUT] {
                let mut c: Vec<bf16> = (0..(m - 1) * ldc + n).map(before).collect();
                let (a_of, b_of) = (Matrix { data: &a, ld: lda, trans: ta }, Matrix { data: &b, ld: ldb, trans: tb });
                let factors = [alpha, beta].map(bf16::from_f32);
                let product = Product { m, n, k, alpha: factors[0], a: a_of, b: b_of, beta: factors[1], ldc };
                assert!(by::<K>(&product, cut, &mut c));
                for (i, &got) in c.iter().enumerate() {
                    let (i, j) = (i / ldc, i % ldc);
                    if j >= n {
                        assert_eq!(got.to_bits(), before(i * ldc + j).to_bits());
                        continue;
                    }
                    let sum: f64 = (0..k).map(|l| at(&a, lda, ta, i, l) * at(&b, ldb, tb, l, j)).sum();
                    let old = if beta == 0.0 { 0.0 } else { f64::from(before(i * ldc + j)) };
                    let want = f64::from(alpha) * sum + f64::from(beta) * old;
                    let near = (f64::from(got) - want).abs() <= want.abs() / 256.0 + 1e-6 * k as f64;
                    assert!(near, "{m} {n} {k} ({ta}, {tb}) at {i}, {j}: {got}, not {want}");
                }
            }
        }
    }
    // What is not finite stays in its own row: neighbours and what fills up tiles are not touched.
    let (m, n, k) = (37, 70, 61);
    let mut a = vec![bf16::ONE; m * k];
    let b = vec![bf16::ONE; k * n];
    (a[3 * k + 60], a[9 * k], a[20 * k]) = (bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY);
    let mut c = vec![bf16::NAN; m * n];
    let of = |data, ld| Matrix { data, ld, trans: false };
    assert!(by::<K>(&Product::of([m, n, k], of(&a, k), of(&b, n)), CUT, &mut c));
    for (i, row) in c.chunks(n).enumerate() {
        let fits = |x: &bf16| match i {
            3 => x.is_nan(),
            9 => *x == bf16::INFINITY,
            20 => *x == bf16::NEG_INFINITY,
            _ => x.to_f32() == k as f32,
        };
        assert!(row.iter().all(fits), "row {i}: {row:?}");
    }
}

/// Calls a function for every kernel that the machine has.
macro_rules! by_each_kernel {
    ($check:ident) => {
        $check::<Plain>();
        if Avx512::exists() {
            $check::<Avx512>();
        }
        if Amx::exists() {
            $check::<Amx>();
        }
    };
}

#[test]
fn products_by_every_kernel_that_the_machine_has() {
    for threads in [1, 3] {
        threads::set_num_threads(threads);
        by_each_kernel!(check);
    }
}

#[test]
fn sums_are_rounded_once() {
    // 256 + 256 x 1 is 512 and not 256, which sums rounded to 8 bits at each step would stay at.
    fn check<K: Kernel>() {
        let mut a = vec![bf16::ONE; 257];
        a[0] = bf16::from_f32(256.0);
        let b = vec![bf16::ONE; 257];
        let mut c = [bf16::ZERO];
        let (a, b) = (Matrix { data: &a, ld: 257, trans: false }, Matrix { data: &b, ld: 1, trans: false });
        assert!(by::<K>(&Product::of([1, 1, 257], a, b), CUT, &mut c));
        assert_eq!(c[0].to_f32(), 512.0);
    }
    by_each_kernel!(check);
}

#[test]
fn tiles_are_turned_alike() {
    let mut tile = Tile([[0; SIDE]; SIDE]);
    tile.0.iter_mut().flatten().enumerate().for_each(|(i, word)| *word = i as u32);
    let mut transposed = tile;
    Plain::transpose(&mut transposed);
    assert_eq!(transposed.0[3][5], tile.0[5][3]);
    // All that turning by registers needs.
    if is_x86_feature_detected!("avx512f") {
        let mut other = tile;
        Avx512::transpose(&mut other);
        assert_eq!(transposed.0, other.0);
    }
}

#[test]
fn the_best_way_is_one_that_exists() {
    let (avx512, amx) = (Avx512::exists(), Amx::exists());
    assert_eq!(way(), if amx { Some(Way::Amx) } else { avx512.then_some(Way::Avx512) });
    // The leave that the system gave once stays.
    assert_eq!(amx, Amx::exists());
}

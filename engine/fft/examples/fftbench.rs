#![allow(clippy::all, clippy::disallowed_methods)]
use lucid_fft::*;
use num_complex::Complex;
use std::time::Instant;
fn serial(tasks: usize, f: &(dyn Fn(usize) + Sync)) {
    (0..tasks).for_each(f);
}
fn time(mut f: impl FnMut()) -> f64 {
    f();
    let mut ts = vec![];
    let begin = Instant::now();
    while ts.len() < 5 || begin.elapsed().as_millis() < 150 {
        let t = Instant::now();
        f();
        ts.push(t.elapsed().as_secs_f64() * 1e6);
    }
    ts.sort_by(|a, b| a.partial_cmp(b).unwrap());
    ts[ts.len() / 2]
}
fn main() {
    for n in [256usize, 1024, 4096, 16384, 65536, 262144, 1 << 20, 1000, 10007] {
        let b = (1usize << 16).div_ceil(n).min(64).max(1);
        let x: Vec<Complex<f32>> = (0..n * b).map(|i| Complex::new((i as f32).sin(), 0.3)).collect();
        let r: Vec<f32> = x.iter().map(|x| x.re).collect();
        let mut o = x.clone();
        let (sh, st) = ([b, n], [n, 1]);
        let s = Source { data: &x[..], offset: 0, shape: &sh, strides: &st };
        let t = time(|| complex_to_complex(s, &mut o, 1, false, 1.0, &serial).unwrap());
        let rs = Source { data: &r[..], offset: 0, shape: &sh, strides: &st };
        let mut h = x[..b * (n / 2 + 1)].to_vec();
        let t2 = time(|| real_to_complex(rs, &mut h, 1, true, 1.0, &serial).unwrap());
        let hs = [b, n / 2 + 1];
        let hst = [n / 2 + 1, 1];
        let mut y = r.clone();
        let t3 = time(|| {
            complex_to_real(Source { data: &h[..], offset: 0, shape: &hs, strides: &hst }, &mut y, n, 1.0, &serial)
                .unwrap()
        });
        // raw rustfft variants
        let mut p = rustfft::FftPlanner::<f32>::new();
        let f = p.plan_fft_forward(n);
        let mut sc =
            vec![
                Complex::new(0f32, 0f32);
                f.get_inplace_scratch_len().max(f.get_outofplace_scratch_len()).max(f.get_immutable_scratch_len())
            ];
        let imm = time(|| f.process_immutable_with_scratch(&x, &mut o, &mut sc));
        let inp = time(|| {
            o.copy_from_slice(&x);
            f.process_with_scratch(&mut o, &mut sc)
        });
        let mut a = x.clone();
        let oop = time(|| {
            for (i, (x, o)) in x.chunks(n).zip(o.chunks_mut(n)).enumerate() {
                let _ = i;
                a[..n].copy_from_slice(x);
                f.process_outofplace_with_scratch(&mut a[..n], o, &mut sc);
            }
        });
        println!("{n:8} x{b:4}  c2c {t:9.1}  r2c {t2:9.1} c2r {t3:9.1}  | imm {imm:9.1} inplace+copy {inp:9.1} copy+oop {oop:9.1}");
    }
    for n in [256usize, 512, 1024, 2048] {
        let x: Vec<Complex<f32>> = (0..n * n).map(|i| Complex::new((i as f32).sin(), 0.3)).collect();
        let r: Vec<f32> = x.iter().map(|x| x.re).collect();
        let mut o = x.clone();
        let (sh, st) = ([n, n], [n, 1]);
        let t = time(|| {
            complex_to_complex(
                Source { data: &x[..], offset: 0, shape: &sh, strides: &st },
                &mut o,
                2,
                false,
                1.0,
                &serial,
            )
            .unwrap()
        });
        let t1 = time(|| {
            complex_to_complex(
                Source { data: &x[..], offset: 0, shape: &sh, strides: &st },
                &mut o,
                1,
                false,
                1.0,
                &serial,
            )
            .unwrap()
        });
        let mut h = x[..n * (n / 2 + 1)].to_vec();
        let t2 = time(|| {
            real_to_complex(Source { data: &r[..], offset: 0, shape: &sh, strides: &st }, &mut h, 2, true, 1.0, &serial)
                .unwrap()
        });
        println!("{n}^2 c2c {t:9.1} (rows {t1:9.1}) r2c {t2:9.1}");
    }
}

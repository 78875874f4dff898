//! Values, shapes and errors, one family after the other.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use mlx_ffi::{compile::Closure, fast, fft, graph, linalg, ops, random, transforms, Array, Dtype, Error};
use num_complex::Complex32;

type Outcome = Result<(), Error>;

fn floats(values: &[f32], shape: &[i32]) -> Array {
    Array::from_slice(values, shape).unwrap()
}

#[test]
fn version_and_device() -> Outcome {
    assert!(mlx_ffi::version()?.starts_with(mlx_ffi::MLX_VERSION));
    let kind = mlx_ffi::device::kind()?;
    assert!(mlx_ffi::device::is_available(kind)?);
    assert!(mlx_ffi::device::count()? >= 1);
    mlx_ffi::device::info()?;
    Ok(())
}

#[test]
fn arrays_come_back_as_they_went_in() -> Outcome {
    fn round<T: mlx_ffi::Element + PartialEq + std::fmt::Debug>(values: &[T]) -> Outcome {
        let a = Array::from_slice(values, &[2, values.len() as i32 / 2])?;
        assert_eq!(a.dtype(), T::DTYPE);
        assert_eq!(a.to_vec::<T>()?, values);
        assert_eq!(a.nbytes(), std::mem::size_of_val(values));
        assert_eq!(Array::scalar(values[1])?.item::<T>()?, values[1]);
        Ok(())
    }
    round(&[true, false, false, true])?;
    round(&[1u8, 2, 3, 255])?;
    round(&[1u16, 2, 3, 65535])?;
    round(&[1u32, 2, 3, u32::MAX])?;
    round(&[1u64, 2, 3, u64::MAX])?;
    round(&[-1i8, 2, 3, 127])?;
    round(&[-1i16, 2, 3, i16::MIN])?;
    round(&[-1i32, 2, 3, i32::MIN])?;
    round(&[-1i64, 2, 3, i64::MIN])?;
    round(&[half::f16::from_f32(1.5), half::f16::MAX])?;
    round(&[half::bf16::from_f32(1.5), half::bf16::MAX])?;
    round(&[1.5f32, f32::INFINITY])?;
    round(&[1.5f64, f64::NEG_INFINITY])?;
    round(&[Complex32::new(1.0, -2.0), Complex32::new(0.0, 3.0)])?;
    Ok(())
}

#[test]
fn shapes_are_read_without_evaluating() -> Outcome {
    let a = floats(&[0.0; 6], &[2, 3]);
    let b = ops::transpose(&ops::add(&a, &Array::scalar(1f32)?)?)?;
    assert_eq!((b.shape(), b.ndim(), b.size(), b.nbytes(), b.dtype()), (&[3, 2][..], 2, 6, 24, Dtype::Float32));
    assert!(a.is_evaluated() && !b.is_evaluated());
    assert_eq!(format!("{b:?}"), "Array([3, 2], float32)");
    b.eval()?;
    assert!(b.is_evaluated());
    assert_eq!(Array::scalar(1i32)?.shape(), &[] as &[i32]);
    assert_eq!(a.id(), a.clone().id());
    assert_ne!(a.id(), b.id());
    Ok(())
}

#[test]
fn values_are_copied_to_bytes_of_the_host() -> Outcome {
    let a = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let copied = |a: &Array| -> Result<Vec<f32>, Error> {
        let mut bytes = vec![0; a.nbytes()];
        a.copy_to(&mut bytes)?;
        Ok(bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect())
    };
    assert_eq!(copied(&a)?, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(copied(&ops::add(&a, &a)?)?, [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
    assert_eq!(copied(&ops::transpose(&a)?)?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(copied(&ops::slice(&a, &[1, 1], &[2, 3], &[1, 1])?)?, [5.0, 6.0]);
    assert_eq!(copied(&ops::broadcast_to(&Array::scalar(7f32)?, &[2, 2])?)?, [7.0; 4]);
    assert_eq!(copied(&Array::from_slice::<f32>(&[], &[0, 3])?)?, [] as [f32; 0]);
    assert!(matches!(a.copy_to(&mut [0; 20]), Err(Error::Mismatch(_))));
    Ok(())
}

#[test]
fn reading_orders_the_values() -> Outcome {
    let a = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    assert_eq!(ops::transpose(&a)?.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    assert_eq!(ops::slice(&a, &[0, 2], &[2, 0], &[1, -1])?.to_vec::<f32>()?, [3.0, 2.0, 6.0, 5.0]);
    assert_eq!(ops::slice(&a, &[1, 1], &[2, 3], &[1, 1])?.to_vec::<f32>()?, [5.0, 6.0]);
    assert_eq!(ops::broadcast_to(&Array::scalar(7f32)?, &[2, 2])?.to_vec::<f32>()?, [7.0; 4]);
    let v = floats(&[1.0, 2.0], &[1, 2]);
    assert_eq!(ops::broadcast_to(&v, &[2, 2])?.to_vec::<f32>()?, [1.0, 2.0, 1.0, 2.0]);
    let empty = Array::from_slice::<f32>(&[], &[0, 3])?;
    assert_eq!(empty.to_vec::<f32>()?, [] as [f32; 0]);
    assert_eq!(ops::sum(&empty, false)?.item::<f32>()?, 0.0);
    Ok(())
}

#[test]
fn operations_compute() -> Outcome {
    let a = floats(&[1.0, 4.0, 9.0, 16.0], &[2, 2]);
    assert_eq!(ops::sqrt(&a)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(ops::sum_axes(&a, &[0], true)?.to_vec::<f32>()?, [10.0, 20.0]);
    assert_eq!(ops::argmax_axis(&a, 1, false)?.to_vec::<u32>()?, [1, 1]);
    assert_eq!(ops::cumsum_axis(&a, 1, false, true, None)?.to_vec::<f32>()?, [1.0, 5.0, 9.0, 25.0]);
    assert_eq!(ops::matmul(&a, &a)?.to_vec::<f32>()?, [37.0, 68.0, 153.0, 292.0]);
    assert_eq!(
        ops::where_(&ops::greater(&a, &Array::scalar(5f32)?)?, &a, &Array::scalar(0f32)?)?.to_vec::<f32>()?,
        [0.0, 0.0, 9.0, 16.0]
    );
    assert_eq!(ops::concatenate_axis(&[&a, &a], 1)?.shape(), &[2, 4]);
    let halves = ops::split(&a, 2, 0)?;
    assert_eq!(halves[1].to_vec::<f32>()?, [9.0, 16.0]);
    assert_eq!(ops::clip(&a, None, Some(&Array::scalar(4f32)?))?.to_vec::<f32>()?, [1.0, 4.0, 4.0, 4.0]);
    assert_eq!(ops::einsum("ij,ij->i", &[&a, &a])?.to_vec::<f32>()?, [17.0, 337.0]);
    assert_eq!(ops::pad(&a, &[1], &[1], &[0], &Array::scalar(5f32)?, "constant")?.shape(), &[2, 3]);
    let image = ops::ones(&[1, 5, 5, 2], Dtype::Float32)?;
    let weight = ops::ones(&[3, 3, 3, 2], Dtype::Float32)?;
    let out = ops::conv2d(&image, &weight, 1, 1, 0, 0, 1, 1, 1)?;
    assert_eq!((out.shape(), out.to_vec::<f32>()?[0]), (&[1, 3, 3, 3][..], 18.0));
    // SAFETY: rows that are there.
    let taken = unsafe { ops::take_axis(&a, &Array::from_slice(&[1i32, 0], &[2])?, 0) }?;
    assert_eq!(taken.to_vec::<f32>()?, [9.0, 16.0, 1.0, 4.0]);
    let at = Array::from_slice(&[0i32, 0], &[2, 1])?;
    assert_eq!(
        // SAFETY: columns that are there.
        unsafe { ops::scatter_add_axis(&a, &at, &floats(&[1.0, 1.0], &[2, 1]), 1) }?.to_vec::<f32>()?,
        [2.0, 4.0, 10.0, 16.0]
    );
    let updated = ops::slice_update(&a, &floats(&[0.0, 0.0], &[2, 1]), &[0, 0], &[2, 1], &[1, 1])?;
    assert_eq!(updated.to_vec::<f32>()?, [0.0, 4.0, 0.0, 16.0]);
    assert_eq!(ops::as_strided(&a, &[3, 2], &[1, 1], 0)?.to_vec::<f32>()?, [1.0, 4.0, 4.0, 9.0, 9.0, 16.0]);
    assert_eq!(ops::view(&Array::scalar(1f32)?, Dtype::Uint32)?.item::<u32>()?, 0x3f80_0000);
    let quantised = ops::quantize(&ops::ones(&[4, 64], Dtype::Float32)?, Some(64), Some(8), "affine", None)?;
    assert_eq!(quantised.len(), 3);
    Ok(())
}

#[test]
fn families_compute() -> Outcome {
    let a = floats(&[4.0, 1.0, 1.0, 3.0], &[2, 2]);
    let product = ops::matmul(&linalg::inv(&a)?, &a)?;
    assert!(ops::allclose(&product, &ops::identity(2, Dtype::Float32)?, 1e-5, 1e-5, false)?.item::<bool>()?);
    let (q, r) = linalg::qr(&a)?;
    assert!(ops::allclose(&ops::matmul(&q, &r)?, &a, 1e-5, 1e-5, false)?.item::<bool>()?);
    assert_eq!(linalg::svd(&a, true)?.len(), 3);
    assert!((linalg::norm_l2(&a, None, false)?.item::<f32>()? - 27f32.sqrt()).abs() < 1e-5);
    let spectrum = fft::fft(&floats(&[1.0, 0.0, 0.0, 0.0], &[4]), 4, 0, fft::Norm::Backward)?;
    assert_eq!(spectrum.to_vec::<Complex32>()?, [Complex32::new(1.0, 0.0); 4]);
    let key = random::key(7)?;
    let first = random::normal(&[3], Dtype::Float32, 0.0, 1.0, &key)?.to_vec::<f32>()?;
    assert_eq!(first, random::normal(&[3], Dtype::Float32, 0.0, 1.0, &key)?.to_vec::<f32>()?);
    let (one, two) = random::split(&key)?;
    assert_ne!(one.to_vec::<u32>()?, two.to_vec::<u32>()?);
    let x = floats(&[1.0, 2.0, 3.0, 4.0], &[1, 4]);
    let normed = fast::layer_norm(&x, None, None, 1e-5)?.to_vec::<f32>()?;
    assert!((normed[0] + 1.341_63).abs() < 1e-3);
    let q = ops::ones(&[1, 1, 2, 4], Dtype::Float32)?;
    let attended = fast::scaled_dot_product_attention(&q, &q, &q, 0.5, "causal", None, None, false)?;
    assert_eq!(attended.to_vec::<f32>()?, [1.0; 8]);
    Ok(())
}

#[test]
fn refusals_are_errors() -> Outcome {
    let (a, b) = (floats(&[0.0; 6], &[2, 3]), floats(&[0.0; 4], &[4]));
    assert!(matches!(ops::add(&a, &b), Err(Error::Mlx(m)) if m.contains("[broadcast_shapes]")));
    assert!(matches!(ops::matmul(&a, &a), Err(Error::Mlx(m)) if m.contains("matmul")));
    assert!(ops::reshape(&a, &[7]).is_err());
    assert!(ops::sum_axis(&a, 5, false).is_err());
    assert!(ops::concatenate(&[]).is_err());
    assert!(ops::slice(&a, &[0], &[1, 1], &[1]).is_err());
    assert!(ops::einsum("i\0j", &[&a]).is_err());
    assert!(Array::from_slice(&[1f32], &[2]).is_err());
    assert!(Array::from_slice(&[1f32], &[-1]).is_err());
    assert!(Array::from_bytes(&[], &[i32::MAX, i32::MAX, i32::MAX, i32::MAX], Dtype::Float32).is_err());
    assert!(a.item::<f32>().is_err());
    assert!(b.to_vec::<i32>().is_err());
    assert!(ops::as_strided(&b, &[5], &[1], 0).is_err());
    assert!(ops::as_strided(&b, &[2], &[-1], 0).is_err());
    assert!(ops::as_strided(&b, &[2], &[i64::MAX], 1).is_err());
    // A refused call leaves nothing behind.
    assert_eq!(ops::add(&b, &b)?.to_vec::<f32>()?, [0.0; 4]);
    Ok(())
}

#[test]
fn a_message_with_percent_signs_stays_as_it_is() {
    let a = floats(&[0.0; 4], &[2, 2]);
    let message = ops::einsum("%s%n%d,ij->ij", &[&a, &a]).unwrap_err().to_string();
    assert!(message.contains('%'), "{message}");
    let message = ops::pad(&a, &[0], &[1], &[1], &Array::scalar(0f32).unwrap(), "100%s%n").unwrap_err().to_string();
    assert!(message.contains("100%s%n"), "{message}");
}

#[test]
fn a_failed_evaluation_stays_failed() -> Outcome {
    let singular = floats(&[1.0, 1.0, 1.0, 1.0], &[2, 2]);
    let a = linalg::inv(&singular)?;
    let first = a.to_vec::<f32>();
    assert!(matches!(first, Err(Error::Mlx(_))), "{first:?}");
    let second = a.to_vec::<f32>();
    assert!(matches!(second, Err(Error::NotEvaluated(_))), "{second:?}");
    assert!(ops::add(&a, &a)?.to_vec::<f32>().is_err());
    // The stream goes on.
    assert_eq!(ops::add(&singular, &singular)?.to_vec::<f32>()?, [2.0; 4]);
    Ok(())
}

#[test]
fn memory_that_cannot_be_had_is_told() -> Outcome {
    let huge = ops::add(&ops::zeros(&[1 << 20, 1 << 20, 1 << 10], Dtype::Float32)?, &Array::scalar(1f32)?)?;
    let outcome = huge.eval();
    assert!(matches!(outcome, Err(Error::OutOfMemory(_))), "{outcome:?}");
    // A view of that size is fine.
    let view = ops::broadcast_to(&Array::scalar(1f32)?, &[1 << 20, 1 << 20, 1 << 10])?;
    assert_eq!(ops::slice(&view, &[0, 0, 0], &[1, 1, 2], &[1, 1, 1])?.to_vec::<f32>()?, [1.0, 1.0]);
    Ok(())
}

#[test]
fn graphs_are_counted() -> Outcome {
    let a = floats(&[1.0; 4], &[2, 2]);
    let b = ops::add(&ops::exp(&a)?, &ops::exp(&a)?)?;
    let c = ops::matmul(&b, &b)?;
    let counts = graph::primitives(&[&c, &b])?;
    assert_eq!(counts, [("Exp".to_owned(), 2), ("Add".to_owned(), 1), ("Matmul".to_owned(), 1)]);
    assert_eq!(graph::primitive_count(&[&c])?, 4);
    let halves = ops::split(&c, 2, 0)?;
    assert_eq!(graph::primitive_count(&[&halves[0], &halves[1]])?, 5);
    assert!(graph::export_to_dot(&[&c])?.contains("Matmul"));
    b.eval()?;
    assert_eq!(graph::primitive_count(&[&c])?, 1);
    c.eval()?;
    assert_eq!(graph::primitive_count(&[&c])?, 0);
    Ok(())
}

#[test]
fn nodes_that_share_a_primitive_are_each_their_own() -> Outcome {
    // The first calls teach the primitive, the later ones use it: other values, shapes and dtypes, casts and broadcasts.
    for n in 1..5 {
        let values: Vec<f32> = (1..=n).map(|v| v as f32).collect();
        let (a, whole) = (floats(&values, &[n]), Array::from_slice(&(1..=n).collect::<Vec<i32>>(), &[n])?);
        let sum = ops::add(&ops::add(&a, &a)?, &a)?;
        assert_eq!(sum.to_vec::<f32>()?, values.iter().map(|v| 3.0 * v).collect::<Vec<_>>());
        assert_eq!(ops::add(&whole, &whole)?.to_vec::<i32>()?, (1..=n).map(|v| 2 * v).collect::<Vec<_>>());
        assert_eq!(ops::add(&whole, &a)?.dtype(), Dtype::Float32);
        assert_eq!(ops::divide(&whole, &whole)?.to_vec::<f32>()?, vec![1.0; n as usize]);
        assert_eq!(ops::less(&a, &sum)?.to_vec::<bool>()?, vec![true; n as usize]);
        assert_eq!(ops::add(&a, &floats(&[1.0, 2.0], &[2, 1]))?.shape(), [2, n]);
        assert!(matches!(ops::add(&a, &floats(&[0.0; 7], &[7])), Err(Error::Mlx(_))) || n == 1);
        let (left, right) = (ops::reshape(&a, &[1, n])?, ops::reshape(&a, &[n, 1])?);
        let square: f32 = values.iter().map(|v| v * v).sum();
        assert_eq!(ops::matmul(&left, &right)?.to_vec::<f32>()?, [square]);
        assert_eq!(ops::matmul(&right, &left)?.shape(), [n, n]);
        let five = floats(&[5.0], &[1, 1]);
        assert_eq!(ops::addmm(&five, &left, &right)?.to_vec::<f32>()?, [square + 5.0]);
        assert_eq!(ops::addmm(&five, &right, &left)?.shape(), [n, n]);
        assert!(ops::matmul(&left, &floats(&[0.0; 9], &[9, 1])).is_err());
        // Both nodes run, though they have one primitive.
        assert_eq!(graph::primitive_count(&[&ops::exp(&ops::exp(&a)?)?])?, 2);
    }
    Ok(())
}

#[test]
fn views_of_evaluated_arrays_are_evaluated() -> Outcome {
    let values: Vec<f32> = (0..6).map(|v| v as f32).collect();
    let sum = ops::add(&floats(&values, &[2, 3]), &floats(&[0.0; 6], &[2, 3]))?;
    for wait in [false, true] {
        // Scheduled, and then computed.
        if wait {
            sum.eval()?
        } else {
            sum.async_eval()?
        }
        let turned = ops::transpose_axes(&sum, &[1, 0])?;
        assert!(turned.is_evaluated());
        let again = ops::transpose_axes(&turned, &[1, 0])?;
        let flat = ops::reshape(&sum, &[6])?;
        let wide = ops::broadcast_to(&ops::reshape(&sum, &[2, 1, 3])?, &[2, 2, 3])?;
        assert_eq!(graph::primitive_count(&[&turned, &again, &flat, &wide])?, 0);
        // What follows reads them as MLX's own views.
        let one = floats(&[1.0; 6], &[3, 2]);
        assert_eq!(ops::add(&turned, &one)?.to_vec::<f32>()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
        assert_eq!(ops::matmul(&sum, &turned)?.to_vec::<f32>()?, [5.0, 14.0, 14.0, 50.0]);
        assert_eq!(again.to_vec::<f32>()?, values);
        assert_eq!(turned.to_vec::<f32>()?, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        assert_eq!(flat.to_vec::<f32>()?, values);
        assert_eq!(wide.to_vec::<f32>()?, [0.0, 1.0, 2.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 3.0, 4.0, 5.0]);
        assert_eq!(ops::sum_axis(&wide, 1, false)?.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        // A transposed array is not in row-major order: reshaping it takes a copy.
        assert_eq!(ops::reshape(&turned, &[6])?.to_vec::<f32>()?, [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let number = ops::broadcast_to(&Array::scalar(2f32)?, &[2, 3])?;
        assert_eq!(ops::multiply(&number, &sum)?.to_vec::<f32>()?, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
    }
    // What does not fit is MLX's error.
    assert!(matches!(ops::reshape(&sum, &[4]), Err(Error::Mlx(_))));
    assert!(matches!(ops::transpose_axes(&sum, &[0, 0]), Err(Error::Mlx(_))));
    assert!(matches!(ops::broadcast_to(&sum, &[2, 4]), Err(Error::Mlx(_))));
    Ok(())
}

#[test]
fn calls_are_counted() -> Outcome {
    let a = floats(&[1.0; 4], &[2, 2]);
    let before = mlx_ffi::counters::thread();
    let all = mlx_ffi::counters::process();
    let b = ops::contiguous(&ops::add(&a, &a)?, false)?;
    b.eval()?;
    b.async_eval()?;
    let counted = mlx_ffi::counters::thread() - before;
    assert_eq!((counted.ops, counted.contiguous, counted.evaluations), (2, 1, 2));
    assert!((mlx_ffi::counters::process() - all).ops >= 2);
    Ok(())
}

#[test]
fn closures_are_called_compiled_and_differentiated() -> Outcome {
    let f = Closure::new(|inputs| Ok(vec![ops::multiply(&inputs[0], &ops::sin(&inputs[0])?)?]))?;
    let x = floats(&[0.5, 1.0], &[2]);
    let plain = f.call(&[&x])?[0].to_vec::<f32>()?;
    mlx_ffi::compile::set_mode(mlx_ffi::compile::Mode::NoFuse)?;
    let compiled = mlx_ffi::compile::compile(&f, false)?.call(&[&x])?[0].to_vec::<f32>()?;
    mlx_ffi::compile::set_mode(mlx_ffi::compile::Mode::Enabled)?;
    assert_eq!(plain, compiled);
    let (values, grads) = transforms::vjp(&f, &[&x], &[&ops::ones(&[2], Dtype::Float32)?])?;
    assert_eq!(values[0].to_vec::<f32>()?, plain);
    let expected: Vec<f32> = [0.5f32, 1.0].iter().map(|x| x.sin() + x * x.cos()).collect();
    for (got, want) in grads[0].to_vec::<f32>()?.iter().zip(&expected) {
        assert!((got - want).abs() < 1e-5);
    }
    Ok(())
}

#[test]
fn a_panic_in_a_callback_is_an_error() -> Outcome {
    let x = floats(&[1.0], &[1]);
    let f = Closure::new(|_| panic!("100%s of it"))?;
    assert_eq!(f.call(&[&x]).unwrap_err(), Error::Panic("100%s of it".into()));
    let f = Closure::new(|inputs| Ok(vec![ops::reshape(&inputs[0], &[5])?]))?;
    assert!(matches!(f.call(&[&x]), Err(Error::Mlx(m)) if m.contains("[reshape]")));
    let f = Closure::new(|_| Ok(Vec::new()))?;
    assert!(f.call(&[&x])?.is_empty());
    Ok(())
}

#[test]
fn kernels_of_absent_devices_are_errors() {
    let kind = mlx_ffi::device::kind().unwrap();
    let source =
        fast::Source { name: "k", inputs: &["x"], outputs: &["y"], body: "", header: "", ensure_row_contiguous: true };
    if kind != mlx_ffi::device::Kind::Cuda {
        assert!(fast::CudaKernel::new(source, 0).is_err());
    }
    if kind != mlx_ffi::device::Kind::Metal {
        assert!(fast::MetalKernel::new(source, false).is_err());
    }
}

/// Reductions that share primitives are those that MLX makes anew, the first time and later, and as many calls.
#[test]
fn reductions_share_primitives() -> Outcome {
    type Reduction = fn(&Array, &[i32], bool) -> Result<Array, Error>;
    let all: [(&str, Reduction); 4] =
        [("sum", ops::sum_axes), ("prod", ops::prod_axes), ("max", ops::max_axes), ("all", ops::all_axes)];
    let x = floats(&(0..120).map(|i| (i % 7) as f32 - 2.5).collect::<Vec<_>>(), &[2, 1, 3, 4, 5]);
    for dtype in [Dtype::Float32, Dtype::Int8, Dtype::Bool] {
        let x = ops::astype(&x, dtype)?;
        for (name, reduce) in all {
            for axes in [vec![0], vec![1], vec![3, 0], vec![0, 1, 2, 3], vec![4], vec![-1], vec![2, 4], vec![]] {
                for keep in [false, true, false, true] {
                    mlx_ffi::share_primitives(false);
                    let plain = reduce(&x, &axes, keep)?;
                    mlx_ffi::share_primitives(true);
                    let before = mlx_ffi::counters::thread().ops;
                    let shared = reduce(&x, &axes, keep)?;
                    assert_eq!(mlx_ffi::counters::thread().ops, before + 1);
                    let what = format!("{name} of {dtype} over {axes:?}, kept: {keep}");
                    assert_eq!((shared.shape(), shared.dtype()), (plain.shape(), plain.dtype()), "{what}");
                    assert!(ops::array_equal(&shared, &plain, true)?.item::<bool>()?, "{what}");
                }
            }
            assert!(reduce(&x, &[0, 0], false).is_err(), "{name}");
            assert!(reduce(&x, &[5], false).is_err(), "{name}");
            assert!(reduce(&floats(&[1.0], &[]), &[0], false).is_err(), "{name}");
        }
    }
    let none = floats(&[], &[0, 3]);
    assert!(ops::max_axes(&none, &[0], false).is_err());
    assert_eq!(ops::sum_axes(&none, &[0], true)?.to_vec::<f32>()?, [0.0; 3]);
    Ok(())
}

#[test]
fn arrays_that_may_begin_behind_an_odd_number_of_floats() {
    let numbers = Array::from_slice(&[0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[9]).unwrap();
    let part = |start: i32| ops::slice(&numbers, &[start], &[9], &[1]).unwrap();
    assert!(!numbers.may_begin_odd().unwrap());
    // What is not evaluated yet may be anywhere behind a view; once it is, its place is known.
    let (odd, even) = (part(1), part(2));
    assert!(odd.may_begin_odd().unwrap() && even.may_begin_odd().unwrap());
    let written_over = ops::exp(&odd).unwrap();
    let own = ops::matmul(&odd, &part(1)).unwrap();
    assert!(written_over.may_begin_odd().unwrap() && !own.may_begin_odd().unwrap());
    odd.eval().unwrap();
    even.eval().unwrap();
    assert!(odd.may_begin_odd().unwrap() && !even.may_begin_odd().unwrap());
    // Paths through one node double at each step; the look at them ends.
    let mut doubled = even;
    for _ in 0..60 {
        doubled = ops::add(&doubled, &doubled).unwrap();
    }
    assert!(doubled.may_begin_odd().unwrap());
}

//! Buffers are shared, moved, lent and seen as other dtypes without harm.

use super::super::word::with_word;
use super::*;
use num_complex::Complex32;

impl Buffer {
    /// A buffer with the elements of a slice.
    pub fn from_slice<T: Element>(data: &[T]) -> Result<Buffer> {
        let mut buffer = Buffer::uninit(T::DTYPE, data.len())?;
        buffer.get_mut::<T>().copy_from_slice(data);
        Ok(buffer)
    }

    /// All elements, to read.
    pub fn read<T: Element>(&self) -> ReadGuard<'_, T> {
        self.read_span(0..self.count::<T>())
    }
}

#[test]
fn elements_go_in_and_out() {
    let b = Buffer::from_slice(&[1.5f32, 2.5]).unwrap();
    assert_eq!((b.len(), b.bytes(), b.version()), (2, 8, 0));
    assert_eq!(b.read::<f32>().as_ptr() as usize % 64, 0);
    b.write::<f32>().unwrap()[1] = 3.0;
    b.bump_version();
    let (x, y) = (b.read::<f32>(), b.read::<f32>());
    assert_eq!((&x[..], y[0], b.version()), (&[1.5, 3.0][..], 1.5, 1));
}

#[test]
#[cfg_attr(miri, ignore = "asks MLX")]
fn what_mlx_has_too_is_copied_before_a_write() {
    let lent = |x: &mlx_ffi::Array| Buffer::lent(HostLease::of(x.clone()).unwrap().unwrap(), DType::F32).unwrap();
    let x = mlx_ffi::Array::from_slice(&[1f32, 2.0, 3.0, 4.0], &[4]).unwrap();
    let (a, b) = (lent(&x), lent(&x));
    assert!(a.address() == b.address() && !a.overlaps(&b) && a.writable() && !a.is_shared());
    a.write::<f32>().unwrap()[0] = 9.0;
    assert_eq!((a.read::<f32>()[0], b.read::<f32>()[0], x.to_vec::<f32>().unwrap()[0]), (9.0, 1.0, 1.0));
    // An address that is handed out is no array's.
    let c = lent(&x);
    assert_ne!(c.expose().unwrap(), b.address());
    assert!(c.offer(|_| -> Result<((), _)> { unreachable!() }).unwrap().is_none());
    drop((x, c));
    // Nobody else is left: the array's memory is ours.
    let before = b.address();
    b.write::<f32>().unwrap()[1] = 7.0;
    assert_eq!((b.address(), &b.read::<f32>()[..]), (before, &[1.0, 7.0, 3.0, 4.0][..]));
}

#[test]
#[cfg_attr(miri, ignore = "asks MLX")]
fn offered_memory_is_written_only_when_it_is_given_back() {
    let b = Buffer::from_slice(&[0.5f32; 16 << 10]).unwrap();
    let mut kept = None;
    let offered = b.offer(|offer| match offer {
        Offer::Again(..) => unreachable!(),
        Offer::New(memory, bytes) => {
            kept = Some(memory);
            Ok((bytes.len(), None))
        }
    });
    assert_eq!(offered.unwrap(), Some(64 << 10));
    let before = b.address();
    b.write::<f32>().unwrap()[0] = 1.0;
    assert_ne!(b.address(), before);
    drop(kept);
    // As does MLX where it cannot use the host's memory: it copies, and gives it back at once.
    let array = b.offer(|offer| match offer {
        Offer::Again(..) => unreachable!(),
        Offer::New(memory, _) => {
            let lasting = HostLease::over(memory, &[16 << 10], mlx_ffi::Dtype::Float32).unwrap();
            Ok((lasting.array().clone(), Some(lasting)))
        }
    });
    let array = array.unwrap().unwrap();
    b.write::<f32>().unwrap()[0] = 2.0;
    assert_eq!(array.to_vec::<f32>().unwrap()[..2], [1.0, 0.5]);
    // Too few to be worth it.
    assert!(Buffer::from_slice(&[1f32]).unwrap().offer(|_| Ok(((), None))).unwrap().is_none());
}

#[test]
fn bools_are_0_or_1() {
    let mut b = Buffer::uninit(DType::Bool, 3).unwrap();
    assert_eq!(&b.read::<bool>()[..], &[false; 3]);
    let write = |to: &mut [u8]| {
        to.copy_from_slice(&[0, 1, 7]);
        Ok(())
    };
    b.fill_by(write).unwrap();
    assert_eq!(&b.read_bytes()[..], &[0, 1, 1]);
}

#[test]
fn foreign_memory_is_shown_and_given_back() {
    let held = std::sync::Arc::new(());
    let mut data = vec![1.0f64, 2.0, 3.0];
    let ptr = data.as_mut_ptr().cast::<u8>();
    let owner = Box::new(held.clone());
    // SAFETY: `data` outlives the buffer.
    let b = Buffer::foreign(unsafe { Foreign::new(ptr, 24, true, owner) }, DType::F64, 3).unwrap();
    b.write::<f64>().unwrap()[1] = 5.0;
    assert_eq!((b.address(), &b.read::<f64>()[..]), (ptr as usize, &[1.0, 5.0, 3.0][..]));
    assert_eq!(std::sync::Arc::strong_count(&held), 2);
    // Miri has no `shm_open`.
    if !cfg!(miri) {
        b.share().unwrap();
        b.share().unwrap();
        b.write::<f64>().unwrap()[0] = 9.0;
        assert!(b.is_shared() && b.lend().is_some());
        assert_eq!(&b.read::<f64>()[..], &[9.0, 5.0, 3.0]);
    }
    drop(b);
    assert_eq!((std::sync::Arc::strong_count(&held), data), (1, vec![1.0, 5.0, 3.0]));
}

#[test]
fn foreign_memory_that_fits_not_is_refused() {
    let mut data = [2u8; 16];
    let ptr = data.as_mut_ptr();
    let made = |at: usize, writable, dtype, len| {
        // SAFETY: `data` outlives the buffer.
        Buffer::foreign(unsafe { Foreign::new(ptr.wrapping_add(at), 16 - at, writable, Box::new(())) }, dtype, len)
    };
    assert!(made(0, true, DType::U8, 17).is_err() && made(0, true, DType::F64, usize::MAX).is_err());
    let odd = usize::from((ptr as usize).is_multiple_of(2));
    assert!(made(odd, true, DType::I16, 1).is_err());
    assert!(made(0, true, DType::Bool, 1).is_err());
    assert!(!made(0, false, DType::U8, 16).unwrap().writable());
    let (a, b) = (made(0, true, DType::U8, 8).unwrap(), made(8, true, DType::U8, 8).unwrap());
    assert!(!a.overlaps(&b) && a.overlaps(&made(7, true, DType::U8, 1).unwrap()) && a.overlaps(&a));
}

#[test]
fn absurd_sizes_are_errors() {
    assert!(Buffer::uninit(DType::F64, usize::MAX / 4).is_err());
    assert!(Buffer::uninit(DType::F64, usize::MAX / 16).is_err());
    assert_eq!(Buffer::uninit(DType::F64, 0).unwrap().len(), 0);
}

#[test]
fn words_fit_by_size() {
    for &dtype in DType::ALL {
        let b = Buffer::uninit(dtype, 3).unwrap();
        assert_eq!(with_word!(dtype, W => std::mem::size_of_val(&b.read_words::<W>(0..b.len())[..])), b.bytes());
    }
    let x = Buffer::from_slice(&[1.0f32]).unwrap();
    x.write_words::<u32>().unwrap()[0] = 2f32.to_bits();
    assert_eq!(x.read::<f32>()[0], 2.0);
}

#[test]
fn complex_numbers_are_pairs() {
    let z = Buffer::from_slice(&[Complex32::new(1.0, 2.0), Complex32::new(3.0, 4.0)]).unwrap();
    assert_eq!(&z.read::<f32>()[..], &[1.0, 2.0, 3.0, 4.0]);
    z.write::<f32>().unwrap()[3] = 5.0;
    assert_eq!(z.read::<Complex32>()[1], Complex32::new(3.0, 5.0));
    let odd = Buffer::from_slice(&[1f32, 2.0, 3.0]).unwrap();
    assert_eq!((odd.read::<Complex32>().len(), odd.read_words::<[u32; 2]>(0..1).len()), (1, 1));
}

#[test]
fn bytes_are_seen_as_what_was_admitted() {
    let x = Buffer::from_slice(&[1f32, 2.0, 3.0]).unwrap();
    x.admit(DType::I16).unwrap();
    x.admit(DType::F64).unwrap();
    assert_eq!((x.read::<i16>().len(), x.read::<f64>().len(), x.read_words::<u8>(0..1).len()), (6, 1, 12));
    assert!(x.admit(DType::Bool).is_err());
    let truth = Buffer::from_slice(&[true, false]).unwrap();
    truth.admit(DType::U8).unwrap();
    truth.write::<u8>().unwrap()[1] = 7;
    truth.write_words::<u8>().unwrap()[0] = 0;
    assert_eq!((&truth.read::<bool>()[..], &truth.read::<u8>()[..]), (&[false, true][..], &[0, 1][..]));
    let bytes = Buffer::from_slice(&[0u8, 1]).unwrap();
    bytes.admit(DType::Bool).unwrap();
    bytes.write::<u8>().unwrap()[0] = 255;
    assert_eq!((bytes.read::<bool>()[0], bytes.read::<u8>()[0]), (true, 1));
}

#[test]
fn memory_that_is_not_aligned_is_not_admitted() {
    let mut data = [0u8; 24];
    let odd = usize::from((data.as_ptr() as usize).is_multiple_of(2));
    let ptr = data.as_mut_ptr().wrapping_add(odd);
    // SAFETY: `data` outlives the buffer.
    let b = Buffer::foreign(unsafe { Foreign::new(ptr, 16, true, Box::new(())) }, DType::U8, 16).unwrap();
    assert!(b.admit(DType::I8).is_ok() && b.admit(DType::F32).is_err() && b.admit(DType::C64).is_err());
}

#[test]
#[should_panic(expected = "words")]
fn truth_is_not_written_as_bytes() {
    let _ = Buffer::uninit(DType::Bool, 1).unwrap().write_words::<u8>();
}

#[test]
#[should_panic(expected = "read as")]
fn another_type_is_refused() {
    let _ = Buffer::uninit(DType::U8, 4).unwrap().read::<bool>();
}

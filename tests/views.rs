//! Aliasing: a write through any view is seen by its base and by every other view, on both devices alike.

mod common;
use common::{counting, values, DEVICES};
use lucid::{no_grad, Device, Result, Tensor};

/// Chains of view steps over a base of shape [4, 6].
fn chains(x: &Tensor) -> Result<Vec<(&'static str, Tensor)>> {
    Ok(vec![
        ("whole", x.reshape(&[24])?),
        ("row", x.select(0, 2)?),
        ("column", x.select(1, -1)?),
        ("transpose", x.t()?),
        ("slice of transpose", x.t()?.narrow(0, 1, 3)?),
        ("reshaped slice", x.narrow(0, 1, 2)?.reshape(&[3, 4])?),
        ("split and permuted", x.reshape(&[2, 2, 3, 2])?.permute(&[3, 1, 0, 2])?),
        ("cell of a permutation", x.reshape(&[2, 2, 3, 2])?.permute(&[3, 1, 0, 2])?.select(0, 1)?.select(1, 0)?),
        ("diagonal", x.diagonal(1, 0, 1)?),
        ("diagonal of transpose", x.t()?.diagonal(-1, 0, 1)?),
        ("strided", x.as_strided(&[3, 3], &[7, 2], Some(1))?),
        ("row of strided", x.as_strided(&[3, 3], &[7, 2], Some(1))?.select(0, 2)?),
        ("windows apart", x.reshape(&[24])?.unfold(0, 3, 4)?),
        ("column of windows", x.reshape(&[24])?.unfold(0, 3, 4)?.select(1, 1)?),
        ("unsqueezed", x.unsqueeze(1)?.narrow(2, 2, 2)?),
        ("one element", x.narrow(0, 3, 1)?.narrow(1, 2, 1)?),
        ("empty", x.narrow(0, 2, 0)?),
        ("deep", (0..12).try_fold(x.clone(), |t, i| if i % 3 == 2 { t.reshape(&[4, 6]) } else { t.t() })?),
    ])
}

#[test]
fn every_write_is_seen_through_every_other_view() -> Result<()> {
    // The CPU's strides over one buffer are the model; the GPU's chains must give the same in every pair.
    let names: Vec<_> = chains(&counting(&[4, 6], Device::Cpu)?)?.into_iter().map(|(n, _)| n).collect();
    for writer in 0..names.len() {
        let seen = DEVICES.map(|device| -> Result<_> {
            let x = counting(&[4, 6], device)?;
            let views = chains(&x)?;
            let before: Vec<Vec<f32>> = views.iter().map(|(_, v)| values(v)).collect::<Result<_>>()?;
            no_grad(|| views[writer].1.mul_(-1.0))?;
            let target = &views[writer].1;
            target.copy_(&(target + 0.5)?)?;
            let after: Vec<Vec<f32>> = views.iter().map(|(_, v)| values(v)).collect::<Result<_>>()?;
            let expected: Vec<f32> = before[writer].iter().map(|v| 0.5 - v).collect();
            assert_eq!(after[writer], expected, "{} on {device}", names[writer]);
            Ok((values(&x)?, after))
        });
        let [cpu, gpu] = seen;
        assert_eq!(cpu?, gpu?, "after a write through {}", names[writer]);
    }
    Ok(())
}

#[test]
fn the_base_is_changed_exactly_where_the_view_looks() -> Result<()> {
    for device in DEVICES {
        let x = counting(&[4, 6], device)?;
        x.t()?.narrow(0, 1, 3)?.select(1, 2)?.fill_(99.0.into())?;
        let mut expected: Vec<f32> = (0..24).map(|i| i as f32).collect();
        expected[13..16].fill(99.0);
        assert_eq!(values(&x)?, expected);
    }
    Ok(())
}

#[test]
fn views_report_strides_as_pytorch_does_on_both_devices() -> Result<()> {
    for device in DEVICES {
        let x = counting(&[4, 6], device)?;
        let v = x.t()?.narrow(0, 1, 3)?;
        assert_eq!((v.shape(), v.strides(), v.storage_offset()), (&[3, 4][..], &[1, 6][..], 1));
        assert!(!v.is_contiguous() && v.shares_storage(&x) && v.contiguous()?.is_contiguous());
        assert!(!v.contiguous()?.shares_storage(&x));
        assert_eq!(x.expand(&[2, -1, -1])?.strides(), &[0, 6, 1]);
        assert!(v.view(&[12]).is_err() && v.reshape(&[12]).is_ok());
    }
    Ok(())
}

#[test]
fn a_write_may_read_all_that_it_overwrites_or_nothing() -> Result<()> {
    for device in DEVICES {
        let x = counting(&[6], device)?;
        let y = counting(&[2, 2], device)?;
        let shifted = x.narrow(0, 1, 5)?.copy_(&x.narrow(0, 0, 5)?).unwrap_err();
        let turned = y.copy_(&y.t()?).unwrap_err();
        for error in [shifted, turned] {
            assert!(error.to_string().contains("clone() the tensor"), "{error}");
        }
        x.narrow(0, 3, 3)?.copy_(&x.narrow(0, 0, 3)?)?;
        y.copy_(&y)?;
        assert_eq!(values(&x)?, [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
        assert_eq!(values(&y)?, [0.0, 1.0, 2.0, 3.0]);
    }
    Ok(())
}

#[test]
fn an_expanded_tensor_is_not_written() -> Result<()> {
    for device in DEVICES {
        let x = counting(&[3, 1], device)?.expand(&[3, 4])?;
        let error = x.add_(1.0, 1).unwrap_err().to_string();
        assert!(error.contains("single memory location"), "{error}");
    }
    Ok(())
}

#[test]
fn versions_count_writes_through_any_alias() -> Result<()> {
    for device in DEVICES {
        let x = counting(&[4], device)?;
        let (view, detached) = (x.narrow(0, 0, 2)?, x.detach()?);
        view.add_(1.0, 1)?;
        detached.add_(1.0, 1)?;
        assert_eq!((x.version(), view.version(), detached.version()), (2, 2, 2));
        assert_eq!(values(&x)?, [2.0, 3.0, 3.0, 4.0]);
    }
    Ok(())
}

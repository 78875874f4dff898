//! Values, errors and gradients of sparse tensors, on both devices.

use crate::optim::{Optimizer, Sgd};
use crate::{no_grad, DType, Device, Error, Result, Tensor};

fn rows(index: &[i64], values: &[f32], shape: &[usize], device: Device) -> Tensor {
    let indices = Tensor::of_elements(index, &[1, index.len()], device).unwrap();
    let values = Tensor::of_elements(values, &[index.len(), values.len() / index.len()], device).unwrap();
    Tensor::sparse_coo(&indices, &values, Some(shape), false).unwrap()
}

fn list(t: &Tensor) -> Vec<f32> {
    t.to_vec().unwrap()
}

const DEVICES: [Device; 2] = [Device::Cpu, Device::Gpu];

#[test]
fn values_at_one_index_are_summed() {
    for device in DEVICES {
        let x = rows(&[2, 0, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[4, 2], device);
        assert_eq!(list(&x.to_dense().unwrap()), [3.0, 4.0, 0.0, 0.0, 6.0, 8.0, 0.0, 0.0]);
        let once = x.coalesce().unwrap();
        assert_eq!((x.is_coalesced().unwrap(), once.is_coalesced().unwrap()), (false, true));
        assert_eq!(once.sparse_indices().unwrap().to_vec::<i64>().unwrap(), [0, 2]);
        assert_eq!(list(&once.sparse_values().unwrap()), [3.0, 4.0, 6.0, 8.0]);
        assert_eq!((x.nnz().unwrap(), x.sparse_dim(), x.dense_dim(), x.shape()), (3, 1, 1, &[4, 2][..]));
        let square = once.square().unwrap();
        assert_eq!(list(&square.sparse_values().unwrap()), [9.0, 16.0, 36.0, 64.0]);
        assert_eq!(list(&x.square().unwrap().to_dense().unwrap()), list(&square.to_dense().unwrap()));
        assert_eq!(x.sum(None, false, None).unwrap().item_f64().unwrap(), 21.0);
    }
}

#[test]
fn several_indexed_dimensions_are_counted_as_one() {
    let indices = Tensor::of_elements(&[1i64, 0, 1, 2, 0, 2], &[2, 3], Device::Cpu).unwrap();
    let values = Tensor::of_elements(&[1.0f32, 2.0, 4.0], &[3], Device::Cpu).unwrap();
    let x = Tensor::sparse_coo(&indices, &values, None, false).unwrap();
    assert_eq!(x.shape(), [2, 3]);
    let once = x.coalesce().unwrap();
    assert_eq!(once.sparse_indices().unwrap().to_vec::<i64>().unwrap(), [0, 1, 0, 2]);
    assert_eq!(list(&once.sparse_values().unwrap()), [2.0, 5.0]);
    let back = x.to_dense().unwrap().to_sparse(None).unwrap();
    assert_eq!(list(&back.to_dense().unwrap()), [2.0, 0.0, 0.0, 0.0, 0.0, 5.0]);
}

#[test]
fn sums_and_factors_keep_it_sparse() {
    for device in DEVICES {
        let (x, y) = (rows(&[0], &[1.0, 2.0], &[3, 2], device), rows(&[2, 0], &[1.0, 1.0, 5.0, 5.0], &[3, 2], device));
        let z = (&(&x * 2.0).unwrap() + &y).unwrap();
        assert!(z.is_sparse());
        assert_eq!(list(&z.to_dense().unwrap()), [7.0, 9.0, 0.0, 0.0, 1.0, 1.0]);
        let dense = Tensor::full_of(&[3, 2], 1.0.into(), DType::F32, device).unwrap();
        assert_eq!(list(&(&dense - &x).unwrap()), [0.0, -1.0, 1.0, 1.0, 1.0, 1.0]);
        assert!((&x + &dense).is_err());
        let seen = z.detach().unwrap();
        z.mul_(10.0).unwrap();
        assert_eq!(list(&seen.to_dense().unwrap())[0], 70.0);
        z.zero_().unwrap();
        assert_eq!((seen.nnz().unwrap(), seen.version()), (0, 2));
    }
}

#[test]
fn products_sums_and_orders() {
    for device in DEVICES {
        let indices = Tensor::of_elements(&[0i64, 1, 1, 2, 0, 2], &[2, 3], device).unwrap();
        let values = Tensor::of_elements(&[3.0f32, 4.0, 5.0], &[3], device).unwrap();
        let x = Tensor::sparse_coo(&indices, &values, Some(&[2, 3]), false).unwrap();
        let whole = x.to_dense().unwrap();
        let t = whole.t().unwrap();
        assert_eq!(list(&x.matmul(&t).unwrap()), list(&whole.matmul(&t).unwrap()));
        assert_eq!(list(&t.matmul(&x).unwrap()), list(&t.matmul(&whole).unwrap()));
        let square = x.matmul(&x.t().unwrap()).unwrap();
        assert!(square.is_sparse() && square.is_coalesced().unwrap());
        assert_eq!(list(&square.to_dense().unwrap()), list(&whole.matmul(&t).unwrap()));
        assert_eq!(list(&x.mul(&x).unwrap().to_dense().unwrap()), list(&whole.square().unwrap()));
        assert_eq!(list(&x.sum(Some(&[1]), false, None).unwrap().to_dense().unwrap()), [3.0, 9.0]);
        let twice = crate::ops::index::cat(&[x.clone(), x.clone()], 0).unwrap();
        assert_eq!((twice.shape(), twice.nnz().unwrap()), (&[4, 3][..], 6));
        assert!(x.matmul(&whole).is_err() && x.mul(&x.t().unwrap()).is_err());
    }
}

#[test]
fn dense_ops_refuse_it() {
    let x = rows(&[0], &[1.0, 2.0], &[3, 2], Device::Cpu);
    let refused = |made: Result<Tensor>| match made {
        Err(e) => assert!(e.to_string().contains("to_dense()"), "{e}"),
        Ok(t) => panic!("{t:?}"),
    };
    refused(x.exp());
    refused(x.t());
    refused(x.reshape(&[6]));
    refused(x.matmul(&x.detach().unwrap().to_dense().unwrap().t().unwrap()));
    refused(x.sum(Some(&[0]), true, None));
    assert!(x.to_vec::<f32>().is_err() && x.item().is_err() && x.fill_(1.0.into()).is_err());
    assert!(x.requires_grad_(true).is_err());
    let indices = Tensor::of_elements(&[3i64], &[1, 1], Device::Cpu).unwrap();
    let values = Tensor::of_elements(&[1.0f32, 2.0], &[1, 2], Device::Cpu).unwrap();
    let made = Tensor::sparse_coo(&indices, &values, Some(&[3, 2]), false);
    assert!(matches!(*made.unwrap_err(), Error::Runtime { .. }));
}

#[test]
fn gradients_of_values_and_of_tables() {
    let w = Tensor::of_elements(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2], Device::Cpu).unwrap();
    let w = w.requires_grad_(true).unwrap();
    let index = Tensor::of_elements(&[2i64, 0, 2], &[3], Device::Cpu).unwrap();
    let loss = |padding| {
        let made = crate::ops::nn::embedding(&index, &w, padding, true).unwrap();
        made.square().unwrap().sum(None, false, None).unwrap()
    };
    loss(Some(0)).backward().unwrap();
    let g = w.grad().unwrap();
    assert_eq!((g.is_sparse(), g.nnz().unwrap()), (true, 2));
    loss(None).backward().unwrap();
    let g = w.grad().unwrap();
    assert_eq!(g.nnz().unwrap(), 5);
    assert_eq!(list(&g.to_dense().unwrap()), [2.0, 4.0, 0.0, 0.0, 40.0, 48.0]);
    let mut sgd = Sgd::new(vec![w.clone()], 0.1);
    sgd.step().unwrap();
    let new = no_grad(|| w.detach()).unwrap();
    assert_eq!(list(&new)[2..4], [3.0, 4.0]);
    assert!((list(&new)[4] - 1.0).abs() < 1e-6);

    let v = Tensor::of_elements(&[1.0f32, 2.0], &[1, 2], Device::Cpu).unwrap().requires_grad_(true).unwrap();
    let at = Tensor::of_elements(&[1i64], &[1, 1], Device::Cpu).unwrap();
    let x = Tensor::sparse_coo(&at, &v, Some(&[2, 2]), false).unwrap();
    assert!(x.requires_grad() && x.detach().is_ok_and(|d| !d.requires_grad()));
    (&x * 3.0).unwrap().to_dense().unwrap().square().unwrap().sum(None, false, None).unwrap().backward().unwrap();
    assert_eq!(list(&v.grad().unwrap()), [18.0, 36.0]);
}

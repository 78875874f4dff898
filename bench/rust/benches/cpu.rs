//! Lucid, candle and burn on the CPU, side by side. One thread unless THREADS says otherwise. Each side evaluates what it times.
#![allow(missing_docs)]

use criterion::{criterion_group, criterion_main, Criterion};
use std::hint::black_box;
use std::time::Duration;

type Any<T> = Result<T, Box<dyn std::error::Error>>;

/// A row: what a side runs in each iteration, made once.
type Run = Box<dyn FnMut()>;

fn of<E: std::fmt::Debug>(mut step: impl FnMut() -> Result<(), E> + 'static) -> Run {
    Box::new(move || step().expect("a step of the benchmark failed"))
}

mod ours {
    use super::{black_box, of, Any, Run};
    use bench_rust::{lenet, mlp, BATCH};
    use lucid::prelude::*;
    use nn::functional as F;

    fn normal(shape: &[usize]) -> Result<Tensor> {
        let shape: Vec<isize> = shape.iter().map(|&n| n as isize).collect();
        Tensor::randn(&shape)
    }

    pub fn row(name: &str) -> Any<Run> {
        let square = |n: usize| normal(&[n, n]);
        Ok(match name {
            "add 2x2" => {
                let (a, b) = (square(2)?, square(2)?);
                of(move || (&a + &b).map(|y| drop(black_box(y))))
            }
            "matmul 256" | "matmul 1024" => {
                let n = if name.ends_with("256") { 256 } else { 1024 };
                let (a, b) = (square(n)?, square(n)?);
                of(move || a.matmul(&b).map(|y| drop(black_box(y))))
            }
            "conv2d 3x3" => {
                let (x, w) = (normal(&[8, 32, 32, 32])?, normal(&[64, 32, 3, 3])?);
                of(move || F::conv2d(&x, &w, None, F::Convolution::new().padding(1)).map(|y| drop(black_box(y))))
            }
            "softmax 1024" => {
                let x = square(1024)?;
                of(move || x.softmax(-1, None).map(|y| drop(black_box(y))))
            }
            "step of MLP" => step(mlp()?, &[BATCH, 784])?,
            "step of LeNet" => step(lenet()?, &[BATCH, 1, 28, 28])?,
            _ => return Err(name.into()),
        })
    }

    fn step(model: nn::Sequential, shape: &[usize]) -> Result<Run> {
        let (x, y) = (normal(shape)?, Tensor::zeros(dims![BATCH])?.cast(DType::I64)?);
        let mut sgd = optim::Sgd::new(model.parameters(), 0.01);
        Ok(of(move || {
            let loss = cross_entropy(&model.forward(&x)?, &y, Reduction::Mean)?;
            sgd.zero_grad()?;
            loss.backward()?;
            sgd.step()
        }))
    }
}

mod candle {
    use super::{black_box, of, Any, Run};
    use bench_rust::BATCH;
    use candle_core::{DType, Device, Result, Tensor};
    use candle_nn::{conv2d, linear, loss, ops, Conv2dConfig, Module, Optimizer, VarBuilder, VarMap, SGD};

    fn normal(shape: &[usize]) -> Result<Tensor> {
        Tensor::randn(0f32, 1f32, shape, &Device::Cpu)
    }

    pub fn row(name: &str) -> Any<Run> {
        let square = |n: usize| normal(&[n, n]);
        Ok(match name {
            "add 2x2" => {
                let (a, b) = (square(2)?, square(2)?);
                of(move || (&a + &b).map(|y| drop(black_box(y))))
            }
            "matmul 256" | "matmul 1024" => {
                let n = if name.ends_with("256") { 256 } else { 1024 };
                let (a, b) = (square(n)?, square(n)?);
                of(move || a.matmul(&b).map(|y| drop(black_box(y))))
            }
            "conv2d 3x3" => {
                let (x, w) = (normal(&[8, 32, 32, 32])?, normal(&[64, 32, 3, 3])?);
                of(move || x.conv2d(&w, 1, 1, 1, 1).map(|y| drop(black_box(y))))
            }
            "softmax 1024" => {
                let x = square(1024)?;
                of(move || ops::softmax_last_dim(&x).map(|y| drop(black_box(y))))
            }
            "step of MLP" => {
                let (map, vb) = variables();
                let layers =
                    [linear(784, 256, vb.pp("a"))?, linear(256, 128, vb.pp("b"))?, linear(128, 10, vb.pp("c"))?];
                let forward = move |x: &Tensor| {
                    let x = layers[0].forward(x)?.relu()?;
                    layers[2].forward(&layers[1].forward(&x)?.relu()?)
                };
                step(&map, forward, &[BATCH, 784])?
            }
            "step of LeNet" => {
                let (map, vb) = variables();
                let padded = Conv2dConfig { padding: 2, ..Default::default() };
                let convs = [conv2d(1, 6, 5, padded, vb.pp("c1"))?, conv2d(6, 16, 5, Default::default(), vb.pp("c2"))?];
                let layers = [linear(400, 120, vb.pp("a"))?, linear(120, 84, vb.pp("b"))?, linear(84, 10, vb.pp("c"))?];
                let forward = move |x: &Tensor| {
                    let x = convs[0].forward(x)?.relu()?.max_pool2d(2)?;
                    let x = convs[1].forward(&x)?.relu()?.max_pool2d(2)?.flatten_from(1)?;
                    let x = layers[0].forward(&x)?.relu()?;
                    layers[2].forward(&layers[1].forward(&x)?.relu()?)
                };
                step(&map, forward, &[BATCH, 1, 28, 28])?
            }
            _ => return Err(name.into()),
        })
    }

    fn variables() -> (VarMap, VarBuilder<'static>) {
        let map = VarMap::new();
        let vb = VarBuilder::from_varmap(&map, DType::F32, &Device::Cpu);
        (map, vb)
    }

    fn step(map: &VarMap, forward: impl Fn(&Tensor) -> Result<Tensor> + 'static, shape: &[usize]) -> Result<Run> {
        let (x, y) = (normal(shape)?, Tensor::zeros(BATCH, DType::U32, &Device::Cpu)?);
        let mut sgd = SGD::new(map.all_vars(), 0.01)?;
        Ok(of(move || sgd.backward_step(&loss::cross_entropy(&forward(&x)?, &y)?)))
    }
}

mod burned {
    use super::{black_box, of, Any, Run};
    use bench_rust::BATCH;
    use burn::module::Module;
    use burn::nn::conv::{Conv2d, Conv2dConfig};
    use burn::nn::loss::CrossEntropyLossConfig;
    use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
    use burn::nn::{Linear, LinearConfig, PaddingConfig2d};
    use burn::optim::{GradientsParams, SgdConfig};
    use burn::tensor::activation::{relu, softmax};
    use burn::tensor::module::conv2d;
    use burn::tensor::ops::ConvOptions;
    use burn::tensor::{Device, Distribution, Int, Tensor};
    use std::convert::Infallible;

    fn normal<const D: usize>(shape: [usize; D], on: &Device) -> Tensor<D> {
        Tensor::random(shape, Distribution::Normal(0.0, 1.0), on)
    }

    fn done<const D: usize>(y: Tensor<D>) -> Result<(), Infallible> {
        drop(black_box(y));
        Ok(())
    }

    #[derive(Module, Debug)]
    struct Mlp {
        a: Linear,
        b: Linear,
        c: Linear,
    }

    #[derive(Module, Debug)]
    struct LeNet {
        conv1: Conv2d,
        conv2: Conv2d,
        pool: MaxPool2d,
        mlp: Mlp,
    }

    impl Mlp {
        fn new(sizes: [usize; 4], on: &Device) -> Mlp {
            let layer = |i: usize| LinearConfig::new(sizes[i], sizes[i + 1]).init(on);
            Mlp { a: layer(0), b: layer(1), c: layer(2) }
        }

        fn forward(&self, x: Tensor<2>) -> Tensor<2> {
            self.c.forward(relu(self.b.forward(relu(self.a.forward(x)))))
        }
    }

    impl LeNet {
        fn forward(&self, x: Tensor<4>) -> Tensor<2> {
            let x = self.pool.forward(relu(self.conv1.forward(x)));
            let x = self.pool.forward(relu(self.conv2.forward(x)));
            self.mlp.forward(x.flatten(1, 3))
        }
    }

    pub fn row(name: &str) -> Any<Run> {
        let on = Device::flex();
        let square = |n: usize| normal([n, n], &on);
        let training = on.clone().autodiff();
        Ok(match name {
            "add 2x2" => {
                let (a, b) = (square(2), square(2));
                of(move || done(a.clone() + b.clone()))
            }
            "matmul 256" | "matmul 1024" => {
                let n = if name.ends_with("256") { 256 } else { 1024 };
                let (a, b) = (square(n), square(n));
                of(move || done(a.clone().matmul(b.clone())))
            }
            "conv2d 3x3" => {
                let (x, w) = (normal([8, 32, 32, 32], &on), normal([64, 32, 3, 3], &on));
                of(move || done(conv2d(x.clone(), w.clone(), None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1))))
            }
            "softmax 1024" => {
                let x = square(1024);
                of(move || done(softmax(x.clone(), 1)))
            }
            "step of MLP" => {
                let model = Mlp::new([784, 256, 128, 10], &training);
                step(model, |model, x| model.forward(x), normal([BATCH, 784], &training), &training)
            }
            "step of LeNet" => {
                let padded = PaddingConfig2d::Explicit(2, 2, 2, 2);
                let model = LeNet {
                    conv1: Conv2dConfig::new([1, 6], [5, 5]).with_padding(padded).init(&training),
                    conv2: Conv2dConfig::new([6, 16], [5, 5]).init(&training),
                    pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
                    mlp: Mlp::new([400, 120, 84, 10], &training),
                };
                step(model, |model, x| model.forward(x), normal([BATCH, 1, 28, 28], &training), &training)
            }
            _ => return Err(name.into()),
        })
    }

    fn step<M: Module + 'static, const D: usize>(
        model: M,
        forward: impl Fn(&M, Tensor<D>) -> Tensor<2> + 'static,
        x: Tensor<D>,
        on: &Device,
    ) -> Run {
        let targets = Tensor::<1, Int>::zeros([BATCH], on);
        let (loss, mut sgd) = (CrossEntropyLossConfig::new().init(on), SgdConfig::new().init());
        let mut model = Some(model);
        of(move || {
            if let Some(own) = model.take() {
                let grads = loss.forward(forward(&own, x.clone()), targets.clone()).backward();
                let grads = GradientsParams::from_grads(grads, &own);
                model = Some(sgd.step(0.01, own, grads));
            }
            Ok::<(), Infallible>(())
        })
    }
}

const ROWS: [&str; 7] =
    ["add 2x2", "matmul 256", "matmul 1024", "conv2d 3x3", "softmax 1024", "step of MLP", "step of LeNet"];

fn rows(c: &mut Criterion) {
    let threads = std::env::var("THREADS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    lucid::set_num_threads(threads);
    lucid::manual_seed(0);
    type Side = fn(&str) -> Any<Run>;
    let sides: [(&str, Side); 3] = [("lucid", ours::row), ("candle", candle::row), ("burn", burned::row)];
    for row in ROWS {
        let mut group = c.benchmark_group(row);
        for (side, make) in sides {
            let mut run = make(row).unwrap_or_else(|e| panic!("{side}, {row}: {e}"));
            group.bench_function(side, |b| b.iter(&mut run));
        }
        group.finish();
    }
}

criterion_group! {
    name = cpu;
    config = Criterion::default().warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(2)).sample_size(20);
    targets = rows
}
criterion_main!(cpu);

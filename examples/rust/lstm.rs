//! Memory over steps: the adding problem (Hochreiter and Schmidhuber, 1997). Of a sequence of numbers two are marked, and their
//! sum is wanted at the end.

use lucid::prelude::*;

#[derive(Module)]
struct Adder {
    lstm: nn::Lstm,
    head: nn::Linear,
}

impl Forward for Adder {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (_, (state, _)) = self.lstm.forward(x, None)?;
        self.head.forward(&state.select(0, -1)?)
    }
}

const LENGTH: i64 = 12;

/// Sequences (n, LENGTH, 2) of numbers and marks, and the sums (n, 1).
fn problems(n: isize, on: Device) -> Result<(Tensor, Tensor)> {
    let numbers = Tensor::rand(dims![n, LENGTH])?;
    let half = LENGTH / 2;
    let one = |low: i64| lucid::ops::random::randint(low, low + half, &[n], None, None, None);
    let marks = (nn_one_hot(&one(0)?)? + nn_one_hot(&one(half)?)?)?;
    let sums = (&numbers * &marks)?.sum(Some(&[1]), true, None)?;
    Ok((lucid::ops::index::stack(&[numbers, marks], 2)?.to(on)?, sums.to(on)?))
}

fn nn_one_hot(places: &Tensor) -> Result<Tensor> {
    lucid::ops::nn::one_hot(places, LENGTH)?.cast(DType::F32)
}

/// Trains for so many steps, and gives the squared error on sequences that are new; without memory it is 1/6.
pub fn run(on: Device, steps: usize) -> Result<f64> {
    lucid::manual_seed(0);
    let lstm = nn::Lstm::options(2, 32).batch_first(true).build(on)?;
    let model = Adder { lstm, head: nn::Linear::new(32, 1, on)? };
    let mut adam = optim::Adam::new(model.parameters(), 1e-2);
    for _ in 0..steps {
        let (x, y) = problems(64, on)?;
        let loss = nn::MseLoss::new().forward(&model.forward(&x)?, &y)?;
        loss.eval()?;
        adam.zero_grad()?;
        loss.backward()?;
        optim::clip_grad_norm(&adam.parameters(), 1.0, 2.0)?;
        adam.step()?;
    }
    let (x, y) = problems(256, on)?;
    no_grad(|| nn::MseLoss::new().forward(&model.forward(&x)?, &y))?.item_f64()
}

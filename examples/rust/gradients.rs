//! Functions of functions: Jacobians, Hessians, and the gradients of each sample of a batch.

use lucid::prelude::*;

/// Prints them for small functions, and compares them with what is known.
pub fn run(on: Device) -> Result<()> {
    let x = tensor!([1.0, 2.0], on)?;
    let polar = |x: &Tensor| x.square()?.cumsum(0, None);
    let jacobian = func::jacobian(polar, &x)?;
    println!("Jacobian: {jacobian}");
    assert_close(&jacobian, [[2.0, 0.0], [2.0, 4.0]]);
    assert_close(func::jacobian_forward(polar, &x)?, jacobian);

    let hessian = func::hessian(|x| x.pow(4.0)?.sum_all(), &x)?;
    println!("Hessian: {hessian}");
    assert_close(hessian, [[12.0, 0.0], [0.0, 48.0]]);

    // Newton's method finds the least of a quadratic in a step.
    let bowl = |x: &Tensor| ((x - 3.0)?.square()? * tensor!([1.0, 5.0], x.device())?)?.sum_all();
    let slope = func::grad(|x| bowl(&x[0]), std::slice::from_ref(&x))?.remove(0);
    let curvature = func::hessian(bowl, &x)?;
    let step = lucid::ops::linalg::solve::linalg_solve(&curvature, &slope, true)?;
    assert_close((&x - step)?, [3.0, 3.0]);

    let (weight, inputs) = (tensor!([0.5, -1.0], on)?, Tensor::randn(dims![4, 2])?.to(on)?);
    let loss = |w: &Tensor, x: &Tensor| w.dot(x)?.tanh();
    let each = |t: &[Tensor]| func::grad(|w| loss(&w[0], &t[1]), &t[..1]);
    let grads = func::vmap(each, &[weight, inputs], &[None, Some(0)])?.remove(0);
    println!("gradients of each sample: {grads}");
    assert_eq!(grads.shape(), [4, 2]);
    Ok(())
}

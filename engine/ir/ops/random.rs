//! Random numbers: the rows of the family, and the primitives and arguments that they make.

use super::macros::define_primitives;
use lucid_core::random::Key;
use lucid_core::DType;

/// The rows of the family, for `$cb`.
#[macro_export]
#[doc(hidden)]
macro_rules! random_ops {
    ($cb:ident) => { $crate::rows! { $cb "random" RandomOp :
        /// Uniform numbers in [0, 1); those of a complex dtype have both parts so.
        function rand(
            size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, deterministic: Seeded, dtypes: INEXACT, result: Own,
            primitive: Uniform { key: Key }, gradient: none,
            run: rand_body, torch: "-",
            samples: [],
            example: [
                "lucid::manual_seed(7);",
                "let x = rand(&[2, 3], None, None, None)?;",
                "assert!(x.to_vec::<f32>()?.iter().all(|x| (0.0..1.0).contains(x)));",
                "lucid::manual_seed(7);",
                "assert_close(rand(&[2, 3], None, None, None)?, &x);",
            ],
        }
        /// Normal numbers of mean 0 and variance 1; those of a complex dtype have parts of variance 1/2 each.
        function randn(
            size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, deterministic: Seeded, dtypes: INEXACT, result: Own,
            primitive: Normal { key: Key }, gradient: none,
            run: randn_body, torch: "-",
            samples: [],
            example: [
                "let x = randn(&[10000], None, None, None)?;",
                "assert!(x.mean(None, false, None)?.item_f64()?.abs() < 0.1);",
                "assert!((x.std(None, 1, false)?.item_f64()? - 1.0).abs() < 0.1);",
            ],
        }
        /// Integers from `low` to before `high`, evenly spread. An error where the dtype cannot hold them.
        function randint(
            low: Int, high: Int, size: Sizes; generator: OptGenerator = None, dtype: OptDtype = None,
            device: OptDevice = None
        ) -> Tensor {
            call: creates, deterministic: Seeded, dtypes: ORDERED.and(DTypes::UNSIGNED), result: Own,
            primitive: Integers { key: Key, low: i64, high: i64 }, gradient: none,
            run: randint_body, torch: "-",
            samples: [],
            example: [
                "let dice = randint(1, 7, &[100], None, None, None)?;",
                "assert!(dice.to_vec::<i64>()?.iter().all(|n| (1..7).contains(n)));",
            ],
        }
        /// The integers 0 to `n - 1` in random order.
        function randperm(
            n: Int; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, deterministic: Seeded, dtypes: REAL, result: Own,
            run: randperm_body, torch: "-",
            samples: [],
            example: [
                "let (order, _) = randperm(5, None, None, None)?.sort(0, false, true)?;",
                "assert_close(order, [0, 1, 2, 3, 4]);",
            ],
        }
        /// 1 with the probability that the tensor's element gives, or `p` where that is given, else 0. Evaluates, to
        /// check that the elements are within 0 to 1.
        method bernoulli(p: OptFloat = None; generator: OptGenerator = None) -> Tensor {
            out: rule, deterministic: Seeded, dtypes: FLOAT, result: Same,
            run: bernoulli_body, node: |given| ("bernoulli", given.in_place() * given.given), torch: "-",
            samples: [],
            example: ["assert_close(tensor([0.0, 1.0])?.bernoulli(None, None)?, [0.0, 1.0]);"],
        }
        /// [`rand`] in the tensor's shape, dtype and device, where not given.
        function rand_like(
            input: Tensor; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None,
            memory_format: OptFormat = None
        ) -> Tensor {
            call: creates, out: none, deterministic: Seeded, dtypes: INEXACT, result: Own,
            run: rand_like_body, torch: "-",
            samples: [],
            example: [
                "let x = rand_like(&tensor([[1.0f32, 2.0]])?, None, Some(DType::F64), None, None)?;",
                "assert_eq!((x.shape(), x.dtype()), (&[1, 2][..], DType::F64));",
            ],
        }
        /// [`randn`] in the tensor's shape, dtype and device, where not given.
        function randn_like(
            input: Tensor; generator: OptGenerator = None, dtype: OptDtype = None, device: OptDevice = None,
            memory_format: OptFormat = None
        ) -> Tensor {
            call: creates, out: none, deterministic: Seeded, dtypes: INEXACT, result: Own,
            run: randn_like_body, torch: "-",
            samples: [],
            example: [
                "let x = tensor([[1.0, 2.0]])?;",
                "let seeded = || { let g = Generator::new(); g.manual_seed(3); g };",
                "let draw = || randn_like(&x, Some(&seeded()), None, None, None);",
                "let (a, b) = (draw()?, draw()?);",
                "assert_close(a, &b);",
            ],
        }
        /// [`randint`] in the tensor's shape, dtype and device, where not given.
        function randint_like(
            input: Tensor, low: Int, high: Int; generator: OptGenerator = None, dtype: OptDtype = None,
            device: OptDevice = None, memory_format: OptFormat = None
        ) -> Tensor {
            call: creates, out: none, deterministic: Seeded, dtypes: ORDERED, result: Own,
            run: randint_like_body, torch: "-",
            samples: [],
            example: [
                "let x = randint_like(&tensor([[1, 2, 3]])?, 5, 7, None, None, None, None)?;",
                "assert!(x.to_vec::<i64>()?.iter().all(|n| *n == 5 || *n == 6));",
            ],
        }
        /// Normal numbers of the given means and standard deviations, which broadcast; numbers of `size` where both are
        /// numbers. The dtype is that of `mean`, or of `std` where only that is a tensor.
        function normal(
            mean: Operand, std: OptOperand = None, size: OptDims = None; generator: OptGenerator = None,
            dtype: OptDtype = None, device: OptDevice = None
        ) -> Tensor {
            call: creates, out: cast, deterministic: Seeded, dtypes: INEXACT, result: Own,
            run: continuous::normal, node: |given| ("normal", given.tensor("mean") + 2 * given.tensor("std")),
            torch: "-",
            samples: [],
            example: [
                "let x = normal(&tensor([1.0, 100.0])?, Some(0.0.into()), None, None, None, None)?;",
                "assert_close(x, [1.0, 100.0]);",
            ],
        }
        /// Poisson numbers whose means are the elements, in their dtype. Infinite means give infinity; so large ones
        /// that neighbouring floats are further apart than the deviation give themselves. Evaluates.
        ///
        /// Inversion below a mean of 10; above it transformed rejection (Hörmann, "The transformed rejection method for
        /// generating Poisson random variables", 1993).
        method poisson(generator: OptGenerator = None) -> Tensor {
            python: function, out: none, deterministic: Seeded, dtypes: FLOAT, result: Same,
            run: discrete::poisson, torch: "-",
            samples: [],
            example: [
                "assert_close(tensor([0.0, f64::INFINITY])?.poisson(None)?, [0.0, f64::INFINITY]);",
                "let mean = tensor([4.0])?.expand(&[10000])?.poisson(None)?.mean(None, false, None)?;",
                "assert!((mean.item_f64()? - 4.0).abs() < 0.2);",
            ],
        }
        /// How many of `count` trials succeed, each with probability `prob`; both broadcast. What is below 0 counts as
        /// 0, a probability above 1 as 1, and parts of trials not at all. NaN gives NaN. Evaluates.
        ///
        /// Inversion below a mean of 10; above it transformed rejection (Hörmann, "The generation of binomial random
        /// variates", 1993).
        function binomial(count: Tensor, prob: Tensor, generator: OptGenerator = None) -> Tensor {
            out: none, deterministic: Seeded, dtypes: FLOAT, result: Same,
            run: discrete::binomial, torch: "-",
            samples: [],
            example: [
                "let heads = binomial(&tensor([10.0, 10.0, 10.0])?, &tensor([0.0, 0.5, 1.0])?, None)?.to_vec::<f32>()?;",
                "assert!(heads[0] == 0.0 && (0.0..=10.0).contains(&heads[1]) && heads[2] == 10.0);",
            ],
        }
        /// Indices of the last dimension, drawn with probabilities in proportion to the elements of a vector, or of
        /// each row of a matrix: int64, `num_samples` of them. Without `replacement` each index is drawn at most once,
        /// and those of probability zero come last. Evaluates.
        ///
        /// With replacement by inversion of the running sum, in integers; without it by exponential races: the smallest
        /// of `Exp(1) / probability` come first.
        method multinomial(num_samples: Int, replacement: Bool = false; generator: OptGenerator = None) -> Tensor {
            out: own, flags: [no_gradient], deterministic: Seeded, dtypes: FLOAT, result: Index,
            run: discrete::multinomial, torch: "-",
            samples: [],
            example: ["assert_close(tensor([0.0, 1.0, 0.0])?.multinomial(3, true, None)?, [1, 1, 1]);"],
        }
        /// Fills with exponential numbers of rate `lambd`: density `lambd exp(-lambd x)`. They are above 0 for a finite
        /// rate.
        method exponential(lambd: Float = 1.0; generator: OptGenerator = None) -> Tensor {
            in_place: yes, python: in_place, flags: [no_gradient], deterministic: Seeded, dtypes: FLOAT, result: Same,
            run: continuous::exponential, torch: "-",
            samples: [],
            example: [
                "let x = tensor([0.0; 10000])?.exponential(2.0, None)?;",
                "assert!((x.mean(None, false, None)?.item_f64()? - 0.5).abs() < 0.05);",
            ],
        }
        /// Fills with the number of trials up to the first success, each of probability `p`: 1, 2, and so on.
        method geometric(p: Float; generator: OptGenerator = None) -> Tensor {
            in_place: yes, python: in_place, flags: [no_gradient], deterministic: Seeded, dtypes: REAL, result: Same,
            run: discrete::geometric, torch: "-",
            samples: [],
            example: [
                "let x = tensor([0.0; 10000])?.geometric(0.5, None)?;",
                "assert!((x.mean(None, false, None)?.item_f64()? - 2.0).abs() < 0.1);",
            ],
        }
        /// Fills with Cauchy numbers: density `sigma / (π ((x - median)² + sigma²))`.
        method cauchy(median: Float = 0.0, sigma: Float = 1.0; generator: OptGenerator = None) -> Tensor {
            in_place: yes, python: in_place, flags: [no_gradient], deterministic: Seeded, dtypes: FLOAT, result: Same,
            run: continuous::cauchy, torch: "-",
            samples: [],
            example: [
                "let (middle, _) = tensor([0.0; 10001])?.cauchy(3.0, 1.0, None)?.median(None, false)?;",
                "assert!((middle.item_f64()? - 3.0).abs() < 0.2);",
            ],
        }
        /// Fills with the exponentials of normal numbers of this mean and standard deviation.
        method log_normal(mean: Float = 1.0, std: Float = 2.0; generator: OptGenerator = None) -> Tensor {
            in_place: yes, python: in_place, flags: [no_gradient], deterministic: Seeded, dtypes: FLOAT, result: Same,
            run: continuous::log_normal, torch: "-",
            samples: [],
            example: [
                "let (middle, _) = tensor([0.0; 10001])?.log_normal(1.0, 0.5, None)?.log()?.median(None, false)?;",
                "assert!((middle.item_f64()? - 1.0).abs() < 0.1);",
            ],
        }
        /// Gamma numbers of the concentrations that the elements are, and of rate 1. They have gradients in the
        /// concentrations, by implicit reparameterisation. Evaluates.
        ///
        /// Rejection from Student's t distribution (Best, "Letters to the editors", 1978).
        function _standard_gamma(input: Tensor; generator: OptGenerator = None) -> Tensor {
            out: none, deterministic: Seeded, dtypes: FLOAT, result: Same,
            primitive: StandardGamma, saves: Both, gradient: |c, g| [g * &_standard_gamma_grad(&c.x(0)?, &c.out()?)?],
            run: reparameterized::standard_gamma, torch: "-",
            samples: [],
            example: [
                "let mean = _standard_gamma(&tensor([4.0])?.expand(&[10000])?, None)?.mean(None, false, None)?;",
                "assert!((mean.item_f64()? - 4.0).abs() < 0.1);",
            ],
        }
        /// The derivatives of gamma numbers in their concentrations: `-(∂P(input, output)/∂input) / p(output)`, of the
        /// distribution function `P` and the density `p`. Computed on the CPU.
        function _standard_gamma_grad(input: Tensor, output: Tensor) -> Tensor {
            out: none, dtypes: FLOAT, result: Same,
            primitive: StandardGammaGrad,
            gradient: |c, g| [
                reparameterized::no_second("_standard_gamma_grad"),
                reparameterized::no_second("_standard_gamma_grad"),
            ],
            run: reparameterized::standard_gamma_grad, torch: "-",
            samples: [],
            example: [
                "assert_close(_standard_gamma_grad(&tensor([1.0, 2.0])?, &tensor([1.0, 2.0])?)?, [1.17356, 1.08621]);",
            ],
        }
        /// Numbers of the Dirichlet distributions whose concentrations the last dimension holds; they sum to 1 there.
        /// They have gradients in the concentrations, by implicit reparameterisation. Evaluates.
        function _sample_dirichlet(input: Tensor; generator: OptGenerator = None) -> Tensor {
            out: none, deterministic: Seeded, dtypes: FLOAT, result: Same,
            primitive: SampleDirichlet, saves: Both,
            gradient: |c, g| [reparameterized::sample_dirichlet_gradient(g, &c.out()?, &c.x(0)?)],
            run: reparameterized::sample_dirichlet, torch: "-",
            samples: [],
            example: [
                "let x = _sample_dirichlet(&tensor([[0.5, 0.5], [3.0, 1.0]])?, None)?;",
                "assert_close(x.sum(Some(&[-1]), false, None)?, [1.0, 1.0]);",
            ],
        }
        /// The derivatives of numbers of Dirichlet distributions in their own concentrations `alpha`, of the sum
        /// `total`, over `1 - x`. Computed on the CPU.
        function _dirichlet_grad(x: Tensor, alpha: Tensor, total: Tensor) -> Tensor {
            out: none, dtypes: FLOAT, result: Same,
            primitive: DirichletGrad,
            gradient: |c, g| [
                reparameterized::no_second("_dirichlet_grad"),
                reparameterized::no_second("_dirichlet_grad"),
                reparameterized::no_second("_dirichlet_grad"),
            ],
            run: reparameterized::dirichlet_grad, torch: "-",
            samples: [],
            example: [
                "let slope = _dirichlet_grad(&tensor([0.5])?, &tensor([1.0])?, &tensor([2.0])?)?;",
                "assert_close(slope, [2f64.ln()]);",
            ],
        }
        /// Angles of von Mises distributions around 0 with the concentrations that the elements are. They have
        /// gradients in the concentrations, by implicit reparameterisation. Evaluates.
        ///
        /// Best and Fisher, "Efficient simulation of the von Mises distribution", 1979.
        function _standard_von_mises(input: Tensor; generator: OptGenerator = None) -> Tensor {
            out: none, deterministic: Seeded, dtypes: FLOAT, result: Same,
            primitive: StandardVonMises, saves: Both,
            gradient: |c, g| [g * &reparameterized::von_mises_gradient(&c.x(0)?, &c.out()?)?],
            run: reparameterized::standard_von_mises, torch: "-",
            samples: [],
            example: [
                "let x = _standard_von_mises(&tensor([9.0])?.expand(&[10000])?, None)?;",
                "assert!((x.cos()?.mean(None, false, None)?.item_f64()? - 0.9429).abs() < 0.01);",
            ],
        }
    }};
}
random_ops!(define_primitives);

impl RandomOp {
    /// Does the primitive stand for a sample that has been drawn, of its parameter and that sample?
    pub fn is_sample(&self) -> bool {
        matches!(self, RandomOp::StandardGamma | RandomOp::SampleDirichlet | RandomOp::StandardVonMises)
    }
}

/// Random bits of a uniform number: as many as the dtype's significand holds.
pub fn uniform_bits(dtype: DType) -> u32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F64 => 53,
        _ => 24,
    }
}

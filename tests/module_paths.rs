//! Bad input to every layer and loss of `lucid::nn`, two structs deep in a model: the error says where the module is.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use lucid::nn::*;
use lucid::{tensor, DType, Device, Result, Tensor};
use std::panic::{catch_unwind, AssertUnwindSafe};

const ON: Device = Device::Cpu;

#[derive(Module)]
struct Block<M> {
    part: M,
}

#[derive(Module)]
struct Model<M> {
    encoder: Vec<Block<M>>,
}

/// What no layer takes, of one kind or another: ranks, sizes and dtypes.
fn bad_inputs() -> Result<Vec<Tensor>> {
    let shapes: [&[isize]; 8] = [&[], &[3], &[2, 3], &[2, 3, 3], &[2, 3, 3, 3], &[2, 3, 3, 3, 3], &[2; 6], &[0, 3]];
    let mut all = Vec::new();
    for shape in shapes {
        let x = Tensor::randn(shape)?;
        all.extend([x.cast(DType::Bool)?, x.cast(DType::F8E4M3FN)?, x.cast(DType::C64)?, x.cast(DType::I64)?, x]);
    }
    all.push(tensor([9, -1])?);
    Ok(all)
}

/// How often the module refused something; that nothing panics, and that each error names its place.
fn refusals<M: Module>(name: &str, part: M, forward: impl Fn(&M, &Tensor) -> Result<()>, bad: &[Tensor]) -> usize {
    let model = Model { encoder: vec![Block { part }] };
    // An optimizer lists the parameters; so does loading a state dict.
    model.parameters();
    judged(name, &|x| forward(&model.encoder[0].part, x), bad)
}

fn judged(name: &str, forward: &dyn Fn(&Tensor) -> Result<()>, bad: &[Tensor]) -> usize {
    let mut refused = 0;
    for x in bad {
        let made = catch_unwind(AssertUnwindSafe(|| forward(x)));
        let Ok(made) = made else { panic!("{name} panicked at {:?} {:?}", x.shape(), x.dtype()) };
        if let Err(error) = made {
            let text = error.to_string();
            assert!(text.starts_with("encoder.0.part"), "{name} of {:?} {:?}: {text}", x.shape(), x.dtype());
            assert_ne!(error.root().to_string(), text);
            refused += 1;
        }
    }
    refused
}

#[test]
fn errors_of_forward_say_where_the_module_is() -> Result<()> {
    let bad = bad_inputs()?;
    // Modules of one input.
    macro_rules! check {
        ($($made:expr),* $(,)?) => {
            let modules: Vec<(&str, Box<dyn Forward>)> = vec![$((stringify!($made), Box::new($made))),*];
            for (name, part) in modules {
                let refused = refusals(name, part, |m, x| m.forward(x).map(drop), &bad);
                assert!(refused > 0, "{name} took everything");
            }
        };
    }
    // Modules that are called in another way.
    macro_rules! check_call {
        ($($made:expr, |$m:ident, $x:ident| $call:expr;)*) => {$({
            let refused = refusals(stringify!($made), $made, |$m, $x| $call.map(drop), &bad);
            assert!(refused > 0, "{} took everything", stringify!($made));
        })*};
    }
    let windows = Windows::new(2);
    check![
        Linear::new(4, 3, ON)?,
        FusedLinear::new(4, 3, ON)?,
        QuantizedLinear::new(64, 3, ON)?,
        QuantizedEmbedding::new(4, 64, ON)?,
        Conv1d::new(4, 2, 3, ON)?,
        Conv2d::options(4, 2, 3).padding_mode(PaddingMode::Reflect).padding(2).build(ON)?,
        Conv3d::new(4, 2, 3, ON)?,
        ConvTranspose1d::new(4, 2, 3, ON)?,
        ConvTranspose2d::new(4, 2, 3, ON)?,
        ConvTranspose3d::new(4, 2, 3, ON)?,
        MaxPool1d::new(2),
        MaxPool2d::new(2),
        MaxPool3d::new(2),
        AvgPool1d::new(2),
        AvgPool2d::new(2),
        AvgPool3d::new(2),
        LpPool1d::new(2),
        LpPool2d::new(2),
        LpPool3d::new(2),
        AdaptiveAvgPool1d::new(2)?,
        AdaptiveAvgPool2d::new(2)?,
        AdaptiveAvgPool3d::new(2)?,
        AdaptiveMaxPool1d::new(2)?,
        AdaptiveMaxPool2d::new(2)?,
        AdaptiveMaxPool3d::new(2)?,
        FractionalMaxPool2d::sizes(2, 9)?,
        FractionalMaxPool3d::ratios(2, [0.1; 3])?,
        BatchNorm1d::new(4, ON)?,
        BatchNorm2d::new(4, ON)?,
        BatchNorm3d::new(4, ON)?,
        SyncBatchNorm::new(4, ON)?,
        InstanceNorm1d::new(4, ON)?,
        InstanceNorm2d::new(4, ON)?,
        InstanceNorm3d::new(4, ON)?,
        LayerNorm::new(4, ON)?,
        RmsNorm::new(4, ON)?,
        GroupNorm::new(2, 4, ON)?,
        LocalResponseNorm::new(3),
        CrossMapLrn2d::new(3),
        Dropout1d::new(0.5)?,
        Dropout2d::new(0.5)?,
        Dropout3d::new(0.5)?,
        Embedding::new(4, 3, ON)?,
        EmbeddingBag::new(4, 3, ON)?,
        RotaryEmbedding::new(8, ON)?,
        SinusoidalEmbedding::new(0),
        SinusoidalEmbedding2d::new(6),
        TimestepEmbedding::new(0, ON)?,
        Upsample::<1>::scale(2.0),
        Upsample::<2>::scale(2.0),
        Upsample::<3>::scale(2.0),
        PixelShuffle::new(2)?,
        PixelUnshuffle::new(2)?,
        ChannelShuffle::new(2)?,
        Unfold::new(windows),
        Fold::new(3, windows),
        ZeroPad1d::new(-9),
        ZeroPad2d::new(-9),
        ZeroPad3d::new(-9),
        ConstantPad2d::new(-9),
        ReflectionPad1d::new(9),
        ReflectionPad2d::new(9),
        ReflectionPad3d::new(9),
        ReplicationPad1d::new(1),
        ReplicationPad2d::new(1),
        ReplicationPad3d::new(1),
        CircularPad1d::new(9),
        CircularPad2d::new(9),
        CircularPad3d::new(9),
        Flatten::new(0, 9),
        Unflatten::new(1, &[7, 11])?,
        PRelu::new(4, ON)?,
        RRelu::default(),
        Relu::new(),
        Relu6::new(),
        Sigmoid::new(),
        Tanh::new(),
        Silu::new(),
        Mish::new(),
        Hardswish::new(),
        Hardsigmoid::new(),
        Selu::new(),
        LogSigmoid::new(),
        Softsign::new(),
        Tanhshrink::new(),
        Softmax2d::new(),
        Gelu::new(),
        LeakyRelu::new(),
        Elu::new(),
        Celu::new().alpha(0.0),
        Hardtanh::new().min_val(2.0).max_val(1.0),
        Softplus::new(),
        Softshrink::new().lambd(-1.0),
        Hardshrink::new(),
        Threshold::new(),
        Glu::new().dim(7),
        Softmax::new().dim(7),
        Softmin::new().dim(7),
        LogSoftmax::new().dim(7),
        Sequential::new().add(Linear::new(4, 3, ON)?).add(Softmax::new()).add(|x: &Tensor| x.squeeze(Some(&[9]))),
    ];
    let free = AttentionMask::default();
    let encoder = TransformerEncoderLayer::options(4, 2).dim_feedforward(8);
    let decoder = TransformerDecoderLayer::options(4, 2).dim_feedforward(8);
    check_call! {
        Bilinear::new(4, 4, 2, ON)?, |m, x| m.forward(x, x);
        MaxUnpool1d::new(2), |m, x| m.forward(x, x, None);
        MaxUnpool2d::new(2), |m, x| m.forward(x, x, None);
        MaxUnpool3d::new(2), |m, x| m.forward(x, x, None);
        MaxPool2d::new(2), |m, x| m.with_indices(x);
        EmbeddingBag::new(4, 3, ON)?, |m, x| m.bags(x, x);
        Rnn::new(4, 3, ON)?, |m, x| m.forward(x, None);
        Lstm::options(4, 3).num_layers(2).build(ON)?, |m, x| m.forward(x, None);
        Gru::new(4, 3, ON)?, |m, x| m.forward(x, Some(x));
        RnnCell::new(4, 3, ON)?, |m, x| m.forward(x, None);
        LstmCell::new(4, 3, ON)?, |m, x| m.forward(x, Some((x, x)));
        GruCell::new(4, 3, ON)?, |m, x| m.forward(x, Some(x));
        MultiheadAttention::new(4, 2, ON)?, |m, x| m.forward(x, x, x, free);
        encoder.build(ON)?, |m, x| m.forward(x, free);
        decoder.build(ON)?, |m, x| m.forward(x, x, free, free);
        TransformerEncoder::new(&encoder, 2, None, ON)?, |m, x| m.forward(x, free);
        TransformerDecoder::new(&decoder, 2, None, ON)?, |m, x| m.forward(x, x, free, free);
        Transformer::options(4, 2).dim_feedforward(8).build(ON)?, |m, x| m.forward(x, x, free, free, free);
        CosineSimilarity::new().dim(9), |m, x| m.forward(x, x);
        PairwiseDistance::new(), |m, x| m.forward(x, &tensor([1.0; 7])?);
        RotaryEmbedding::new(2, ON)?, |m, x| m.at(x, &tensor([1.0; 7])?);
        CtcLoss::new(), |m, x| m.forward(x, x, &[1], &[1]);
        LinearCrossEntropyLoss::new(4, 3, ON)?, |m, x| m.forward(x, x);
        AdaptiveLogSoftmaxWithLoss::new(4, 9, [3], ON)?, |m, x| m.forward(x, x);
        AdaptiveLogSoftmaxWithLoss::new(4, 9, [3], ON)?, |m, x| m.predict(x);
        TripletMarginWithDistanceLoss::default().margin(0.0), |m, x| m.forward(x, x, x);
    }
    // Losses of a target that fits no input.
    let odd = Tensor::randn([7, 5])?;
    macro_rules! check_loss {
        ($($Loss:ident)*) => { check_call! { $($Loss::new(), |m, x| m.forward(x, &odd);)* } };
    }
    check_loss!(MseLoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss NllLoss BceLoss BceWithLogitsLoss KlDivLoss);
    check_loss!(PoissonNllLoss HingeEmbeddingLoss SoftMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss MultiLabelMarginLoss);
    check_call! {
        GaussianNllLoss::new(), |m, x| m.forward(x, x, &odd);
        MarginRankingLoss::new(), |m, x| m.forward(x, &odd, x);
        CosineEmbeddingLoss::new(), |m, x| m.forward(x, &odd, x);
        TripletMarginLoss::new(), |m, x| m.forward(x, &odd, x);
    }
    // This one takes tensors of any kind, where it does not act.
    assert_eq!(refusals("Dropout", Dropout::new(0.0)?, |m, x| m.forward(x).map(drop), &bad), 0);
    Ok(())
}

#[test]
fn errors_of_constructors_name_the_layer_or_the_field() {
    type Case<'a> = (&'a str, &'a str, Box<dyn Fn() -> Result<()> + 'a>);
    fn judged((kind, text, make): Case<'_>) {
        let Ok(made) = catch_unwind(AssertUnwindSafe(&make)) else { panic!("{text} panicked") };
        let alone = made.expect_err(text).to_string();
        assert!(alone.starts_with(&format!("{kind}: ")), "{text}: {alone}");
        let nested = field("encoder", field("part", make())).expect_err("it was refused before").to_string();
        let path = match kind.starts_with(|first: char| first.is_ascii_uppercase()) {
            true => "encoder.part: ".to_string(),
            false => format!("encoder.part.{kind}: "),
        };
        assert!(nested.starts_with(&path), "{text}: {nested}");
    }
    macro_rules! check {
        ($($kind:literal, $made:expr;)*) => {
            let cases: Vec<Case<'_>> = vec![$(($kind, stringify!($made), Box::new(|| $made.map(drop)))),*];
            cases.into_iter().for_each(judged);
        };
    }
    let wide = TransformerEncoderLayer::options(5, 2);
    check! {
        "Linear", Linear::new(usize::MAX, 2, ON);
        "FusedLinear", FusedLinear::new(usize::MAX, 2, ON);
        "Bilinear", Bilinear::new(0, 2, 2, ON);
        "QuantizedLinear", QuantizedLinear::new(65, 2, ON);
        "QuantizedEmbedding", QuantizedEmbedding::options(4, 64).bits(7).build(ON);
        "Conv", Conv2d::options(3, 4, 3).groups(2).build(ON);
        "ConvTranspose", ConvTranspose1d::options(3, 4, 3).groups(2).build(ON);
        "BatchNorm", BatchNorm2d::new(usize::MAX, ON);
        "InstanceNorm", InstanceNorm1d::options(usize::MAX).affine(true).build(ON);
        "GroupNorm", GroupNorm::new(3, 4, ON);
        "LayerNorm", LayerNorm::new(usize::MAX, ON);
        "RmsNorm", RmsNorm::new(usize::MAX, ON);
        "Embedding", Embedding::options(4, 3).padding_idx(9).build(ON);
        "EmbeddingBag", EmbeddingBag::options(4, 3).padding_idx(9).build(ON);
        "PRelu", PRelu::new(usize::MAX, ON);
        "RRelu", RRelu::new(2.0, 1.0);
        "Dropout", Dropout::new(2.0);
        "AlphaDropout", AlphaDropout::new(f64::NAN);
        "AdaptiveAvgPool", AdaptiveAvgPool2d::new(-1);
        "FractionalMaxPool", FractionalMaxPool2d::sizes(2, 0);
        "FractionalMaxPool", FractionalMaxPool2d::ratios(2, [0.0, 0.5]);
        "Upsample", Upsample::<2>::size(0);
        "PixelShuffle", PixelShuffle::new(0);
        "Unflatten", Unflatten::new(1, ());
        "Rnn", Rnn::options(4, 3).dropout(2.0).build(ON);
        "Lstm", Lstm::options(4, 3).proj_size(3).build(ON);
        "Gru", Gru::options(4, 3).num_layers(0).build(ON);
        "LstmCell", LstmCell::new(usize::MAX, 3, ON);
        "RotaryEmbedding", RotaryEmbedding::new(3, ON);
        "linear1", TimestepEmbedding::new(usize::MAX, ON);
        "MultiheadAttention", MultiheadAttention::new(5, 2, ON);
        "LinearCrossEntropyLoss", LinearCrossEntropyLoss::options(4, 3).label_smoothing(2.0).build(ON);
        "AdaptiveLogSoftmaxWithLoss", AdaptiveLogSoftmaxWithLoss::new(4, 9, [3, 3], ON);
        "self_attn", wide.build(ON);
        "layers.0.self_attn", TransformerEncoder::new(&wide, 2, None, ON);
        "encoder.layers.0.self_attn", Transformer::new(5, 2, ON);
        "encoder.layers.0.linear1", Transformer::options(4, 2).dim_feedforward(usize::MAX).build(ON);
    }
}

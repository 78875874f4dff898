//! A module of each class of Python's `lucid.nn`, to be run on weights and inputs from there.
//!
//! `architectures modules DEVICE FOLDER` reads every `NAME.safetensors` in the folder, with `model.…` (a state dict) and
//! `input.0`, `input.1`, …, and writes `NAME.out` beside it: `model.…`, the state dict, and `out.0`, `out.1`, …, what the module
//! gives in evaluation mode. tests/python/integration/test_modules.py makes the files, and compares.

use lucid::nn::*;
use lucid::prelude::{checkpoint, no_grad};
use lucid::{DType, Device, Error, Result, Tensor};
use std::collections::BTreeMap;
use std::path::Path;

/// A module, and how it is called.
trait Callable {
    fn module(&mut self) -> &mut dyn Module;
    fn call(&self, x: &[Tensor]) -> Result<Vec<Tensor>>;
}

struct Called<M>(M, fn(&M, &[Tensor]) -> Result<Vec<Tensor>>);

impl<M: Module> Callable for Called<M> {
    fn module(&mut self) -> &mut dyn Module {
        &mut self.0
    }
    fn call(&self, x: &[Tensor]) -> Result<Vec<Tensor>> {
        (self.1)(&self.0, x)
    }
}

fn one<M: Forward>(module: M) -> Box<dyn Callable> {
    Box::new(Called(module, |m, x| Ok(vec![m.forward(&x[0])?])))
}

fn by<M: Module>(module: M, call: fn(&M, &[Tensor]) -> Result<Vec<Tensor>>) -> Box<dyn Callable> {
    Box::new(Called(module, call))
}

/// A module of two inputs.
macro_rules! two {
    ($made:expr) => {
        by($made, |m, x| Ok(vec![m.forward(&x[0], &x[1])?]))
    };
}

/// A module of three.
macro_rules! three {
    ($made:expr) => {
        by($made, |m, x| Ok(vec![m.forward(&x[0], &x[1], &x[2])?]))
    };
}

fn activation(name: &str) -> Option<Result<Box<dyn Callable>>> {
    Some(Ok(match name {
        "CELU" => one(Celu::new().alpha(0.7)),
        "ELU" => one(Elu::new().alpha(0.7)),
        "GELU" => one(Gelu::new().approximate(Approximate::Tanh)),
        "GLU" => one(Glu::new()),
        "SELU" => one(Selu::new()),
        "Hardshrink" => one(Hardshrink::new().lambd(0.4)),
        "Hardsigmoid" => one(Hardsigmoid::new()),
        "Hardswish" => one(Hardswish::new()),
        "Hardtanh" => one(Hardtanh::new().min_val(-0.5).max_val(0.6)),
        "LeakyReLU" => one(LeakyRelu::new().negative_slope(0.2)),
        "LogSigmoid" => one(LogSigmoid::new()),
        "LogSoftmax" => one(LogSoftmax::new().dim(1)),
        "Mish" => one(Mish::new()),
        "RReLU" => return Some(RRelu::new(0.1, 0.3).map(one)),
        "ReLU" => one(Relu::new()),
        "ReLU6" => one(Relu6::new()),
        "SiLU" => one(Silu::new()),
        "Sigmoid" => one(Sigmoid::new()),
        "Softmax" => one(Softmax::new().dim(1)),
        "Softmax2d" => one(Softmax2d::new()),
        "Softmin" => one(Softmin::new().dim(1)),
        "Softplus" => one(Softplus::new().beta(2.0).threshold(3.0)),
        "Softshrink" => one(Softshrink::new().lambd(0.4)),
        "Softsign" => one(Softsign::new()),
        "Tanh" => one(Tanh::new()),
        "Tanhshrink" => one(Tanhshrink::new()),
        "Threshold" => one(Threshold::new().threshold(0.1).value(-2.0)),
        _ => return None,
    }))
}

fn loss(name: &str, on: Device) -> Option<Result<Box<dyn Callable>>> {
    Some(Ok(match name {
        "BCELoss" => two!(BceLoss::new()),
        "BCEWithLogitsLoss" => two!(BceWithLogitsLoss::new().reduction(Reduction::Sum)),
        "CTCLoss" => by(CtcLoss::new(), |m, x| Ok(vec![m.forward(&x[0], &x[1], &[6, 5], &[3, 2])?])),
        "CosineEmbeddingLoss" => three!(CosineEmbeddingLoss::new().margin(0.1)),
        "CrossEntropyLoss" => two!(CrossEntropyLoss::new().label_smoothing(0.1)),
        "GaussianNLLLoss" => three!(GaussianNllLoss::new().full(true)),
        "HingeEmbeddingLoss" => two!(HingeEmbeddingLoss::new()),
        "HuberLoss" => two!(HuberLoss::new().delta(0.5)),
        "KLDivLoss" => two!(KlDivLoss::new().batch_mean(true)),
        "L1Loss" => two!(L1Loss::new().reduction(Reduction::None)),
        "LinearCrossEntropyLoss" => {
            let options = LinearCrossEntropyLoss::options(4, 3).places([2]).bias(true).label_smoothing(0.1);
            return Some(options.build(on).map(|made| two!(made)));
        }
        "MSELoss" => two!(MseLoss::new()),
        "MarginRankingLoss" => three!(MarginRankingLoss::new().margin(0.2)),
        "MultiLabelMarginLoss" => two!(MultiLabelMarginLoss::new()),
        "MultiLabelSoftMarginLoss" => two!(MultiLabelSoftMarginLoss::new()),
        "MultiMarginLoss" => two!(MultiMarginLoss::new().p(2)),
        "NLLLoss" => two!(NllLoss::new()),
        "PoissonNLLLoss" => two!(PoissonNllLoss::new().full(true)),
        "SmoothL1Loss" => two!(SmoothL1Loss::new().beta(0.5)),
        "SoftMarginLoss" => two!(SoftMarginLoss::new()),
        "TripletMarginLoss" => three!(TripletMarginLoss::new().swap(true)),
        "TripletMarginWithDistanceLoss" => three!(TripletMarginWithDistanceLoss::default().margin(0.5)),
        "AdaptiveLogSoftmaxWithLoss" => {
            let options = AdaptiveLogSoftmaxWithLoss::options(8, 20, [5, 10]).div_value(2.0).head_bias(true);
            return Some(options.build(on).map(|made| {
                by(made, |m: &AdaptiveLogSoftmaxWithLoss, x| {
                    let (each, mean) = m.forward(&x[0], &x[1])?;
                    Ok(vec![each, mean])
                })
            }));
        }
        _ => return None,
    }))
}

fn pool(name: &str) -> Option<Result<Box<dyn Callable>>> {
    Some(match name {
        "AdaptiveAvgPool1d" => AdaptiveAvgPool1d::new(3).map(one),
        "AdaptiveAvgPool2d" => AdaptiveAvgPool2d::new([3, 2]).map(one),
        "AdaptiveAvgPool3d" => AdaptiveAvgPool3d::new(2).map(one),
        "AdaptiveMaxPool1d" => AdaptiveMaxPool1d::new(3).map(one),
        "AdaptiveMaxPool2d" => AdaptiveMaxPool2d::new([3, 2]).map(one),
        "AdaptiveMaxPool3d" => AdaptiveMaxPool3d::new(2).map(one),
        "AvgPool1d" => Ok(one(AvgPool1d::new(3).stride(2).padding(1))),
        "AvgPool2d" => Ok(one(AvgPool2d::new([2, 3]).ceil_mode(true).count_include_pad(false).padding(1))),
        "AvgPool3d" => Ok(one(AvgPool3d::new(2))),
        "LPPool1d" => Ok(one(LpPool1d::new(3).norm_type(2.0))),
        "LPPool2d" => Ok(one(LpPool2d::new(2).norm_type(3.0))),
        "LPPool3d" => Ok(one(LpPool3d::new(2).norm_type(2.0))),
        "MaxPool1d" => Ok(one(MaxPool1d::new(3).stride(2).padding(1))),
        "MaxPool2d" => Ok(one(MaxPool2d::new([2, 3]).dilation([2, 1]).ceil_mode(true))),
        "MaxPool3d" => Ok(one(MaxPool3d::new(2))),
        "MaxUnpool1d" => Ok(by(MaxUnpool1d::new(2), |m, x| Ok(vec![m.forward(&x[0], &x[1], None)?]))),
        "MaxUnpool2d" => Ok(by(MaxUnpool2d::new(2), |m, x| Ok(vec![m.forward(&x[0], &x[1], None)?]))),
        "MaxUnpool3d" => Ok(by(MaxUnpool3d::new(2), |m, x| Ok(vec![m.forward(&x[0], &x[1], None)?]))),
        "FractionalMaxPool2d" => FractionalMaxPool2d::sizes(2, [4, 3]).map(|made| {
            by(made, |m, x| {
                let (values, places) = m.clone().random_samples(x[1].clone()).with_indices(&x[0])?;
                Ok(vec![values, places])
            })
        }),
        "FractionalMaxPool3d" => FractionalMaxPool3d::ratios(2, [0.5; 3]).map(|made| {
            by(made, |m, x| {
                let (values, places) = m.clone().random_samples(x[1].clone()).with_indices(&x[0])?;
                Ok(vec![values, places])
            })
        }),
        _ => return None,
    })
}

fn image(name: &str) -> Option<Result<Box<dyn Callable>>> {
    Some(match name {
        "ChannelShuffle" => ChannelShuffle::new(2).map(one),
        "PixelShuffle" => PixelShuffle::new(2).map(one),
        "PixelUnshuffle" => PixelUnshuffle::new(2).map(one),
        "CircularPad1d" => Ok(one(CircularPad1d::new([[1, 2]]))),
        "CircularPad2d" => Ok(one(CircularPad2d::new(1))),
        "CircularPad3d" => Ok(one(CircularPad3d::new(1))),
        "ConstantPad1d" => Ok(one(ConstantPad1d::new(1).value(2.5))),
        "ConstantPad2d" => Ok(one(ConstantPad2d::new([[1, 2], [0, 1]]).value(-1.0))),
        "ConstantPad3d" => Ok(one(ConstantPad3d::new(1).value(0.5))),
        "ReflectionPad1d" => Ok(one(ReflectionPad1d::new(2))),
        "ReflectionPad2d" => Ok(one(ReflectionPad2d::new([[1, 2], [0, 1]]))),
        "ReflectionPad3d" => Ok(one(ReflectionPad3d::new(1))),
        "ReplicationPad1d" => Ok(one(ReplicationPad1d::new(2))),
        "ReplicationPad2d" => Ok(one(ReplicationPad2d::new([[1, 2], [0, 1]]))),
        "ReplicationPad3d" => Ok(one(ReplicationPad3d::new(1))),
        "ZeroPad1d" => Ok(one(ZeroPad1d::new(1))),
        "ZeroPad2d" => Ok(one(ZeroPad2d::new([[1, -1], [2, 0]]))),
        "ZeroPad3d" => Ok(one(ZeroPad3d::new(1))),
        "Upsample" => Ok(one(Upsample::<2>::scale(1.5).mode(Interpolation::Cubic))),
        "UpsamplingBilinear2d" => Ok(one(Upsample::<2>::scale(2.0).mode(Interpolation::Linear).align_corners(true))),
        "UpsamplingNearest2d" => Ok(one(Upsample::<2>::scale(2.0))),
        "Unfold" => Ok(one(Unfold::new(Windows::new(2).padding(1).stride(2)))),
        "Fold" => Ok(one(Fold::new([4, 5], Windows::new(2).padding(1).stride(2)))),
        "Flatten" => Ok(one(Flatten::default())),
        "Unflatten" => Unflatten::new(1, &[2, -1]).map(one),
        "Identity" => Ok(one(Identity)),
        "Dropout" => Dropout::new(0.5).map(one),
        "Dropout1d" => Dropout1d::new(0.5).map(one),
        "Dropout2d" => Dropout2d::new(0.5).map(one),
        "Dropout3d" => Dropout3d::new(0.5).map(one),
        "AlphaDropout" => AlphaDropout::new(0.5).map(one),
        "FeatureAlphaDropout" => FeatureAlphaDropout::new(0.5).map(one),
        "CrossMapLRN2d" => Ok(one(CrossMapLrn2d::new(4).alpha(0.5).k(2.0))),
        "LocalResponseNorm" => Ok(one(LocalResponseNorm::new(3).alpha(0.5))),
        "CosineSimilarity" => Ok(two!(CosineSimilarity::new())),
        "PairwiseDistance" => Ok(two!(PairwiseDistance::new().p(3.0).keepdim(true))),
        "SinusoidalEmbedding" => Ok(one(SinusoidalEmbedding::new(6))),
        "SinusoidalEmbedding2D" => Ok(one(SinusoidalEmbedding2d::new(8))),
        _ => return None,
    })
}

fn recurrent(name: &str, on: Device) -> Option<Result<Box<dyn Callable>>> {
    Some(match name {
        "RNN" => Rnn::options(4, 3).nonlinearity(Nonlinearity::Relu).build(on).map(|made| {
            by(made, |m: &Rnn, x| {
                let (out, last) = m.forward(&x[0], Some(&x[1]))?;
                Ok(vec![out, last])
            })
        }),
        "GRU" => Gru::options(4, 3).num_layers(2).bidirectional(true).build(on).map(|made| {
            by(made, |m: &Gru, x| {
                let (out, last) = m.forward(&x[0], None)?;
                Ok(vec![out, last])
            })
        }),
        "LSTM" => Lstm::options(4, 3).num_layers(2).proj_size(2).batch_first(true).build(on).map(|made| {
            by(made, |m: &Lstm, x| {
                let (out, (h, c)) = m.forward(&x[0], None)?;
                Ok(vec![out, h, c])
            })
        }),
        "RNNCell" => {
            RnnCell::new(4, 3, on).map(|made| by(made, |m: &RnnCell, x| Ok(vec![m.forward(&x[0], Some(&x[1]))?])))
        }
        "GRUCell" => {
            GruCell::new(4, 3, on).map(|made| by(made, |m: &GruCell, x| Ok(vec![m.forward(&x[0], Some(&x[1]))?])))
        }
        "LSTMCell" => LstmCell::new(4, 3, on).map(|made| {
            by(made, |m: &LstmCell, x| {
                let (h, c) = m.forward(&x[0], Some((&x[1], &x[2])))?;
                Ok(vec![h, c])
            })
        }),
        _ => return None,
    })
}

fn attention(name: &str, on: Device) -> Option<Result<Box<dyn Callable>>> {
    Some(match name {
        "MultiheadAttention" => MultiheadAttention::options(8, 2).kdim(5).vdim(6).build(on).map(|made| {
            by(made, |m: &MultiheadAttention, x| {
                let (out, weights) = m.with_weights(&x[0], &x[1], &x[2], AttentionMask::default())?;
                Ok(vec![out, weights])
            })
        }),
        "TransformerEncoderLayer" => {
            let options = TransformerEncoderLayer::options(8, 2).dim_feedforward(12).activation(FeedForward::Gelu);
            options.norm_first(true).build(on).map(|made| {
                by(made, |m: &TransformerEncoderLayer, x| Ok(vec![m.forward(&x[0], AttentionMask::default())?]))
            })
        }
        "TransformerDecoderLayer" => {
            TransformerDecoderLayer::options(8, 2).dim_feedforward(12).batch_first(true).build(on).map(|made| {
                by(made, |m: &TransformerDecoderLayer, x| {
                    Ok(vec![m.forward(&x[0], &x[1], AttentionMask::default(), AttentionMask::default())?])
                })
            })
        }
        "TransformerEncoder" => LayerNorm::new(8, on).and_then(|norm| {
            let layer = TransformerEncoderLayer::options(8, 2).dim_feedforward(12);
            let made = TransformerEncoder::new(&layer, 2, Some(norm), on)?;
            Ok(by(made, |m: &TransformerEncoder, x| Ok(vec![m.forward(&x[0], AttentionMask::default())?])))
        }),
        "TransformerDecoder" => {
            let layer = TransformerDecoderLayer::options(8, 2).dim_feedforward(12);
            TransformerDecoder::new(&layer, 2, None, on).map(|made| {
                by(made, |m: &TransformerDecoder, x| {
                    Ok(vec![m.forward(&x[0], &x[1], AttentionMask::default(), AttentionMask::default())?])
                })
            })
        }
        "Transformer" => {
            let options = Transformer::options(8, 2).num_encoder_layers(1).num_decoder_layers(2).dim_feedforward(12);
            options.build(on).map(|made| {
                by(made, |m: &Transformer, x| {
                    let free = AttentionMask::default();
                    Ok(vec![m.forward(&x[0], &x[1], free, free, free)?])
                })
            })
        }
        _ => return None,
    })
}

fn layer(name: &str, on: Device) -> Option<Result<Box<dyn Callable>>> {
    Some(match name {
        "Linear" => Linear::new(4, 3, on).map(one),
        "FusedLinear" => FusedLinear::options(4, 3).activation(FeedForward::Gelu).build(on).map(one),
        "QuantizedLinear" => QuantizedLinear::options(64, 3).group_size(32).bits(8).build(on).map(one),
        "QuantizedEmbedding" => QuantizedEmbedding::options(5, 64).build(on).map(one),
        "Bilinear" => Bilinear::new(4, 3, 2, on).map(|made| two!(made)),
        "Conv1d" => Conv1d::options(4, 6, 3).same().groups(2).build(on).map(one),
        "Conv2d" => Conv2d::options(4, 6, [3, 2]).stride(2).padding([1, 0]).dilation([1, 2]).build(on).map(one),
        "Conv3d" => {
            Conv3d::options(4, 2, 3).padding(1).padding_mode(PaddingMode::Reflect).bias(false).build(on).map(one)
        }
        "ConvTranspose1d" => ConvTranspose1d::options(4, 2, 3).stride(2).output_padding(1).build(on).map(one),
        "ConvTranspose2d" => ConvTranspose2d::options(4, 6, 3).groups(2).padding(1).build(on).map(one),
        "ConvTranspose3d" => ConvTranspose3d::options(4, 2, 2).dilation(2).build(on).map(one),
        "BatchNorm1d" => BatchNorm1d::new(4, on).map(one),
        "BatchNorm2d" => BatchNorm2d::options(4).eps(1e-3).build(on).map(one),
        "BatchNorm3d" => BatchNorm3d::options(4).affine(false).build(on).map(one),
        "SyncBatchNorm" => SyncBatchNorm::new(4, on).map(one),
        "InstanceNorm1d" => InstanceNorm1d::new(4, on).map(one),
        "InstanceNorm2d" => InstanceNorm2d::options(4).affine(true).build(on).map(one),
        "InstanceNorm3d" => InstanceNorm3d::options(4).affine(true).track_running_stats(true).build(on).map(one),
        "LayerNorm" => LayerNorm::new([3, 4], on).map(one),
        "RMSNorm" => RmsNorm::options(4).eps(1e-4).build(on).map(one),
        "GroupNorm" => GroupNorm::new(2, 4, on).map(one),
        "PReLU" => PRelu::new(4, on).map(one),
        "Embedding" => Embedding::options(7, 3).padding_idx(1).build(on).map(one),
        "EmbeddingBag" => EmbeddingBag::options(7, 3).mode(BagMode::Max).build(on).map(one),
        "RotaryEmbedding" => RotaryEmbedding::new(8, on).map(one),
        "TimestepEmbedding" => TimestepEmbedding::new(8, on).map(one),
        "Sequential" => Linear::new(4, 3, on).map(|made| one(Sequential::new().add(made).add(Relu::new()))),
        "ModuleList" => (|| {
            let list = vec![Linear::new(4, 3, on)?, Linear::new(3, 2, on)?];
            Ok(by(list, |m: &Vec<Linear>, x| Ok(vec![m[1].forward(&m[0].forward(&x[0])?)?])))
        })(),
        "ModuleDict" => (|| {
            let map = BTreeMap::from([("a".to_string(), Linear::new(4, 3, on)?), ("b".into(), Linear::new(3, 2, on)?)]);
            Ok(by(map, |m: &BTreeMap<String, Linear>, x| Ok(vec![m["b"].forward(&m["a"].forward(&x[0])?)?])))
        })(),
        "ParameterList" => (|| {
            let list = ParameterList(vec![parameter(Tensor::ones([4])?.to_device(on)?)?]);
            Ok(by(list, |m: &ParameterList, x| Ok(vec![(&x[0] * &m.0[0])?])))
        })(),
        "ParameterDict" => (|| {
            let gain = parameter(Tensor::ones([4])?.to_device(on)?)?;
            let map = ParameterDict(BTreeMap::from([("gain".to_string(), gain)]));
            Ok(by(map, |m: &ParameterDict, x| Ok(vec![(&x[0] * &m.0["gain"])?])))
        })(),
        _ => return None,
    })
}

fn made(name: &str, on: Device) -> Result<Box<dyn Callable>> {
    let found = activation(name).or_else(|| loss(name, on)).or_else(|| pool(name)).or_else(|| image(name));
    let found = found.or_else(|| recurrent(name, on)).or_else(|| attention(name, on)).or_else(|| layer(name, on));
    found.unwrap_or_else(|| Err(Error::value("modules", format!("there is no module {name:?}"))))
}

fn run(name: &str, file: &Path, on: Device) -> Result<()> {
    let given = checkpoint::load(file, on)?;
    let inputs: Vec<Tensor> = checkpoint::section(&given, "input").into_values().collect();
    let mut made = made(name, on)?;
    let module = made.module();
    module.load_state_dict(&checkpoint::section(&given, "model"))?;
    module.eval();
    let mut out = checkpoint::joined([("model", &module.state_dict()?)])?;
    for (i, t) in no_grad(|| made.call(&inputs))?.into_iter().enumerate() {
        out.insert(format!("out.{i}"), if t.dtype() == DType::Bool { t.cast(DType::I64)? } else { t });
    }
    checkpoint::save(file.with_extension("out"), &out)
}

/// Runs the module of every file.
pub fn run_all(device: &str, folder: &Path) -> Result<()> {
    let on = Device::parse(device)?.device;
    let entries = std::fs::read_dir(folder).map_err(|e| Error::io(folder, e))?;
    for file in entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "safetensors")) {
        let name = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default().to_string();
        match run(&name, &file, on) {
            Ok(()) => println!("{name}"),
            Err(error) => return Err(error.in_module(&name)),
        }
    }
    Ok(())
}

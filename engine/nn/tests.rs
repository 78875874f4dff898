//! Layers as Rust programs use them: names, modes, state dicts, errors that say where. Their arithmetic is the ops', which have
//! tests of their own; what is composed here is compared with numbers worked out by PyTorch.

use super::*;
use crate::testing::assert_close;
use crate::{tensor, DType, Device, Result, Tensor};

const ON: Device = Device::Cpu;

/// Numbers 0, 1, 2, … in a shape, scaled.
fn counted(shape: &[isize], scale: f64) -> Result<Tensor> {
    let n: isize = shape.iter().product();
    (Tensor::arange(0, n as i64)?.cast(DType::F32)? * scale)?.reshape(shape)
}

fn names(module: &dyn Module) -> Vec<String> {
    module.state_dict().unwrap().into_keys().collect()
}

fn constant(module: &dyn Module, value: f64) {
    module.parameters().iter().for_each(|p| init::constant(p, value).unwrap());
}

#[derive(Module)]
struct Block {
    attn: MultiheadAttention,
    mlp: Vec<Linear>,
    norm: Option<LayerNorm>,
    #[module(constant)]
    mask: Tensor,
    #[module(name = "gain")]
    scale: Tensor,
    #[module(skip)]
    kind: Reduction,
    width: usize,
    place: Place,
}

#[derive(Module)]
struct Encoder {
    layers: [Block; 2],
    #[module(flatten)]
    head: Linear,
}

fn block() -> Result<Block> {
    Ok(Block {
        attn: MultiheadAttention::new(4, 2, ON)?,
        mlp: vec![Linear::new(4, 8, ON)?, Linear::options(8, 4).bias(false).build(ON)?],
        norm: None,
        mask: Tensor::zeros(&[1])?,
        scale: Tensor::ones(&[1])?.requires_grad_(true)?,
        kind: Reduction::Mean,
        width: 4,
        place: Place::default(),
    })
}

#[test]
fn derived_modules_have_pytorchs_names() -> Result<()> {
    let encoder = Encoder { layers: [block()?, block()?], head: Linear::new(4, 1, ON)? };
    let found: Vec<String> = encoder.named_parameters().into_iter().map(|(name, _)| name).collect();
    let of = |i: usize| {
        [
            "attn.in_proj_weight",
            "attn.in_proj_bias",
            "attn.out_proj.weight",
            "attn.out_proj.bias",
            "mlp.0.weight",
            "mlp.0.bias",
            "mlp.1.weight",
            "gain",
        ]
        .map(|name| format!("layers.{i}.{name}"))
    };
    let expected: Vec<String> = of(0).into_iter().chain(of(1)).chain(["weight".into(), "bias".into()]).collect();
    assert_eq!(found, expected);
    assert_eq!(encoder.named_buffers().len(), 2);
    assert!(encoder.named_modules().contains(&("layers.1.attn".into(), "MultiheadAttention".into())));
    assert_eq!((encoder.layers[0].kind, encoder.layers[0].width), (Reduction::Mean, 4));
    Ok(())
}

#[test]
fn errors_name_the_path_in_the_model() -> Result<()> {
    let encoder = Encoder { layers: [block()?, block()?], head: Linear::new(4, 1, ON)? };
    let wrong = Tensor::zeros(&[3, 5])?;
    // In no model yet, the kind stands for the path.
    assert!(encoder.layers[1].mlp[0].forward(&wrong).unwrap_err().to_string().starts_with("Linear: linear: "));
    let optimized = encoder.parameters();
    assert_eq!(optimized.len(), 18);
    let error = encoder.layers[1].mlp[0].forward(&wrong).unwrap_err();
    assert!(error.to_string().starts_with("layers.1.mlp.0: linear: "), "{error}");
    assert!(matches!(error.root(), crate::Error::ShapeMismatch { .. } | crate::Error::Runtime { .. }), "{error:?}");
    let error = Conv2d::options(3, 4, 3).groups(2).build(ON).unwrap_err().to_string();
    assert!(error.starts_with("Conv: conv: in_channels 3 must be divisible"), "{error}");
    for bad in
        [Conv2d::options(2, 2, -1), Conv2d::options(2, 2, 3).stride(0), Conv2d::options(2, 2, 3).stride(2).same()]
    {
        assert!(bad.build(ON).is_err());
    }
    let rows = Sequential::new().add(Linear::new(2, 2, ON)?).named("cut", |x: &Tensor| x.narrow(0, 9, 1));
    let error = rows.forward(&Tensor::zeros(&[1, 2])?).unwrap_err().to_string();
    assert!(error.starts_with("cut: narrow"), "{error}");
    Ok(())
}

#[test]
fn state_dicts_are_checked_before_anything_is_written() -> Result<()> {
    let (a, b) = (BatchNorm2d::new(3, ON)?, BatchNorm2d::new(3, ON)?);
    assert_eq!(names(&a), ["bias", "num_batches_tracked", "running_mean", "running_var", "weight"]);
    a.forward(&Tensor::randn(&[2, 3, 4, 4])?)?;
    b.load_state_dict(&a.state_dict()?)?;
    assert_eq!(b.state_dict()?["num_batches_tracked"].item_f64()?, 1.0);
    assert_close(&b.state_dict()?["running_mean"], a.state_dict()?["running_mean"].clone());
    let mut other = a.state_dict()?;
    other.remove("bias");
    other.insert("odd".into(), Tensor::zeros(&[1])?);
    let error = b.load_state_dict(&other).unwrap_err().to_string();
    assert!(error.contains("missing bias") && error.contains("unexpected odd"), "{error}");
    let found = b.load_matching(&other)?;
    assert_eq!((found.missing, found.unexpected), (vec!["bias".to_string()], vec!["odd".to_string()]));
    other.insert("weight".into(), Tensor::zeros(&[4])?);
    assert!(b.load_matching(&other).unwrap_err().to_string().contains("weight is [4]"));
    Ok(())
}

#[test]
fn modes_devices_and_dtypes_reach_every_part() -> Result<()> {
    let mut model = Sequential::new().add(Linear::new(4, 4, ON)?).add(Dropout::new(0.5)?).add(BatchNorm1d::new(4, ON)?);
    assert!(model.is_training());
    model.eval();
    assert!(!model.is_training());
    let x = Tensor::randn(&[3, 4])?;
    assert_close(model.forward(&x)?, model.forward(&x)?);
    model.to_dtype(DType::F64)?;
    assert!(model.parameters().iter().all(|p| p.dtype() == DType::F64 && p.requires_grad() && p.is_leaf()));
    assert_eq!(model.state_dict()?["2.num_batches_tracked"].dtype(), DType::I64);
    assert!(model.to_dtype(DType::I32).is_err());
    assert!(model.to(Device::Gpu).is_err(), "the GPU device has no float64");
    model.to_dtype(DType::F32)?;
    model.to(Device::Gpu)?;
    assert!(model.parameters().iter().all(|p| p.device() == Device::Gpu));
    Ok(())
}

#[test]
fn recurrent_layers_agree_with_their_cells() -> Result<()> {
    let lstm = Lstm::options(3, 4).num_layers(2).bidirectional(true).batch_first(true).build(ON)?;
    assert_eq!(lstm.parameters().len(), 16);
    assert!(names(&lstm).contains(&"weight_ih_l1_reverse".to_string()));
    let x = Tensor::randn(&[2, 5, 3])?;
    let (out, (h, c)) = lstm.forward(&x, None)?;
    assert_eq!((out.shape(), h.shape(), c.shape()), (&[2, 5, 8][..], &[4, 2, 4][..], &[4, 2, 4][..]));
    let gru = Gru::new(3, 4, ON)?;
    let cell = GruCell::new(3, 4, ON)?;
    let weights = gru.state_dict()?.into_iter().map(|(n, t)| (n.trim_end_matches("_l0").to_string(), t)).collect();
    cell.load_state_dict(&weights)?;
    let x = Tensor::randn(&[5, 2, 3])?;
    let mut state: Option<Tensor> = None;
    for t in 0..5 {
        state = Some(cell.forward(&x.select(0, t)?, state.as_ref())?);
    }
    let (out, last) = gru.forward(&x, None)?;
    assert_close(out.select(0, 4)?, last.select(0, 0)?);
    assert_close(last.select(0, 0)?, state.unwrap());
    assert!(Rnn::options(3, 4).dropout(2.0).build(ON).is_err() && Lstm::options(3, 4).proj_size(4).build(ON).is_err());
    assert_eq!(Lstm::options(3, 4).proj_size(2).build(ON)?.forward(&x, None)?.0.shape(), [5, 2, 2]);
    Ok(())
}

#[test]
fn attention_sees_what_its_masks_let_it() -> Result<()> {
    let attention = MultiheadAttention::options(4, 2).batch_first(true).build(ON)?;
    let x = Tensor::randn(&[2, 3, 4])?;
    let (causal, weights) = attention.with_weights(&x, &x, &x, AttentionMask::causal())?;
    assert_close(attention.forward(&x, &x, &x, AttentionMask::causal())?, causal.clone());
    assert_eq!(weights.triu(1)?.abs()?.sum_all()?.item_f64()?, 0.0);
    let later = Transformer::causal_mask(3, ON)?;
    let masked = AttentionMask { attn_mask: Some(&later), ..AttentionMask::default() };
    assert_close(attention.forward(&x, &x, &x, masked)?, causal);
    let padding = tensor([[false, false, true], [false, true, true]])?;
    let masked = AttentionMask { key_padding_mask: Some(&padding), ..AttentionMask::default() };
    let (_, weights) = attention.with_weights(&x, &x, &x, masked)?;
    assert_eq!(weights.i((1, .., 1..))?.sum_all()?.item_f64()?, 0.0);
    assert!(MultiheadAttention::new(5, 2, ON).is_err());
    let transformer = Transformer::options(8, 2)
        .num_encoder_layers(1)
        .num_decoder_layers(1)
        .dim_feedforward(16)
        .batch_first(true)
        .build(ON)?;
    let (src, tgt) = (Tensor::randn(&[2, 5, 8])?, Tensor::randn(&[2, 3, 8])?);
    let free = AttentionMask::default();
    let out = transformer.forward(&src, &tgt, free, AttentionMask::causal(), free)?;
    assert_eq!(out.shape(), [2, 3, 8]);
    out.sum_all()?.backward()?;
    assert!(transformer.parameters().iter().all(|p| p.grad().is_some()));
    assert!(names(&transformer).contains(&"decoder.layers.0.multihead_attn.out_proj.bias".to_string()));
    Ok(())
}

#[test]
fn pools_norms_and_resizing_give_pytorchs_numbers() -> Result<()> {
    let x = counted(&[1, 2, 4, 5], 1.0)?;
    let pooled = AdaptiveAvgPool2d::new([2, 3])?.forward(&x)?;
    assert_close(pooled.i((0, 0))?, [[3.0, 4.5, 6.0], [13.0, 14.5, 16.0]]);
    assert_close(AdaptiveMaxPool2d::new(1)?.forward(&x)?.flatten(0, -1)?, [19.0, 39.0]);
    assert_eq!(AdaptiveAvgPool2d::keeping([None, Some(2)]).forward(&x)?.shape(), [1, 2, 4, 2]);
    let (best, places) = MaxPool2d::new(2).with_indices(&x)?;
    let back = MaxUnpool2d::new(2).forward(&best, &places, Some(Size([4, 5])))?;
    assert_close(back.sum_all()?, best.sum_all()?);
    assert_close(LpPool1d::new(2).forward(&tensor([[[3.0, 4.0]]])?)?, [[[5.0]]]);
    let normed = InstanceNorm2d::new(2, ON)?.forward(&x)?;
    assert_close(normed.mean(Some(&[2, 3]), false, None)?, [[0.0, 0.0]]);
    assert_close(LocalResponseNorm::new(1).alpha(1.0).forward(&tensor([[[1.0]]])?)?, [[[0.594_603_6]]]);
    let up = Upsample::<2>::size([2, 4])?.mode(Interpolation::Linear).align_corners(true);
    assert_close(up.forward(&tensor([[[[0.0, 3.0]]]])?)?.i((0, 0, 1))?, [0.0, 1.0, 2.0, 3.0]);
    let cubic = Upsample::<2>::scale(2.0).mode(Interpolation::Cubic).forward(&tensor([[[[0.0, 1.0]]]])?)?;
    assert_close(cubic.i((0, 0, 0))?, [-0.105_468_75, 0.226_562_5, 0.773_437_5, 1.105_468_75]);
    let image = counted(&[1, 4, 2, 2], 1.0)?;
    let shuffled = PixelShuffle::new(2)?.forward(&image)?;
    assert_close(shuffled.i((0, 0, 0))?, [0.0, 4.0, 1.0, 5.0]);
    assert_close(PixelUnshuffle::new(2)?.forward(&shuffled)?, image.clone());
    assert_close(ChannelShuffle::new(2)?.forward(&image)?.i((0, .., 0, 0))?, [0.0, 8.0, 4.0, 12.0]);
    let windows = Windows::new(2).padding(1).stride(2);
    let columns = Unfold::new(windows).forward(&x)?;
    assert_eq!(columns.shape(), [1, 8, 9]);
    assert_close(Fold::new([4, 5], windows).forward(&columns)?, x);
    Ok(())
}

#[test]
fn convolutions_take_their_options() -> Result<()> {
    let x = Tensor::randn(&[2, 4, 8, 8])?;
    let conv = Conv2d::options(4, 6, [3, 5]).same().groups(2).padding_mode(PaddingMode::Circular).build(ON)?;
    assert_eq!((conv.weight.shape(), conv.forward(&x)?.shape()), (&[6, 2, 3, 5][..], &[2, 6, 8, 8][..]));
    let even = Conv2d::options(4, 1, 2).same().bias(false).build(ON)?;
    constant(&even, 1.0);
    assert_eq!(even.forward(&Tensor::ones(&[1, 4, 3, 3])?)?.i((0, 0, 2, 2))?.item_f64()?, 4.0);
    let up = ConvTranspose2d::options(4, 3, 3).stride(2).padding(1).output_padding(1).build(ON)?;
    assert_eq!(up.forward(&x)?.shape(), [2, 3, 16, 16]);
    assert_eq!(Conv1d::new(4, 2, 3, ON)?.forward(&Tensor::randn(&[4, 9])?)?.shape(), [2, 7]);
    Ok(())
}

#[test]
fn losses_give_pytorchs_numbers() -> Result<()> {
    let (x, y) = (tensor([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]])?, tensor([2, 0])?);
    assert_close(MultiMarginLoss::new().forward(&x, &y)?, 0.0);
    assert_close(SoftMarginLoss::new().forward(&tensor([0.5])?, &tensor([1.0])?)?, 0.474_077);
    assert_close(CosineEmbeddingLoss::new().forward(&x, &x, &tensor([1.0, -1.0])?)?, 0.5);
    assert_close(PoissonNllLoss::new().full(true).forward(&tensor([1.0])?, &tensor([3.0])?)?, 1.482_363_3);
    assert_close(GaussianNllLoss::new().forward(&tensor([1.0])?, &tensor([3.0])?, &tensor([2.0])?)?, 1.346_573_6);
    let triplet =
        TripletMarginLoss::new().forward(&tensor([[0.0, 0.0]])?, &tensor([[3.0, 4.0]])?, &tensor([[0.0, 1.0]])?)?;
    assert_close(triplet, 5.0);
    assert_close(HingeEmbeddingLoss::new().forward(&tensor([0.5, 0.25])?, &tensor([1.0, -1.0])?)?, 0.625);
    // Two steps, three classes, the target "1": paths 01, 10, 11 of equal steps.
    let log_probs = Tensor::zeros(&[2, 1, 3])?.log_softmax(-1, None)?.requires_grad_(true)?;
    let loss = CtcLoss::default().forward(&log_probs, &tensor([[1]])?, &[2], &[1])?;
    assert_close(&loss, -(3.0f64 / 9.0).ln());
    loss.backward()?;
    assert!(log_probs.grad().unwrap().isfinite()?.all(None, false)?.item_bool()?);
    assert!(CtcLoss::default().forward(&log_probs, &tensor([[7]])?, &[2], &[1]).is_err());
    Ok(())
}

#[test]
fn tables_leave_padding_out() -> Result<()> {
    let table = Embedding::options(5, 3).padding_idx(-5).build(ON)?;
    assert_eq!(table.forward(&tensor([0])?)?.abs()?.sum_all()?.item_f64()?, 0.0);
    assert!(Embedding::options(5, 3).padding_idx(5).build(ON).is_err());
    let bags = EmbeddingBag::options(5, 2).padding_idx(0).build(ON)?;
    let rows = bags.weight.detach()?;
    let mean = bags.forward(&tensor([[1, 3, 0], [0, 0, 2]])?)?;
    assert_close(mean.select(0, 0)?, ((rows.select(0, 1)? + rows.select(0, 3)?)? * 0.5)?);
    assert_close(bags.bags(&tensor([1, 3, 0, 0, 0, 2])?, &tensor([0, 3])?)?, mean);
    assert!(bags.bags(&tensor([1, 2])?, &tensor([1])?).is_err());
    Ok(())
}

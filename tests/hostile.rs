//! Hostile input to what surrounds the ops: layers, data, checkpoints, functions of functions. Nothing may panic; what is refused
//! is a typed error, and one of a layer names it.

// A test may panic, and its lengths are its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)]

use lucid::data::{random_split, read_csv, read_idx, FnDataset, TensorDataset};
use lucid::nn::*;
use lucid::prelude::{checkpoint, func, optim, DataLoader, Optimizer};
use lucid::{tensor, DType, Device, Result, Tensor};
use std::panic::{catch_unwind, AssertUnwindSafe};

const ON: Device = Device::Cpu;
/// Sizes that no memory has, and whose products are beyond 64 bits.
const HUGE: [usize; 4] = [usize::MAX, usize::MAX / 2 + 1, 1 << 62, 1 << 40];

/// Runs what may fail and must not panic.
fn tried<T>(name: &str, panicked: &mut Vec<String>, f: impl FnOnce() -> T) -> Option<T> {
    let made = catch_unwind(AssertUnwindSafe(f));
    if made.is_err() {
        panicked.push(name.to_string());
    }
    made.ok()
}

/// Tensors of every rank, dtype and layout that a layer may be given by mistake.
fn inputs() -> Result<Vec<Tensor>> {
    let mut all = vec![tensor(1.0)?, tensor(f64::NAN)?];
    let shapes: [&[isize]; 18] = [
        &[0],
        &[1],
        &[4],
        &[0, 4],
        &[2, 4],
        &[4, 0],
        &[2, 4, 0],
        &[0, 4, 5],
        &[2, 4, 5],
        &[1, 4, 1],
        &[2, 0, 4, 4],
        &[0, 4, 4, 4],
        &[2, 4, 6, 6],
        &[1, 4, 1, 1],
        &[2, 4, 4, 4, 4],
        &[2, 4, 0, 4, 4],
        &[1, 2, 3, 4, 5, 6],
        &[3, 3],
    ];
    for shape in shapes {
        let x = Tensor::randn(shape)?;
        all.push(x.masked_fill(&x.gt(0.0)?, f64::NAN)?);
        for dtype in [DType::I64, DType::Bool, DType::F64, DType::F16, DType::C64] {
            all.push(x.cast(dtype)?);
        }
        all.push(x.requires_grad_(true)?);
    }
    all.push(Tensor::randn(&[4, 2])?.transpose(0, 1)?);
    all.push(Tensor::ones(&[1, 1, 1, 1])?.expand(&[2, 4, 5, 5])?);
    // No elements, and sizes whose product is beyond 64 bits.
    for shape in
        [&[1isize << 40, 4, 1 << 40, 0][..], &[1 << 40, 1 << 40, 0], &[0, 4, 1 << 40, 1 << 40], &[2, 1 << 62, 0]]
    {
        let mut ones = shape.to_vec();
        ones.iter_mut().filter(|n| **n > 2).for_each(|n| *n = 1);
        all.push(Tensor::zeros(&ones)?.expand(shape)?);
    }
    Ok(all)
}

fn layers() -> Result<Vec<(&'static str, Box<dyn Forward>)>> {
    macro_rules! list {
        ($($name:ident: $made:expr;)*) => { vec![$((stringify!($name), Box::new($made) as Box<dyn Forward>)),*] };
    }
    let windows = Windows::new(2);
    Ok(list! {
        Linear: Linear::new(4, 3, ON)?;
        Linear0: Linear::new(0, 3, ON)?;
        Conv1d: Conv1d::new(4, 2, 3, ON)?;
        Conv2d: Conv2d::options(4, 2, 3).padding_mode(PaddingMode::Reflect).padding(2).build(ON)?;
        Conv3d: Conv3d::options(4, 2, 2).same().build(ON)?;
        ConvWide: Conv2d::options(4, 4, 2).groups(4).bias(false).dilation(i32::MAX).padding(i32::MAX).build(ON)?;
        ConvTranspose1d: ConvTranspose1d::new(4, 2, 3, ON)?;
        ConvTranspose2d: ConvTranspose2d::options(4, 2, 3).stride(i32::MAX).padding(i32::MAX).build(ON)?;
        ConvTranspose3d: ConvTranspose3d::options(4, 2, 3).output_padding(i32::MAX).dilation(i32::MAX).build(ON)?;
        MaxPool1d: MaxPool1d::new(2);
        MaxPool2d: MaxPool2d::new(i64::MAX).stride(i64::MAX).padding(i64::MIN).dilation(i64::MAX);
        MaxPool2d0: MaxPool2d::new(0);
        MaxPool3d: MaxPool3d::new(2).ceil_mode(true).padding(1);
        AvgPool1d: AvgPool1d::new(-1);
        AvgPool2d: AvgPool2d::new(2).divisor(0);
        AvgPool3d: AvgPool3d::new([1, 2, 3]).padding(i64::MAX);
        LpPool1d: LpPool1d::new(2).norm_type(f64::NAN);
        LpPool2d: LpPool2d::new(2).norm_type(1e-300);
        LpPool3d: LpPool3d::new(i64::MAX);
        AdaptiveAvgPool1d: AdaptiveAvgPool1d::new(3)?;
        AdaptiveAvgPool2d: AdaptiveAvgPool2d::new(0)?;
        AdaptiveMaxPool2d: AdaptiveMaxPool2d::new([2, 3])?;
        AdaptiveMaxPool3d: AdaptiveMaxPool3d::keeping([Some(usize::MAX), None, Some(1)]);
        BatchNorm1d: BatchNorm1d::new(4, ON)?;
        BatchNorm2d: BatchNorm2d::options(4).momentum(None).eps(f64::NAN).build(ON)?;
        BatchNorm3d: BatchNorm3d::options(4).track_running_stats(false).affine(false).build(ON)?;
        SyncBatchNorm: SyncBatchNorm::options(4).momentum(None).eps(f64::NAN).build(ON)?;
        InstanceNorm1d: InstanceNorm1d::new(4, ON)?;
        InstanceNorm2d: InstanceNorm2d::options(4).affine(true).track_running_stats(true).build(ON)?;
        LayerNorm: LayerNorm::new(4, ON)?;
        LayerNorm0: LayerNorm::new([0, 4], ON)?;
        RmsNorm: RmsNorm::new([4, 4], ON)?;
        GroupNorm: GroupNorm::new(2, 4, ON)?;
        GroupNorm0: GroupNorm::new(3, 0, ON)?;
        LocalResponseNorm: LocalResponseNorm::new(3);
        LocalResponseNormWide: LocalResponseNorm::new(usize::MAX);
        Dropout: Dropout::new(0.5)?;
        Dropout1d: Dropout1d::new(1.0)?;
        Dropout2d: Dropout2d::new(0.5)?;
        AlphaDropout: AlphaDropout::new(0.5)?;
        FeatureAlphaDropout: FeatureAlphaDropout::new(0.999_999)?;
        Embedding: Embedding::options(4, 3).padding_idx(-1).build(ON)?;
        Embedding0: Embedding::new(0, 3, ON)?;
        EmbeddingBag: EmbeddingBag::options(4, 3).mode(BagMode::Max).padding_idx(0).build(ON)?;
        Upsample1: Upsample::<1>::size(7)?.mode(Interpolation::Linear);
        Upsample2: Upsample::<2>::scale(f64::NAN).mode(Interpolation::Cubic);
        Upsample2b: Upsample::<2>::scales([1e300, 0.5]);
        Upsample3: Upsample::<3>::size(i32::MAX)?.mode(Interpolation::Linear).align_corners(true);
        PixelShuffle: PixelShuffle::new(2)?;
        PixelShuffleWide: PixelShuffle::new(1 << 20)?;
        PixelUnshuffle: PixelUnshuffle::new(2)?;
        ChannelShuffle: ChannelShuffle::new(1 << 20)?;
        ChannelShuffle2: ChannelShuffle::new(2)?;
        Unfold: Unfold::new(windows);
        UnfoldWide: Unfold::new(Windows::new(i32::MAX).padding(i32::MAX).dilation(i32::MAX).stride(i32::MAX));
        UnfoldOdd: Unfold::new(Windows::new(i64::MAX).padding(i64::MIN).dilation(0).stride(-1));
        Fold: Fold::new(3, windows);
        FoldWide: Fold::new(i32::MAX, windows.padding(i32::MAX));
        ZeroPad1d: ZeroPad1d::new([[i64::MIN, i64::MAX]]);
        ZeroPad2d: ZeroPad2d::new(-3);
        ConstantPad3d: ConstantPad3d::new(i32::MAX).value(f64::NAN);
        ReflectionPad2d: ReflectionPad2d::new(9);
        ReplicationPad3d: ReplicationPad3d::new(1);
        CircularPad1d: CircularPad1d::new(7);
        CircularPad2d: CircularPad2d::new([[i64::MAX, i64::MAX], [1, 1]]);
        Flatten: Flatten::new(isize::MIN, isize::MAX);
        FlattenAll: Flatten::default();
        Unflatten: Unflatten::new(1, &[-1, isize::MAX])?;
        Unflatten2: Unflatten::new(1, &[isize::MAX, isize::MAX, 2])?;
        Identity: Identity;
        Glu: Glu::new().dim(isize::MIN);
        Glu1: Glu::new().dim(1);
        Softmax: Softmax::new().dim(isize::MAX);
        Softmax1: Softmax::default();
        Softmax2d: Softmax2d::new();
        LogSoftmax: LogSoftmax::new().dim(0);
        Softplus: Softplus::new().beta(0.0).threshold(f64::NAN);
        Hardtanh: Hardtanh::new().min_val(2.0).max_val(-2.0);
        PRelu: PRelu::new(4, ON)?;
        PRelu0: PRelu::new(0, ON)?;
        RRelu: RRelu::default();
        Gelu: Gelu::default();
        Celu: Celu::new().alpha(0.0);
        Elu: Elu::new().alpha(f64::INFINITY);
        Relu6: Relu6::new();
        Mish: Mish::new();
    })
}

#[test]
fn layers_refuse_or_compute_whatever_they_are_given() -> Result<()> {
    let (layers, inputs) = (layers()?, inputs()?);
    let mut panicked = Vec::new();
    for (name, layer) in &layers {
        for x in &inputs {
            let what = format!("{name} of {:?} {:?}", x.shape(), x.dtype());
            let made = tried(&what, &mut panicked, || {
                let y = layer.forward(x)?;
                if y.requires_grad() && y.numel() < 100_000 {
                    y.abs()?.sum_all()?.backward()?;
                }
                y.to_bytes()
            });
            if let Some(Err(error)) = made {
                assert!(!error.to_string().is_empty());
            }
        }
    }
    assert_eq!(panicked, Vec::<String>::new());
    Ok(())
}

#[test]
fn layers_of_several_tensors_do_as_well() -> Result<()> {
    let inputs = inputs()?;
    let mut panicked = Vec::new();
    let lstm = Lstm::options(4, 3).num_layers(2).bidirectional(true).proj_size(2).dropout(0.5).build(ON)?;
    let gru = Gru::options(4, 3).batch_first(true).build(ON)?;
    let (rnn_cell, lstm_cell) = (RnnCell::new(4, 3, ON)?, LstmCell::new(4, 3, ON)?);
    let attention = MultiheadAttention::new(4, 2, ON)?;
    let other = MultiheadAttention::options(4, 2).kdim(3).vdim(5).batch_first(true).build(ON)?;
    let encoder = TransformerEncoder::new(&TransformerEncoderLayer::options(4, 2).dim_feedforward(8), 1, None, ON)?;
    let bilinear = Bilinear::new(4, 4, 2, ON)?;
    let bags = EmbeddingBag::new(4, 3, ON)?;
    let (unpool, wild) = (MaxUnpool2d::new(2), MaxUnpool2d::new(i64::MAX).stride(i64::MAX).padding(i64::MIN));
    let ctc = CtcLoss::new().blank(i64::MIN);
    let free = AttentionMask::default();
    for x in &inputs {
        for y in inputs.iter().step_by(5) {
            let what = format!("{:?} {:?} and {:?} {:?}", x.shape(), x.dtype(), y.shape(), y.dtype());
            let masked = AttentionMask { attn_mask: Some(y), key_padding_mask: Some(x), is_causal: true };
            let runs: [(&str, &dyn Fn() -> Result<Tensor>); 34] = [
                ("lstm", &|| Ok(lstm.forward(x, Some((y, y)))?.0)),
                ("gru", &|| Ok(gru.forward(x, Some(y))?.0)),
                ("gru alone", &|| Ok(gru.forward(x, None)?.0)),
                ("rnn cell", &|| rnn_cell.forward(x, Some(y))),
                ("lstm cell", &|| Ok(lstm_cell.forward(x, Some((y, x)))?.0)),
                ("attention", &|| attention.forward(x, y, y, free)),
                ("attention with masks", &|| Ok(attention.with_weights(x, x, x, masked)?.0)),
                ("attention of other sizes", &|| other.forward(x, y, x, masked)),
                ("encoder", &|| encoder.forward(x, masked)),
                ("bilinear", &|| bilinear.forward(x, y)),
                ("bags", &|| bags.bags(x, y)),
                ("unpool", &|| unpool.forward(x, y, None)),
                ("unpool to", &|| unpool.forward(x, &x.zeros_like()?.cast(DType::I64)?, Some(Size([i64::MAX, -1])))),
                ("wild unpool", &|| wild.forward(x, &x.zeros_like()?.cast(DType::I64)?, None)),
                ("ctc", &|| ctc.forward(x, y, &[1, 2], &[usize::MAX, 1])),
                ("ctc of 0", &|| CtcLoss::default().forward(x, y, &[], &[])),
                ("mse", &|| MseLoss::new().forward(x, y)),
                ("cross entropy", &|| CrossEntropyLoss::new().weight(y.clone()).label_smoothing(9.0).forward(x, y)),
                ("nll", &|| NllLoss::new().forward(x, y)),
                ("bce", &|| BceLoss::new().forward(x, y)),
                ("bce with logits", &|| BceWithLogitsLoss::new().pos_weight(x.clone()).forward(x, y)),
                ("kl", &|| KlDivLoss::new().batch_mean(true).forward(x, y)),
                ("poisson", &|| PoissonNllLoss::new().full(true).log_input(false).forward(x, y)),
                ("gaussian", &|| GaussianNllLoss::new().forward(x, y, y)),
                ("hinge", &|| HingeEmbeddingLoss::new().forward(x, y)),
                ("margin ranking", &|| MarginRankingLoss::new().forward(x, y, x)),
                ("multi margin", &|| MultiMarginLoss::new().p(3).forward(x, y)),
                ("multi label", &|| MultiLabelSoftMarginLoss::new().forward(x, y)),
                ("cosine", &|| CosineEmbeddingLoss::new().forward(x, y, x)),
                ("triplet", &|| TripletMarginLoss::new().p(f64::NAN).swap(true).forward(x, y, x)),
                ("huber", &|| HuberLoss::new().delta(-1.0).forward(x, y)),
                ("distance", &|| PairwiseDistance::new().p(f64::NAN).forward(x, y)),
                ("similarity", &|| CosineSimilarity::new().dim(isize::MIN).eps(f64::NAN).forward(x, y)),
                ("attention function", &|| functional::attention(x, y, x, AttentionMask::causal())),
            ];
            for (name, run) in runs {
                tried(&format!("{name} of {what}"), &mut panicked, || run().and_then(|t| t.to_bytes()).is_ok());
            }
        }
    }
    assert_eq!(panicked, Vec::<String>::new());
    Ok(())
}

#[test]
fn layers_of_sizes_that_no_memory_has_are_refused() {
    let mut panicked = Vec::new();
    for n in HUGE {
        let runs: [(&str, &dyn Fn() -> bool); 27] = [
            ("linear", &|| Linear::new(n, n, ON).is_err()),
            ("bilinear", &|| Bilinear::new(n, 1, n, ON).is_err()),
            ("conv", &|| Conv2d::new(n, n, i32::MAX, ON).is_err()),
            ("grouped conv", &|| Conv3d::options(n, n, i32::MAX).groups(n).build(ON).is_err()),
            ("window of another sign", &|| Conv1d::new(1, 1, n, ON).is_err()),
            ("transposed conv", &|| ConvTranspose3d::new(n, 2, i32::MAX, ON).is_err()),
            ("batch norm", &|| BatchNorm2d::new(n, ON).is_err()),
            ("group norm", &|| GroupNorm::new(n, n, ON).is_err()),
            ("layer norm", &|| LayerNorm::new(n, ON).is_err() && LayerNorm::new([n, n], ON).is_err()),
            ("rms norm", &|| RmsNorm::new([1 << 31, n], ON).is_err()),
            ("embedding", &|| Embedding::options(n, n).padding_idx(i64::MIN).build(ON).is_err()),
            ("embedding bag", &|| EmbeddingBag::new(n, 2, ON).is_err()),
            ("lstm", &|| Lstm::new(n, n, ON).is_err()),
            ("projected lstm", &|| Lstm::options(1, n).proj_size(n - 1).bidirectional(true).build(ON).is_err()),
            ("gru", &|| Gru::options(1, n).num_layers(n).build(ON).is_err()),
            ("rnn cell", &|| RnnCell::new(1, n, ON).is_err()),
            ("lstm cell", &|| LstmCell::new(n, n, ON).is_err()),
            ("attention", &|| MultiheadAttention::new(n, 1, ON).is_err()),
            ("attention of keys", &|| MultiheadAttention::options(2, 1).kdim(n).build(ON).is_err()),
            ("transformer", &|| Transformer::options(n, 1).dim_feedforward(n).build(ON).is_err()),
            ("mask", &|| Transformer::causal_mask(n, ON).is_err()),
            ("prelu", &|| PRelu::new(n, ON).is_err()),
            ("upsample", &|| Upsample::<2>::size(n).is_err()),
            ("shuffle", &|| PixelShuffle::new(n).is_err()),
            ("shape", &|| Tensor::from_slice(&[0f32; 0], &[n, n, 2], ON).is_err()),
            ("zeros", &|| Tensor::zeros([n, n]).is_err()),
            ("eye", &|| lucid::ops::create::eye(n, n, None, None).is_err()),
        ];
        for (name, refused) in runs {
            if tried(&format!("{name} of {n}"), &mut panicked, refused) == Some(false) {
                panicked.push(format!("{name} of {n} was made"));
            }
        }
    }
    assert_eq!(panicked, Vec::<String>::new());
}

#[test]
fn loaders_and_files_refuse_what_is_none() -> Result<()> {
    let mut panicked = Vec::new();
    for n in HUGE {
        let set = move || FnDataset::new(n, |i| Ok(i as i64));
        for seed in [None, Some(1)] {
            for batch_size in [0, 1, usize::MAX] {
                let what = format!("a loader of {n} by {batch_size}, seed {seed:?}");
                tried(&what, &mut panicked, || {
                    let loader = DataLoader::new(set(), batch_size).drop_last(batch_size > 1).prefetch(n);
                    let loader = if let Some(seed) = seed { loader.shuffle(seed) } else { loader };
                    let first = loader.iter().map(|mut batches| batches.next().map(|b| b.is_ok()));
                    assert!(first.is_err(), "a pass over {n} samples");
                });
            }
        }
        let what = format!("a split of {n}");
        let split = tried(&what, &mut panicked, || {
            random_split(FnDataset::new(4, |i| Ok(i as i64)), &[n, n.wrapping_neg().wrapping_add(4)], 0).is_err()
        });
        assert_eq!(split, Some(true), "{what}");
    }
    let ragged = TensorDataset::new([Tensor::zeros([3])?, Tensor::zeros([2])?]);
    assert!(ragged.is_err() && TensorDataset::new([tensor(1.0)?]).is_err());
    let ends = FnDataset::new(3, |i| if i < 2 { Tensor::zeros([i as i64]) } else { tensor(0.0) });
    assert!(DataLoader::new(ends, 3).workers(2).iter()?.all(|batch| batch.is_err()));

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let mut files: Vec<Vec<u8>> = vec![vec![], vec![0; 3], vec![0, 0, 8, 255], vec![0, 0, 14, 1, 255, 255, 255, 255]];
    files.push([&[0, 0, 13, 200][..], &[255; 800]].concat());
    files.push([&[0, 0, 13, 3][..], &[0; 4], &[255; 8]].concat());
    files.push(b"a,b\n\"1,2\n".to_vec());
    files.push(b"\xff\xfe,\n,\"\"\"".to_vec());
    files.push(b"\n\n,\n\"\"\n".to_vec());
    files.push(b"PK\x03\x04".to_vec());
    files.push([&b"PK\x03\x04"[..], &[0; 60], b"PK\x05\x06", &[255; 18]].concat());
    files.push([&u64::MAX.to_le_bytes()[..], b"{}"].concat());
    files.push([&2u64.to_le_bytes()[..], b"{}"].concat());
    for (i, bytes) in files.iter().enumerate() {
        std::fs::write(&path, bytes).unwrap();
        tried(&format!("IDX, file {i}"), &mut panicked, || read_idx(&path).is_ok());
        tried(&format!("checkpoint, file {i}"), &mut panicked, || checkpoint::load(&path, ON).is_ok());
        tried(&format!("CSV, file {i}"), &mut panicked, || {
            read_csv(&path).and_then(|t| t.numbers(&t.columns.iter().map(String::as_str).collect::<Vec<_>>())).is_ok()
        });
    }
    assert_eq!(panicked, Vec::<String>::new());
    Ok(())
}

/// An archive as PyTorch writes it: entries that are stored.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(!0u32, |c, &b| {
            (0..8).fold(c ^ u32::from(b), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
        })
    };
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, bytes) in entries {
        let (at, len, sum) = (file.len() as u32, bytes.len() as u32, crc(bytes));
        let sizes = [sum.to_le_bytes(), len.to_le_bytes(), len.to_le_bytes()].concat();
        let name_len = (name.len() as u16).to_le_bytes();
        file.extend([&b"PK\x03\x04"[..], &[0; 10], &sizes, &name_len, &[0; 2], name.as_bytes(), bytes].concat());
        directory.extend(
            [&b"PK\x01\x02"[..], &[0; 12], &sizes, &name_len, &[0; 12], &at.to_le_bytes(), name.as_bytes()].concat(),
        );
    }
    let (count, size, at) = ((entries.len() as u16).to_le_bytes(), directory.len() as u32, file.len() as u32);
    [
        file,
        directory,
        b"PK\x05\x06\0\0\0\0".to_vec(),
        count.to_vec(),
        count.to_vec(),
        size.to_le_bytes().to_vec(),
        at.to_le_bytes().to_vec(),
        vec![0; 2],
    ]
    .concat()
}

#[test]
fn pickles_that_grow_or_ask_for_code_are_refused() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pt");
    let load = |code: &[u8]| {
        std::fs::write(&path, archive(&[("m/data.pkl", code), ("m/data/0", &[0; 16])])).unwrap();
        checkpoint::load(&path, ON)
    };
    // Sixty lists, each of the one before it, twice: 2⁶⁰ names.
    let mut doubling = b"\x80\x02]q\0K\x01a".to_vec();
    for i in 1..60 {
        doubling.extend([b']', b'q', i, b'(', b'h', i - 1, b'h', i - 1, b'e']);
    }
    doubling.push(b'.');
    let error = load(&doubling).unwrap_err().to_string();
    assert!(error.contains("names"), "{error}");
    // A list in itself.
    assert!(load(b"\x80\x02]q\0h\0a.").is_err());
    // A call of the system.
    let error = load(b"\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R.").unwrap_err().to_string();
    assert!(error.contains("os.system"), "{error}");
    let storage = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ";
    let tensor = |rest: &[u8]| [&b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n("[..], storage, rest, b"tR."].concat();
    assert_eq!(load(&tensor(b"K\0K\x04\x85K\x01\x85\x89}"))?[""].shape(), [4]);
    for rest in [
        &b"K\x01K\x04\x85K\x01\x85\x89}"[..],
        b"J\xff\xff\xff\xffK\x04\x85K\x01\x85\x89}",
        b"K\0\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85K\0\x85\x89}",
        b"K\0\x8a\x08\0\0\0\0\0\0\0\x80\x85K\x01\x85\x89}",
        b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7fK\x02\x85\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85\x89}",
        b"K\0)K\x01\x85\x89}",
        b"K\0NN\x89}",
    ] {
        assert!(load(&tensor(rest)).is_err(), "{rest:?}");
    }
    for code in [
        &b""[..],
        b".",
        b"e.",
        b"a.",
        b"R.",
        b"(",
        b"h\0.",
        b"cx",
        b"\x8a\xff",
        b"X\xff\xff\xff\xff",
        b"K\x01K\x02s.",
        b"}(K\x01u.",
        b"(tQ.",
        b"\x93.",
        b"((((.",
        b"K\x01b.",
    ] {
        let _ = load(code);
    }
    Ok(())
}

#[test]
fn functions_of_functions_pass_errors_on() -> Result<()> {
    let inputs = inputs()?;
    let mut panicked = Vec::new();
    for x in &inputs {
        let what = format!("{:?} {:?}", x.shape(), x.dtype());
        let own = std::slice::from_ref(x);
        let runs: [(&str, &dyn Fn() -> bool); 14] = [
            ("grad", &|| func::grad(|x| x[0].square()?.sum_all(), own).is_ok()),
            ("grad of none", &|| func::grad(|_| tensor(1.0), &[]).is_ok()),
            ("grad of another", &|| func::grad(|_| Tensor::zeros([0]), own).is_ok()),
            ("vjp", &|| func::vjp(|x| Ok(vec![x[0].exp()?]), own).and_then(|(_, back)| back.call(&[])).is_ok()),
            ("vjp of none", &|| func::vjp(|_| Ok(vec![]), own).and_then(|(_, back)| back.call(&[])).is_ok()),
            ("jvp", &|| func::jvp(|x| Ok(vec![x[0].exp()?]), own, own).is_ok()),
            ("jvp of none", &|| func::jvp(|_| Ok(vec![]), own, &[]).is_ok()),
            ("jvp of another", &|| func::jvp(|x| Ok(x.to_vec()), own, &inputs[..1]).is_ok()),
            ("vmap", &|| func::vmap(|x| Ok(vec![x[0].sum_all()?]), own, &[Some(0)]).is_ok()),
            ("vmap of far dimensions", &|| func::vmap(|x| Ok(x.to_vec()), own, &[Some(isize::MIN)]).is_ok()),
            ("vmap of nothing", &|| func::vmap(|x| Ok(x.to_vec()), &[], &[]).is_ok()),
            ("jacobian", &|| func::jacobian(|x| x.sin(), x).is_ok()),
            ("jacobian forward", &|| func::jacobian_forward(|x| x.sum_over(0), x).is_ok()),
            ("hessian", &|| func::hessian(|x| x.pow(3.0)?.sum_all(), x).is_ok()),
        ];
        for (name, run) in runs {
            tried(&format!("{name} at {what}"), &mut panicked, run);
        }
    }
    assert_eq!(panicked, Vec::<String>::new());
    Ok(())
}

#[test]
fn optimizers_and_state_dicts_refuse_what_does_not_fit() -> Result<()> {
    let mut panicked = Vec::new();
    let model = Linear::new(4, 3, ON)?;
    for x in inputs()? {
        let what = format!("{:?} {:?}", x.shape(), x.dtype());
        tried(&format!("a state dict of {what}"), &mut panicked, || {
            let state = [("weight".to_string(), x.clone()), ("bias".to_string(), x.clone())].into();
            model.load_state_dict(&state).is_ok()
        });
        tried(&format!("steps of {what}"), &mut panicked, || -> Result<()> {
            for lr in [0.1, f64::NAN, -1.0, f64::INFINITY] {
                let leaf = (x.detach()? * 1)?;
                let _ = leaf.requires_grad_(true);
                let _ = leaf.set_grad(Some(x.detach()?));
                let mut all: [Box<dyn Optimizer>; 4] = [
                    Box::new(optim::Sgd::options().lr(lr).momentum(lr).build([leaf.clone(), leaf.clone()])),
                    Box::new(optim::Adam::new([leaf.clone()], lr)),
                    Box::new(optim::Muon::new([leaf.clone()], lr)),
                    Box::new(optim::Adafactor::new([leaf.clone()], lr)),
                ];
                for optimizer in &mut all {
                    let _ = optimizer.step();
                    optimizer.set_rate(usize::MAX, lr);
                    let _ = optimizer.load_state_dict(&[("x".to_string(), leaf.clone())].into());
                    let _ = optimizer.state_dict().and_then(|state| optimizer.load_state_dict(&state));
                }
                let _ = optim::clip_grad_norm(std::slice::from_ref(&leaf), lr, lr);
                let _ = optim::clip_grad_value(&[leaf], lr);
            }
            Ok(())
        });
    }
    let none: [Tensor; 0] = [];
    optim::Adam::new(none.clone(), 1e-3).step()?;
    optim::clip_grad_norm(&none, 1.0, 2.0)?;
    assert_eq!(panicked, Vec::<String>::new());
    Ok(())
}

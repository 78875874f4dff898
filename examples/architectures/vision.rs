//! Images: LeNet, ResNet, MobileNet and U-Net.

use lucid::ops::index::cat;
use lucid::prelude::*;
use nn::{BatchNorm2d, Conv2d, ConvTranspose2d, Linear, MaxPool2d, Sequential};

/// LeNet-5 (LeCun et al., 1998).
#[derive(Module)]
pub struct LeNet {
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl LeNet {
    pub fn new(on: Device) -> Result<LeNet> {
        Ok(LeNet {
            conv1: Conv2d::options(1, 6, 5).padding(2).build(on)?,
            conv2: Conv2d::new(6, 16, 5, on)?,
            fc1: Linear::new(400, 120, on)?,
            fc2: Linear::new(120, 84, on)?,
            fc3: Linear::new(84, 10, on)?,
        })
    }
}

impl Forward for LeNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pool = MaxPool2d::new(2);
        let x = pool.forward(&self.conv1.forward(x)?.relu()?)?;
        let x = pool.forward(&self.conv2.forward(&x)?.relu()?)?;
        let x = self.fc1.forward(&x.flatten(1, -1)?)?.relu()?;
        self.fc3.forward(&self.fc2.forward(&x)?.relu()?)
    }
}

/// Two convolutions and a shortcut.
#[derive(Module)]
struct BasicBlock {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    conv2: Conv2d,
    bn2: BatchNorm2d,
    downsample: Option<Sequential>,
}

impl BasicBlock {
    fn new(input: usize, output: usize, stride: i64, on: Device) -> Result<BasicBlock> {
        let conv =
            |from: usize, stride: i64| Conv2d::options(from, output, 3).padding(1).stride(stride).bias(false).build(on);
        let shortcut = || -> Result<Sequential> {
            let conv = Conv2d::options(input, output, 1).stride(stride).bias(false).build(on)?;
            Ok(Sequential::new().add(conv).add(BatchNorm2d::new(output, on)?))
        };
        Ok(BasicBlock {
            conv1: conv(input, stride)?,
            bn1: BatchNorm2d::new(output, on)?,
            conv2: conv(output, 1)?,
            bn2: BatchNorm2d::new(output, on)?,
            downsample: (stride != 1 || input != output).then(shortcut).transpose()?,
        })
    }
}

impl Forward for BasicBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        match &self.downsample {
            Some(downsample) => (y + downsample.forward(x)?)?.relu(),
            None => (y + x)?.relu(),
        }
    }
}

/// A small residual network (He et al., 2016).
#[derive(Module)]
pub struct ResNet {
    conv1: Conv2d,
    bn1: BatchNorm2d,
    layer1: Sequential,
    layer2: Sequential,
    fc: Linear,
}

impl ResNet {
    pub fn new(on: Device) -> Result<ResNet> {
        Ok(ResNet {
            conv1: Conv2d::options(3, 8, 3).padding(1).bias(false).build(on)?,
            bn1: BatchNorm2d::new(8, on)?,
            layer1: Sequential::new().add(BasicBlock::new(8, 8, 1, on)?).add(BasicBlock::new(8, 8, 1, on)?),
            layer2: Sequential::new().add(BasicBlock::new(8, 16, 2, on)?).add(BasicBlock::new(16, 16, 1, on)?),
            fc: Linear::new(16, 10, on)?,
        })
    }
}

impl Forward for ResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let x = self.layer2.forward(&self.layer1.forward(&x)?)?;
        self.fc.forward(&nn::AdaptiveAvgPool2d::new(1)?.forward(&x)?.flatten(1, -1)?)
    }
}

/// Wide, then depthwise, then narrow, with a shortcut where the sizes allow.
#[derive(Module)]
struct InvertedResidual {
    conv: Sequential,
    shortcut: bool,
}

fn conv_norm(row: Sequential, conv: nn::ConvOptions<2>, on: Device) -> Result<Sequential> {
    let channels = conv.out_channels;
    Ok(row.add(conv.bias(false).build(on)?).add(BatchNorm2d::new(channels, on)?))
}

impl InvertedResidual {
    fn new(input: usize, output: usize, stride: i64, expand: usize, on: Device) -> Result<InvertedResidual> {
        let wide = input * expand;
        let row = conv_norm(Sequential::new(), Conv2d::options(input, wide, 1), on)?.add(nn::Relu6::new());
        let depthwise = Conv2d::options(wide, wide, 3).stride(stride).padding(1).groups(wide);
        let row = conv_norm(row, depthwise, on)?.add(nn::Relu6::new());
        let conv = conv_norm(row, Conv2d::options(wide, output, 1), on)?;
        Ok(InvertedResidual { conv, shortcut: stride == 1 && input == output })
    }
}

impl Forward for InvertedResidual {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = self.conv.forward(x)?;
        if self.shortcut {
            y + x
        } else {
            Ok(y)
        }
    }
}

/// A small MobileNet of inverted residuals (Sandler et al., 2018).
#[derive(Module)]
pub struct MobileNet {
    features: Sequential,
    classifier: Sequential,
}

impl MobileNet {
    pub fn new(on: Device) -> Result<MobileNet> {
        let stem = conv_norm(Sequential::new(), Conv2d::options(3, 8, 3).stride(2).padding(1), on)?;
        Ok(MobileNet {
            features: stem
                .add(nn::Hardswish::new())
                .add(InvertedResidual::new(8, 8, 1, 2, on)?)
                .add(InvertedResidual::new(8, 12, 2, 3, on)?),
            classifier: Sequential::new().add(nn::Dropout::new(0.0)?).add(Linear::new(12, 10, on)?),
        })
    }
}

impl Forward for MobileNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.features.forward(x)?.mean(Some(&[2, 3]), false, None)?;
        self.classifier.forward(&x)
    }
}

fn twice(input: usize, output: usize, on: Device) -> Result<Sequential> {
    let conv = |from: usize| Conv2d::options(from, output, 3).padding(1);
    let row = conv_norm(Sequential::new(), conv(input), on)?.add(nn::Relu::new());
    Ok(conv_norm(row, conv(output), on)?.add(nn::Relu::new()))
}

/// A U-Net of two levels (Ronneberger et al., 2015).
#[derive(Module)]
pub struct UNet {
    down1: Sequential,
    down2: Sequential,
    middle: Sequential,
    up2: ConvTranspose2d,
    dec2: Sequential,
    up1: ConvTranspose2d,
    dec1: Sequential,
    head: Conv2d,
}

impl UNet {
    pub fn new(on: Device) -> Result<UNet> {
        let up = |from: usize, to: usize| ConvTranspose2d::options(from, to, 2).stride(2).build(on);
        Ok(UNet {
            down1: twice(1, 4, on)?,
            down2: twice(4, 8, on)?,
            middle: twice(8, 16, on)?,
            up2: up(16, 8)?,
            dec2: twice(16, 8, on)?,
            up1: up(8, 4)?,
            dec1: twice(8, 4, on)?,
            head: Conv2d::new(4, 2, 1, on)?,
        })
    }
}

impl Forward for UNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let pool = MaxPool2d::new(2);
        let one = self.down1.forward(x)?;
        let two = self.down2.forward(&pool.forward(&one)?)?;
        let middle = self.middle.forward(&pool.forward(&two)?)?;
        let x = self.dec2.forward(&cat(&[self.up2.forward(&middle)?, two], 1)?)?;
        let x = self.dec1.forward(&cat(&[self.up1.forward(&x)?, one], 1)?)?;
        self.head.forward(&x)
    }
}

crate::of_one_input!(LeNet, ResNet, MobileNet, UNet);

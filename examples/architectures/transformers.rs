//! Transformers: encoder and decoder, GPT, BERT and ViT.

use crate::{input, Architecture};
use lucid::nn::StateDict;
use lucid::ops::index::cat;
use lucid::ops::nn::scaled_dot_product_attention;
use lucid::prelude::*;
use nn::{AttentionMask, Embedding, LayerNorm, Linear};

const WIDTH: usize = 16;
const HEADS: usize = 2;

/// (N, L, E) as (N, heads, L, E / heads).
fn heads(x: &Tensor) -> Result<Tensor> {
    let (n, length) = (x.shape()[0], x.shape()[1]);
    x.reshape(dims![n, length, HEADS, WIDTH / HEADS])?.transpose(1, 2)
}

/// The inverse of [`heads`], after attention.
fn attended(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>, causal: bool) -> Result<Tensor> {
    let mixed = scaled_dot_product_attention(&heads(q)?, &heads(k)?, &heads(v)?, mask, 0.0, causal, None, false)?;
    mixed.transpose(1, 2)?.flatten(2, -1)
}

/// Numbers 0, 1, … for the steps of (N, L).
fn places(x: &Tensor) -> Result<Tensor> {
    Tensor::arange(0, x.shape()[1] as i64)?.to(x.device())
}

/// Encoder and decoder (Vaswani et al., 2017).
#[derive(Module)]
pub struct Translator {
    source: Embedding,
    target: Embedding,
    transformer: nn::Transformer,
    generator: Linear,
}

impl Translator {
    pub fn new(on: Device) -> Result<Translator> {
        let transformer = nn::Transformer::options(WIDTH, HEADS)
            .num_encoder_layers(2)
            .num_decoder_layers(2)
            .dim_feedforward(32)
            .dropout(0.0)
            .batch_first(true)
            .build(on)?;
        Ok(Translator {
            source: Embedding::new(20, WIDTH, on)?,
            target: Embedding::new(20, WIDTH, on)?,
            transformer,
            generator: Linear::new(WIDTH, 20, on)?,
        })
    }
}

impl Architecture for Translator {
    fn run(&self, inputs: &StateDict) -> Result<Tensor> {
        let (source, target) = (self.source.forward(input(inputs, "x")?)?, self.target.forward(input(inputs, "y")?)?);
        let free = AttentionMask::default();
        self.generator.forward(&self.transformer.forward(&source, &target, free, AttentionMask::causal(), free)?)
    }
}

#[derive(Module)]
struct CausalAttention {
    c_attn: Linear,
    c_proj: Linear,
}

impl Forward for CausalAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let all = self.c_attn.forward(x)?;
        let part = |i: usize| all.i((.., .., i * WIDTH..(i + 1) * WIDTH));
        self.c_proj.forward(&attended(&part(0)?, &part(1)?, &part(2)?, None, true)?)
    }
}

#[derive(Module)]
struct Mlp {
    c_fc: Linear,
    c_proj: Linear,
}

#[derive(Module)]
struct GptBlock {
    ln_1: LayerNorm,
    attn: CausalAttention,
    ln_2: LayerNorm,
    mlp: Mlp,
}

impl GptBlock {
    fn new(on: Device) -> Result<GptBlock> {
        Ok(GptBlock {
            ln_1: LayerNorm::new(WIDTH, on)?,
            attn: CausalAttention {
                c_attn: Linear::new(WIDTH, 3 * WIDTH, on)?,
                c_proj: Linear::new(WIDTH, WIDTH, on)?,
            },
            ln_2: LayerNorm::new(WIDTH, on)?,
            mlp: Mlp { c_fc: Linear::new(WIDTH, 4 * WIDTH, on)?, c_proj: Linear::new(4 * WIDTH, WIDTH, on)? },
        })
    }
}

impl Forward for GptBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = (x + self.attn.forward(&self.ln_1.forward(x)?)?)?;
        let gelu = nn::Gelu::new().approximate(nn::Approximate::Tanh);
        let wide = gelu.forward(&self.mlp.c_fc.forward(&self.ln_2.forward(&x)?)?)?;
        &x + self.mlp.c_proj.forward(&wide)?
    }
}

#[derive(Module)]
struct Body {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<GptBlock>,
    ln_f: LayerNorm,
}

/// GPT-2's form (Radford et al., 2019), whose output layer shares the table of tokens.
#[derive(Module)]
pub struct Gpt {
    transformer: Body,
    lm_head: Linear,
}

impl Gpt {
    pub fn new(on: Device) -> Result<Gpt> {
        let transformer = Body {
            wte: Embedding::new(20, WIDTH, on)?,
            wpe: Embedding::new(12, WIDTH, on)?,
            h: vec![GptBlock::new(on)?, GptBlock::new(on)?],
            ln_f: LayerNorm::new(WIDTH, on)?,
        };
        let mut lm_head = Linear::options(WIDTH, 20).bias(false).build(on)?;
        lm_head.weight = transformer.wte.weight.clone();
        Ok(Gpt { transformer, lm_head })
    }
}

impl Forward for Gpt {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let body = &self.transformer;
        let first = (body.wte.forward(x)? + body.wpe.forward(&places(x)?)?)?;
        let last = body.h.iter().try_fold(first, |x, block| block.forward(&x))?;
        self.lm_head.forward(&body.ln_f.forward(&last)?)
    }
}

#[derive(Module)]
struct BertEmbeddings {
    word_embeddings: Embedding,
    position_embeddings: Embedding,
    token_type_embeddings: Embedding,
    #[module(name = "LayerNorm")]
    norm: LayerNorm,
}

#[derive(Module)]
struct BertSelfAttention {
    query: Linear,
    key: Linear,
    value: Linear,
}

#[derive(Module)]
struct BertOutput {
    dense: Linear,
    #[module(name = "LayerNorm")]
    norm: LayerNorm,
}

impl BertOutput {
    fn new(width: usize, on: Device) -> Result<BertOutput> {
        Ok(BertOutput { dense: Linear::new(width, WIDTH, on)?, norm: norm(on)? })
    }

    fn forward(&self, x: &Tensor, shortcut: &Tensor) -> Result<Tensor> {
        self.norm.forward(&(self.dense.forward(x)? + shortcut)?)
    }
}

#[derive(Module)]
struct BertAttention {
    #[module(name = "self")]
    own: BertSelfAttention,
    output: BertOutput,
}

#[derive(Module)]
struct Dense {
    dense: Linear,
}

#[derive(Module)]
struct BertLayer {
    attention: BertAttention,
    intermediate: Dense,
    output: BertOutput,
}

#[derive(Module)]
struct BertEncoder {
    layer: Vec<BertLayer>,
}

/// BERT's form (Devlin et al., 2019), with a classifier.
#[derive(Module)]
pub struct Bert {
    embeddings: BertEmbeddings,
    encoder: BertEncoder,
    pooler: Dense,
    classifier: Linear,
}

fn norm(on: Device) -> Result<LayerNorm> {
    LayerNorm::options(WIDTH).eps(1e-12).build(on)
}

impl BertLayer {
    fn new(on: Device) -> Result<BertLayer> {
        let own = BertSelfAttention {
            query: Linear::new(WIDTH, WIDTH, on)?,
            key: Linear::new(WIDTH, WIDTH, on)?,
            value: Linear::new(WIDTH, WIDTH, on)?,
        };
        Ok(BertLayer {
            attention: BertAttention { own, output: BertOutput::new(WIDTH, on)? },
            intermediate: Dense { dense: Linear::new(WIDTH, 32, on)? },
            output: BertOutput::new(32, on)?,
        })
    }

    fn forward(&self, x: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let own = &self.attention.own;
        let (q, k, v) = (own.query.forward(x)?, own.key.forward(x)?, own.value.forward(x)?);
        let x = self.attention.output.forward(&attended(&q, &k, &v, Some(mask), false)?, x)?;
        self.output.forward(&self.intermediate.dense.forward(&x)?.gelu()?, &x)
    }
}

impl Bert {
    pub fn new(on: Device) -> Result<Bert> {
        Ok(Bert {
            embeddings: BertEmbeddings {
                word_embeddings: Embedding::options(20, WIDTH).padding_idx(0).build(on)?,
                position_embeddings: Embedding::new(12, WIDTH, on)?,
                token_type_embeddings: Embedding::new(2, WIDTH, on)?,
                norm: norm(on)?,
            },
            encoder: BertEncoder { layer: vec![BertLayer::new(on)?, BertLayer::new(on)?] },
            pooler: Dense { dense: Linear::new(WIDTH, WIDTH, on)? },
            classifier: Linear::new(WIDTH, 3, on)?,
        })
    }
}

impl Architecture for Bert {
    fn run(&self, inputs: &StateDict) -> Result<Tensor> {
        let (x, kinds, mask) = (input(inputs, "x")?, input(inputs, "kinds")?, input(inputs, "mask")?);
        let own = &self.embeddings;
        let sum = (own.word_embeddings.forward(x)? + own.token_type_embeddings.forward(kinds)?)?;
        let first = own.norm.forward(&(sum + own.position_embeddings.forward(&places(x)?)?)?)?;
        let mask = mask.unsqueeze(1)?.unsqueeze(1)?;
        let last = self.encoder.layer.iter().try_fold(first, |x, layer| layer.forward(&x, &mask))?;
        self.classifier.forward(&self.pooler.dense.forward(&last.select(1, 0)?)?.tanh()?)
    }
}

#[derive(Module)]
struct VitAttention {
    qkv: Linear,
    proj: Linear,
}

#[derive(Module)]
struct VitMlp {
    fc1: Linear,
    fc2: Linear,
}

#[derive(Module)]
struct VitBlock {
    norm1: LayerNorm,
    attn: VitAttention,
    norm2: LayerNorm,
    mlp: VitMlp,
}

impl VitBlock {
    fn new(on: Device) -> Result<VitBlock> {
        Ok(VitBlock {
            norm1: LayerNorm::new(WIDTH, on)?,
            attn: VitAttention { qkv: Linear::new(WIDTH, 3 * WIDTH, on)?, proj: Linear::new(WIDTH, WIDTH, on)? },
            norm2: LayerNorm::new(WIDTH, on)?,
            mlp: VitMlp { fc1: Linear::new(WIDTH, 32, on)?, fc2: Linear::new(32, WIDTH, on)? },
        })
    }
}

impl Forward for VitBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let all = self.attn.qkv.forward(&self.norm1.forward(x)?)?.chunk(3, -1)?;
        let x = (x + self.attn.proj.forward(&attended(&all[0], &all[1], &all[2], None, false)?)?)?;
        let wide = self.mlp.fc1.forward(&self.norm2.forward(&x)?)?.gelu()?;
        &x + self.mlp.fc2.forward(&wide)?
    }
}

#[derive(Module)]
struct PatchEmbed {
    proj: nn::Conv2d,
}

/// A vision Transformer (Dosovitskiy et al., 2021), with timm's names.
#[derive(Module)]
pub struct Vit {
    cls_token: Tensor,
    pos_embed: Tensor,
    patch_embed: PatchEmbed,
    blocks: Vec<VitBlock>,
    norm: LayerNorm,
    head: Linear,
}

impl Vit {
    pub fn new(on: Device) -> Result<Vit> {
        let parameter = |n: usize| Tensor::randn(dims![1, n, WIDTH])?.to(on)?.requires_grad_(true);
        Ok(Vit {
            cls_token: parameter(1)?,
            pos_embed: parameter(17)?,
            patch_embed: PatchEmbed { proj: nn::Conv2d::options(3, WIDTH, 4).stride(4).build(on)? },
            blocks: vec![VitBlock::new(on)?, VitBlock::new(on)?],
            norm: LayerNorm::options(WIDTH).eps(1e-6).build(on)?,
            head: Linear::new(WIDTH, 10, on)?,
        })
    }
}

impl Forward for Vit {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let patches = self.patch_embed.proj.forward(x)?.flatten(2, -1)?.transpose(1, 2)?;
        let class = self.cls_token.broadcast_to(dims![x.shape()[0], 1, WIDTH])?;
        let first = (cat(&[class, patches], 1)? + &self.pos_embed)?;
        let last = self.blocks.iter().try_fold(first, |x, block| block.forward(&x))?;
        self.head.forward(&self.norm.forward(&last)?.select(1, 0)?)
    }
}

crate::of_one_input!(Gpt, Vit);

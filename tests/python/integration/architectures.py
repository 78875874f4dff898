"""The architectures of examples/architectures, with the same parameter names and sizes, and inputs for each."""

from __future__ import annotations

from collections.abc import Callable

import lucid
from lucid import nn
from lucid.nn import functional as F

Tensor = lucid.Tensor
WIDTH, HEADS = 16, 2


class LeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(400, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(self.conv1(x).relu(), 2)
        x = F.max_pool2d(self.conv2(x).relu(), 2)
        return self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())


class BasicBlock(nn.Module):
    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.downsample = None
        if stride != 1 or i != o:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(BasicBlock(8, 8, 1), BasicBlock(8, 8, 1))
        self.layer2 = nn.Sequential(BasicBlock(8, 16, 2), BasicBlock(16, 16, 1))
        self.fc = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer2(self.layer1(self.bn1(self.conv1(x)).relu()))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def conv_norm(i: int, o: int, kernel: int, **options: int) -> list[nn.Module]:
    return [nn.Conv2d(i, o, kernel, bias=False, **options), nn.BatchNorm2d(o)]


class InvertedResidual(nn.Module):
    def __init__(self, i: int, o: int, stride: int, expand: int) -> None:
        super().__init__()
        wide = i * expand
        self.conv = nn.Sequential(
            *conv_norm(i, wide, 1),
            nn.ReLU6(),
            *conv_norm(wide, wide, 3, stride=stride, padding=1, groups=wide),
            nn.ReLU6(),
            *conv_norm(wide, o, 1),
        )
        self.shortcut = stride == 1 and i == o

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + x if self.shortcut else self.conv(x)


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *conv_norm(3, 8, 3, stride=2, padding=1),
            nn.Hardswish(),
            InvertedResidual(8, 8, 1, 2),
            InvertedResidual(8, 12, 2, 3),
        )
        self.classifier = nn.Sequential(nn.Dropout(0.0), nn.Linear(12, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))


def twice(i: int, o: int) -> nn.Sequential:
    return nn.Sequential(*conv_norm(i, o, 3, padding=1), nn.ReLU(), *conv_norm(o, o, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = twice(1, 4)
        self.down2 = twice(4, 8)
        self.middle = twice(8, 16)
        self.up2 = nn.ConvTranspose2d(16, 8, 2, 2)
        self.dec2 = twice(16, 8)
        self.up1 = nn.ConvTranspose2d(8, 4, 2, 2)
        self.dec1 = twice(8, 4)
        self.head = nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        middle = self.middle(F.max_pool2d(two, 2))
        x = self.dec2(lucid.cat([self.up2(middle), two], 1))
        return self.head(self.dec1(lucid.cat([self.up1(x), one], 1)))


class LstmClassifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8, padding_idx=0)
        self.lstm = nn.LSTM(8, 12, 2, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.lstm(self.embedding(x))[0].mean(1))


class GruRegressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(4, 10, 2)
        self.norm = nn.LayerNorm(10)
        self.fc = nn.Linear(10, 4)

    def forward(self, x: Tensor) -> Tensor:
        steps, last = self.gru(x)
        return self.fc(self.norm(steps) + last[-1])


class Translator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.source = nn.Embedding(20, WIDTH)
        self.target = nn.Embedding(20, WIDTH)
        self.transformer = nn.Transformer(WIDTH, HEADS, 2, 2, 32, dropout=0.0, batch_first=True)
        self.generator = nn.Linear(WIDTH, 20)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1], device=y.device)
        return self.generator(self.transformer(self.source(x), self.target(y), tgt_mask=mask))


def attended(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    n, length = q.shape[:2]
    q, k, v = (t.reshape(n, length, HEADS, WIDTH // HEADS).transpose(1, 2) for t in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal).transpose(1, 2).flatten(2)


class Parts(nn.Module):
    """Submodules under names of their own."""

    def __init__(self, /, **parts: nn.Module) -> None:
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)


class GptBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Parts(c_attn=nn.Linear(WIDTH, 3 * WIDTH), c_proj=nn.Linear(WIDTH, WIDTH))
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = Parts(c_fc=nn.Linear(WIDTH, 4 * WIDTH), c_proj=nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn.c_proj(attended(*self.attn.c_attn(self.ln_1(x)).chunk(3, -1), causal=True))
        return x + self.mlp.c_proj(F.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = Parts(
            wte=nn.Embedding(20, WIDTH),
            wpe=nn.Embedding(12, WIDTH),
            h=nn.ModuleList([GptBlock(), GptBlock()]),
            ln_f=nn.LayerNorm(WIDTH),
        )
        self.lm_head = nn.Linear(WIDTH, 20, bias=False)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, x: Tensor) -> Tensor:
        body = self.transformer
        x = body.wte(x) + body.wpe(lucid.arange(x.shape[1], device=x.device))
        for block in body.h:
            x = block(x)
        return self.lm_head(body.ln_f(x))


class BertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        own = {name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value")}
        out = Parts(dense=nn.Linear(WIDTH, WIDTH), LayerNorm=nn.LayerNorm(WIDTH, eps=1e-12))
        self.attention = Parts(**{"self": Parts(**own)} | {"output": out})
        self.intermediate = Parts(dense=nn.Linear(WIDTH, 32))
        self.output = Parts(dense=nn.Linear(32, WIDTH), LayerNorm=nn.LayerNorm(WIDTH, eps=1e-12))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        own, out = self.attention.get_submodule("self"), self.attention.output
        x = out.LayerNorm(out.dense(attended(own.query(x), own.key(x), own.value(x), mask)) + x)
        return self.output.LayerNorm(self.output.dense(F.gelu(self.intermediate.dense(x))) + x)


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embeddings = Parts(
            word_embeddings=nn.Embedding(20, WIDTH, padding_idx=0),
            position_embeddings=nn.Embedding(12, WIDTH),
            token_type_embeddings=nn.Embedding(2, WIDTH),
            LayerNorm=nn.LayerNorm(WIDTH, eps=1e-12),
        )
        self.encoder = Parts(layer=nn.ModuleList([BertLayer(), BertLayer()]))
        self.pooler = Parts(dense=nn.Linear(WIDTH, WIDTH))
        self.classifier = nn.Linear(WIDTH, 3)

    def forward(self, x: Tensor, kinds: Tensor, mask: Tensor) -> Tensor:
        own = self.embeddings
        places = lucid.arange(x.shape[1], device=x.device)
        x = own.LayerNorm(own.word_embeddings(x) + own.token_type_embeddings(kinds) + own.position_embeddings(places))
        for layer in self.encoder.layer:
            x = layer(x, mask[:, None, None])
        return self.classifier(self.pooler.dense(x[:, 0]).tanh())


class VitBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attn = Parts(qkv=nn.Linear(WIDTH, 3 * WIDTH), proj=nn.Linear(WIDTH, WIDTH))
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = Parts(fc1=nn.Linear(WIDTH, 32), fc2=nn.Linear(32, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn.proj(attended(*self.attn.qkv(self.norm1(x)).chunk(3, -1)))
        return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.norm2(x))))


class Vit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cls_token = nn.Parameter(lucid.randn(1, 1, WIDTH))
        self.pos_embed = nn.Parameter(lucid.randn(1, 17, WIDTH))
        self.patch_embed = Parts(proj=nn.Conv2d(3, WIDTH, 4, 4))
        self.blocks = nn.Sequential(VitBlock(), VitBlock())
        self.norm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch_embed.proj(x).flatten(2).transpose(1, 2)
        x = lucid.cat([self.cls_token.expand(x.shape[0], 1, WIDTH), patches], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.SiLU())
        self.mean = nn.Linear(32, 4)
        self.log_var = nn.Linear(32, 4)
        self.decoder = nn.Sequential(nn.Linear(4, 32), nn.ELU(), nn.Linear(32, 64), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        h = self.encoder(x)
        mean = self.mean(h)
        return lucid.cat([self.decoder(mean), mean, self.log_var(h)], 1)


class Dcgan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(10, 16, 4, 1, 0, bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.ConvTranspose2d(8, 1, 4, 2, 1, bias=False),
            nn.Tanh(),
        )
        self.discriminator = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2),
            nn.Conv2d(8, 16, 4, 2, 1, bias=False),
            nn.BatchNorm2d(16),
            nn.LeakyReLU(0.2),
            nn.Conv2d(16, 1, 4, bias=False),
            nn.Flatten(),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.discriminator(self.generator(x))


def tokens(*shape: int, high: int = 20) -> Tensor:
    return lucid.randint(0, high, shape)


def padded() -> Tensor:
    """What is added to the scores of two texts of seven tokens, the second of which has five."""
    mask = lucid.zeros(2, 7)
    mask[1, 5:] = -1e9
    return mask


#: By name: the model, and its inputs by the names of its arguments.
ARCHITECTURES: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]] = {
    "lenet": (LeNet, lambda: {"x": lucid.randn(2, 1, 28, 28)}),
    "resnet": (ResNet, lambda: {"x": lucid.randn(3, 3, 16, 16)}),
    "mobilenet": (MobileNet, lambda: {"x": lucid.randn(3, 3, 16, 16)}),
    "unet": (UNet, lambda: {"x": lucid.randn(2, 1, 16, 16)}),
    "lstm": (LstmClassifier, lambda: {"x": tokens(3, 7)}),
    "gru": (GruRegressor, lambda: {"x": lucid.randn(7, 3, 4)}),
    "transformer": (Translator, lambda: {"x": tokens(2, 7), "y": tokens(2, 5)}),
    "gpt": (Gpt, lambda: {"x": tokens(2, 9)}),
    "bert": (Bert, lambda: {"x": tokens(2, 7), "kinds": tokens(2, 7, high=2), "mask": padded()}),
    "vit": (Vit, lambda: {"x": lucid.randn(2, 3, 16, 16)}),
    "vae": (Vae, lambda: {"x": lucid.rand(4, 64)}),
    "dcgan": (Dcgan, lambda: {"x": lucid.randn(3, 10, 1, 1)}),
}

"""The next tokens of texts through the engine's own decoder, over the weights of a model: few launches, and no Python
between layers. What a model has been changed to (hooks, adapters, other modules) goes the usual way.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import lucid
from lucid import _C, Tensor, errors, nn
from lucid.amp.autocast_mode import is_autocast_enabled
from lucid.llm.cache import Cache, LayerCache
from lucid.nn.modules.quantized import QuantizedEmbedding, QuantizedLinear

if TYPE_CHECKING:
    from lucid.llm.model import CausalLM

#: A module's dictionaries of what is called beside `forward`.
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class TokenStep:
    """The engine's decoder of a model, and what must stay for it to be the model's."""

    def __init__(self, model: CausalLM) -> None:
        entries: list[tuple[dict[str, Any], str, Any]] = []
        hooks: list[dict[Any, Any]] = []
        for module in model.modules():
            for table in (module._modules, module._parameters, module._buffers):
                entries += [(table, name, value) for name, value in table.items()]
            hooks += [getattr(module, name) for name in HOOKS]
            # Numbers and functions of its own, which the engine took from the configuration.
            entries += [(module.__dict__, name, v) for name, v in module.__dict__.items() if name[0] != "_"]
        #: Has a module hooks, or a function of its own?
        self.watched = _C._Watched(entries, hooks, [module.__dict__ for module in model.modules()], "forward")
        self.changed = self.watched.is_changed()
        self.decoder = self._decoder(model) if not self.changed and self.is_plain(model) else None

    @staticmethod
    def is_plain(model: CausalLM) -> bool:
        """Is the model made of the modules that the engine knows?"""
        from lucid.llm import model as own

        known = {
            nn.Linear, nn.Embedding, nn.ModuleList, QuantizedLinear, QuantizedEmbedding,
            own.RMSNorm, own.MLP, own.Attention, own.Layer, own.Decoder, own.CausalLM,
        }  # fmt: skip
        modules = list(model.modules())
        packed = (m for m in modules if isinstance(m, (QuantizedLinear, QuantizedEmbedding)))
        if any(type(m) not in known for m in modules) or any(m.dynamic for m in packed):
            return False
        c = model.config
        for module in modules:
            if isinstance(module, own.RMSNorm):
                alike = (module.eps, module.unit_offset) == (c.rms_norm_eps, c.unit_offset)
            elif isinstance(module, own.MLP):
                alike = module.act is own._activation(c.hidden_act)
            elif isinstance(module, own.Attention):
                sizes = (c.num_attention_heads, c.num_key_value_heads, c.head_dim)
                alike = (module.heads, module.kv_heads, module.head_dim) == sizes
                scale = (c.query_pre_attn_scalar or c.head_dim) ** -0.5
                alike = alike and (module.scale, module.cap) == (scale, c.attn_logit_softcapping)
            else:
                alike = True
            if not alike:
                return False
        windows = [layer.self_attn.window for layer in model.model.layers]
        return windows == list(c.layer_windows)

    @staticmethod
    def _decoder(model: CausalLM) -> Any:
        tensors = {name: t for name, t in model.state_dict(keep_vars=True).items() if t is not None}
        devices = {t.device for t in tensors.values()}
        if len(devices) != 1 or next(iter(devices)).type in ("cpu", "meta"):
            return None
        try:
            return _C._Decoder.of_tensors(model.config, tensors)
        except errors.ValueError:
            # Of a module that was put in another's place: it has another shape, or a bias.
            return None

    def is_current(self) -> bool:
        """Is the model what it was?"""
        if self.watched.is_changed() != self.changed or not self.watched.holds():
            return False
        return self.decoder is None or bool(self.decoder.is_current())


#: Of models that are alive. Not their attributes: a copy of a model, or a file of one, has none.
_STEPS: weakref.WeakKeyDictionary[CausalLM, TokenStep] = weakref.WeakKeyDictionary()


def step(model: CausalLM, tokens: Tensor, cache: Cache) -> Tensor | None:
    """The logits (B, vocab_size) after the last of `tokens` (B, L), whose keys and values the cache takes; None where
    the model itself must compute them."""
    layers = cache.layers
    plain = tokens.device.type != "cpu" and cache.padding is None and not lucid.is_grad_enabled()
    plain = plain and not is_autocast_enabled(tokens.device.type)
    if not plain or tokens.numel() == 0 or _C._graph_recording():
        return None
    if any(type(layer) is not LayerCache or layer.length != cache.offset for layer in layers):
        return None
    made = _STEPS.get(model)
    if made is None or not made.is_current():
        made = _STEPS[model] = TokenStep(model)
    if made.decoder is None or (tokens.shape[1] > 1 and not _C._runs_decoder_layers()):
        return None
    c, embed, length = model.config, model.model.embed_tokens, tokens.shape[1]
    like: list[Tensor] | None = None
    if not cache.offset:
        weight = embed.scales if isinstance(embed, QuantizedEmbedding) else embed.weight
        like = [weight.new_empty((tokens.shape[0], c.num_key_value_heads, 0, c.head_dim))] * 2
    for layer in layers:
        layer.reserve(length, like)
    buffers = [(layer.buffers[0], layer.buffers[1]) for layer in layers]
    logits: Tensor | None = made.decoder.step(tokens, buffers, cache.offset)
    if logits is not None:
        for layer in layers:
            layer.length += length
        cache.offset += length
    return logits


def is_used(model: CausalLM, cache: Cache) -> bool:
    """Does a model's next token come from here, so that the cache can forget it again?"""
    made = _STEPS.get(model)
    return made is not None and made.decoder is not None and all(type(layer) is LayerCache for layer in cache.layers)


def forget(model: CausalLM) -> None:
    """Lets go of what is held of a model."""
    _STEPS.pop(model, None)

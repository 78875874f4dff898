"""Small models of transformers of many kinds: outputs, gradients, training, and generation."""

from __future__ import annotations

from typing import Any

import torch
import transformers as tr

SMALL = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA = {**SMALL, "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

CAUSAL: dict[str, Any] = {
    "GPT2LMHeadModel": lambda: tr.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=1, eos_token_id=2, pad_token_id=0
    ),
    "LlamaForCausalLM": lambda: tr.LlamaConfig(**LLAMA, **TOKENS),
    "MixtralForCausalLM": lambda: tr.MixtralConfig(
        **LLAMA, **TOKENS, num_local_experts=4, num_experts_per_tok=2, output_router_logits=False
    ),
    "Qwen2ForCausalLM": lambda: tr.Qwen2Config(**LLAMA, **TOKENS),
    "GemmaForCausalLM": lambda: tr.GemmaConfig(**LLAMA, **TOKENS, head_dim=8),
    "BloomForCausalLM": lambda: tr.BloomConfig(vocab_size=99, hidden_size=32, n_layer=2, n_head=4, **TOKENS),
    "PhiForCausalLM": lambda: tr.PhiConfig(**{**LLAMA, "num_key_value_heads": 4}, **TOKENS),
    "MistralForCausalLM": lambda: tr.MistralConfig(**LLAMA, **TOKENS, sliding_window=4),
}


def model_of(shared: Any, name: str) -> Any:
    config = CAUSAL[name]()
    for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "hidden_dropout", "attention_dropout"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    return shared.weights(name, getattr(tr, name)(config))


def tokens(shared: Any, name: str, *size: int) -> Any:
    return shared.tensor(name, lambda: torch.randint(3, 99, size))


def case_causal_models(shared: Any) -> None:
    ids = tokens(shared, "ids", 2, 9)
    mask = torch.ones_like(ids)
    mask[1, :3] = 0
    for name in CAUSAL:
        model = model_of(shared, name).train()
        out = model(input_ids=ids, attention_mask=mask, labels=ids)
        shared.result(f"{name}.logits", out.logits[mask.bool()])
        shared.result(f"{name}.loss", out.loss)
        out.loss.backward()
        shared.gradients(name, model, 2)


case_causal_models.on_gpu = True


def case_generation(shared: Any) -> None:
    """Greedy, by beams, and sampled; with and without a cache."""
    ids = tokens(shared, "ids", 2, 5)
    for name in CAUSAL:
        model = model_of(shared, name).eval()
        for p in model.parameters():
            p.data.mul_(3.0)
        base = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 8, "eos_token_id": None}
        greedy = model.generate(ids, do_sample=False, **base)
        shared.result(f"{name}.greedy", greedy)
        shared.result(f"{name}.uncached", model.generate(ids, do_sample=False, use_cache=False, **base))
        beams = model.generate(
            ids, num_beams=3, num_return_sequences=2, return_dict_in_generate=True, output_scores=True, **base
        )
        shared.result(f"{name}.beams", beams.sequences)
        shared.result(f"{name}.beam_scores", beams.sequences_scores)
        # The one most likely token is all that is left to sample from.
        shared.result(f"{name}.top_1", model.generate(ids, do_sample=True, top_k=1, **base))
        torch.manual_seed(3)
        sampled = model.generate(ids, do_sample=True, top_k=20, top_p=0.9, temperature=0.8, **base)
        torch.manual_seed(3)
        again = model.generate(ids, do_sample=True, top_k=20, top_p=0.9, temperature=0.8, **base)
        shared.result(f"{name}.sampled", [*sampled.shape, int((sampled == again).all())])
        shared.result(f"{name}.penalty", model.generate(ids, repetition_penalty=1.7, no_repeat_ngram_size=2, **base))


def case_other_models(shared: Any) -> None:
    """Encoders, encoder-decoders, and models of pictures, sound and both."""
    ids, labels = tokens(shared, "ids", 2, 7), tokens(shared, "labels", 2, 5)
    picture = shared.randn("picture", 2, 3, 16, 16)
    flat = {k: v for k, v in SMALL.items() if k != "vocab_size"}
    no = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    bert = tr.BertConfig(**SMALL, intermediate_size=64, max_position_embeddings=32, **no)
    model = shared.weights("bert", tr.BertForMaskedLM(bert)).train()
    out = model(input_ids=ids, labels=ids)
    out.loss.backward()
    shared.result("bert", out.logits)
    shared.gradients("bert", model, 2)
    roberta = tr.RobertaConfig(**SMALL, intermediate_size=64, max_position_embeddings=32, num_labels=3, **no)
    model = shared.weights("roberta", tr.RobertaForSequenceClassification(roberta)).eval()
    shared.result("roberta", model(ids).logits)
    t5 = tr.T5Config(
        vocab_size=99,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    model = shared.weights("t5", tr.T5ForConditionalGeneration(t5)).train()
    out = model(input_ids=ids, labels=labels)
    out.loss.backward()
    shared.result("t5", out.logits)
    shared.gradients("t5", model, 2)
    shared.result("t5.beams", model.eval().generate(ids, num_beams=3, max_new_tokens=6, do_sample=False))
    vit = tr.ViTConfig(**flat, intermediate_size=64, image_size=16, patch_size=4, num_labels=3, **no)
    model = shared.weights("vit", tr.ViTForImageClassification(vit)).train()
    out = model(picture, labels=torch.tensor([0, 2], device=shared.device))
    out.loss.backward()
    shared.result("vit", out.logits)
    shared.gradients("vit", model, 2)
    text = {**SMALL, "intermediate_size": 64, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 98}
    seen = {**flat, "intermediate_size": 64, "image_size": 16, "patch_size": 4}
    clip = tr.CLIPConfig(text_config=text, vision_config=seen, projection_dim=16)
    model = shared.weights("clip", tr.CLIPModel(clip)).train()
    out = model(input_ids=ids, pixel_values=picture, return_loss=True)
    out.loss.backward()
    shared.result("clip", out.logits_per_image)
    shared.gradients("clip", model, 2)
    whisper = tr.WhisperConfig(
        vocab_size=99,
        num_mel_bins=8,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_source_positions=12,
        max_target_positions=16,
        decoder_start_token_id=3,
        dropout=0.0,
        **TOKENS,
    )
    model = shared.weights("whisper", tr.WhisperForConditionalGeneration(whisper)).eval()
    shared.result("whisper", model(input_features=shared.randn("mel", 2, 8, 24), labels=labels).logits)


case_other_models.on_gpu = True


def case_trainer(shared: Any) -> None:
    """`Trainer`: three steps with clipping and a schedule, its evaluation, its checkpoint, and what is read back."""
    ids = tokens(shared, "ids", 12, 8).cpu()

    class Data(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(ids)

        def __getitem__(self, i: int) -> Any:
            return {"input_ids": ids[i], "labels": ids[i]}

    model = model_of(shared, "LlamaForCausalLM").train()
    args = tr.TrainingArguments(
        output_dir=str(shared.folder),
        per_device_train_batch_size=4,
        max_steps=6,
        learning_rate=1e-2,
        warmup_steps=2,
        lr_scheduler_type="cosine",
        max_grad_norm=0.5,
        gradient_accumulation_steps=2,
        logging_steps=1,
        save_steps=6,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        train_sampling_strategy="sequential",
        seed=1,
    )
    trainer = tr.Trainer(model=model, args=args, train_dataset=Data(), eval_dataset=Data())
    trainer.train()
    logs = trainer.state.log_history
    shared.result("losses", [x["loss"] for x in logs if "loss" in x])
    shared.result("norms", [x["grad_norm"] for x in logs if "grad_norm" in x])
    shared.result("rates", [x["learning_rate"] for x in logs if "learning_rate" in x])
    shared.result("eval", trainer.evaluate()["eval_loss"])
    shared.result("predicted", trainer.predict(Data()).predictions[:2])


def case_saved(shared: Any) -> None:
    """`save_pretrained` and `from_pretrained`, whole and in shards, and in bfloat16."""
    ids = tokens(shared, "ids", 2, 8)
    for name in ("LlamaForCausalLM", "GPT2LMHeadModel", "MixtralForCausalLM"):
        model = model_of(shared, name).eval()
        for kind, options in (("whole", {}), ("shards", {"max_shard_size": "20KB"})):
            model.save_pretrained(shared.folder / name / kind, **options)
            read = getattr(tr, name).from_pretrained(shared.folder / name / kind).eval().to(shared.device)
            shared.result(f"{name}.{kind}", read(ids).logits)
        low = tr.AutoModelForCausalLM.from_pretrained(shared.folder / name / "whole", dtype=torch.bfloat16)
        shared.result(f"{name}.low", [str(p.dtype).split(".")[1] for p in low.parameters()])


case_saved.needs_meta = True

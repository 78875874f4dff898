"""accelerate, peft, lightning and pyro."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


def _net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))


def _data(shared: Any) -> Any:
    return TensorDataset(shared.randn("x", 24, 6).cpu(), shared.tensor("y", lambda: torch.randint(0, 3, (24,))).cpu())


def case_accelerate(shared: Any) -> None:
    from accelerate import Accelerator
    from accelerate.utils import set_seed

    set_seed(3)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, project_dir=str(shared.folder))
    model = shared.weights("net", _net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=12)
    loader = DataLoader(_data(shared), batch_size=4)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
    losses, norms = [], []
    for _ in range(2):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    norms.append(accelerator.clip_grad_norm_(model.parameters(), 0.5).detach())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
                losses.append(accelerator.gather(loss.detach()))
    shared.result("losses", losses)
    shared.result("norms", norms)
    shared.result("rate", optimizer.param_groups[0]["lr"])
    accelerator.save_state(str(shared.folder / "state"))
    with torch.no_grad():
        for p in model.parameters():
            p.zero_()
    accelerator.load_state(str(shared.folder / "state"))
    shared.result("restored", accelerator.unwrap_model(model)[0].weight)
    shared.result("process", [accelerator.num_processes, accelerator.process_index, int(accelerator.is_main_process)])


def case_peft(shared: Any) -> None:
    import transformers as tr
    from peft import IA3Config, LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict

    config = tr.LlamaConfig(
        vocab_size=50, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4
    )
    ids = shared.tensor("ids", lambda: torch.randint(0, 50, (2, 7)))
    base = shared.weights("base", tr.LlamaForCausalLM(config))
    kinds = {
        "lora": LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], lora_dropout=0.0),
        "dora": LoraConfig(r=2, target_modules=["up_proj"], use_dora=True),
        "ia3": IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]),
    }
    import copy

    for name, kind in kinds.items():
        model = get_peft_model(copy.deepcopy(base), kind)
        for key, p in model.named_parameters():
            if p.requires_grad:
                p.data.copy_(shared.tensor(f"{name}/{key}", lambda p=p: torch.randn(p.shape) * 0.1 + 0.5))
        shared.result(f"{name}.keys", sorted(get_peft_model_state_dict(model)))
        shared.result(f"{name}.trainable", list(model.get_nb_trainable_parameters()))
        out = model(input_ids=ids, labels=ids)
        out.loss.backward()
        shared.result(f"{name}.loss", out.loss)
        shared.gradients(name, model)
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
        optimizer.step()
        shared.result(f"{name}.logits", model(input_ids=ids).logits)
        with model.disable_adapter():
            shared.result(f"{name}.disabled", model(input_ids=ids).logits)
        model.save_pretrained(str(shared.folder / name))
        read = PeftModel.from_pretrained(copy.deepcopy(base), str(shared.folder / name))
        shared.result(f"{name}.read", read(input_ids=ids).logits)
        shared.result(f"{name}.merged", model.merge_and_unload()(input_ids=ids).logits)


def case_lightning(shared: Any) -> None:
    import lightning as L
    from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    class Lit(L.LightningModule):
        def __init__(self, rate: float = 0.05) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.net = _net()
            self.losses: list[Any] = []

        def forward(self, x: Any) -> Any:
            return self.net(x)

        def training_step(self, batch: Any, index: int) -> Any:
            loss = F.cross_entropy(self(batch[0]), batch[1])
            self.log("train_loss", loss, prog_bar=True)
            self.losses.append(loss.detach())
            return loss

        def validation_step(self, batch: Any, index: int) -> None:
            self.log("val_loss", F.cross_entropy(self(batch[0]), batch[1]))

        def predict_step(self, batch: Any, index: int) -> Any:
            return self(batch[0])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.rate, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)]

    data = _data(shared)
    L.seed_everything(7)
    lit = Lit()
    lit.net = shared.weights("net", lit.net)
    keep = ModelCheckpoint(
        dirpath=str(shared.folder), monitor="val_loss", save_top_k=2, filename="{epoch}", save_last=True
    )
    stop = EarlyStopping("val_loss", patience=9)
    trainer = L.Trainer(
        max_epochs=4,
        accelerator="cpu",
        gradient_clip_val=1.0,
        accumulate_grad_batches=2,
        callbacks=[keep, stop, LearningRateMonitor("epoch")],
        logger=CSVLogger(str(shared.folder)),
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=True,
        default_root_dir=str(shared.folder),
    )
    trainer.fit(lit, DataLoader(data, batch_size=4), DataLoader(data, batch_size=8))
    shared.result("losses", lit.losses)
    shared.result("val", trainer.callback_metrics["val_loss"])
    shared.result("rate", trainer.optimizers[0].param_groups[0]["lr"])
    shared.result("best", keep.best_model_score)
    read = Lit.load_from_checkpoint(keep.best_model_path)
    shared.result("read", read.net[0].weight)
    shared.result("hparams", float(read.hparams.rate))
    found = torch.cat(trainer.predict(lit, DataLoader(data, batch_size=8)))
    shared.result("predicted", found)
    again = L.Trainer(
        max_epochs=6, accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
        default_root_dir=str(shared.folder), gradient_clip_val=1.0, accumulate_grad_batches=2,
    )  # fmt: skip
    resumed = Lit()
    again.fit(resumed, DataLoader(data, batch_size=4), DataLoader(data, batch_size=8), ckpt_path=keep.last_model_path)
    shared.result("resumed", resumed.net[2].bias)
    fabric = L.Fabric(accelerator="cpu", devices=1)
    net, _ = fabric.setup(shared.weights("fabric", _net()), torch.optim.SGD(lit.parameters(), lr=0.1))
    loss = net(data.tensors[0]).square().mean()
    fabric.backward(loss)
    shared.gradients("fabric", net)


def case_pyro(shared: Any) -> None:
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO, TraceMeanField_ELBO
    from pyro.infer.autoguide import AutoDelta, AutoNormal

    data = shared.randn("data", 40) * 0.5 + 2.0

    def model(seen: Any) -> None:
        mean = pyro.sample("mean", dist.Normal(0.0, 10.0))
        scale = pyro.sample("scale", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(seen)):
            pyro.sample("seen", dist.Normal(mean, scale), obs=seen)

    pyro.clear_param_store()
    guide = AutoDelta(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.1}), Trace_ELBO())
    pyro.set_rng_seed(1)
    for _ in range(300):
        svi.step(data)
    # The maximum does not depend on the random start.
    shared.result("map", torch.stack([guide.median()["mean"], guide.median()["scale"]]).round(decimals=3))
    trace = pyro.poutine.trace(pyro.poutine.condition(model, {"mean": torch.tensor(1.0), "scale": torch.tensor(0.7)}))
    shared.result("log_prob", trace.get_trace(data).log_prob_sum())
    pyro.clear_param_store()
    svi = SVI(model, AutoNormal(model), pyro.optim.ClippedAdam({"lr": 0.05}), TraceMeanField_ELBO())
    losses = [svi.step(data) for _ in range(200)]
    shared.result("falls", int(losses[-1] < losses[0]))
    shared.result("kl", torch.distributions.kl_divergence(dist.Normal(0.0, 1.0), dist.Normal(1.0, 2.0)))

"""diffusers: its networks, schedules and averages."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def _same_start(model: Any, shared: Any) -> Any:
    return shared.weights(type(model).__name__, model)


def case_training(shared: Any) -> None:
    from diffusers import DDPMScheduler, UNet2DModel
    from diffusers.optimization import get_cosine_schedule_with_warmup
    from diffusers.training_utils import EMAModel

    model = _same_start(
        UNet2DModel(
            sample_size=16,
            layers_per_block=1,
            block_out_channels=(8, 16),
            norm_num_groups=4,
            attention_head_dim=4,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        ),
        shared,
    )
    schedule = DDPMScheduler(num_train_timesteps=100, beta_schedule="squaredcos_cap_v2")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    rate = get_cosine_schedule_with_warmup(optimizer, 1, 10)
    average = EMAModel(model.parameters(), decay=0.9)
    images, losses = shared.randn("images", 2, 3, 16, 16), []
    for step in range(3):
        noise = shared.randn(f"noise{step}", 2, 3, 16, 16)
        when = torch.tensor([10 + step, 70], device=images.device)
        made = model(schedule.add_noise(images, noise, when), when, return_dict=False)[0]
        loss = F.mse_loss(made, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if step == 0:
            shared.gradients("unet", model)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
        average.step(model.parameters())
        losses.append(loss.detach())
    shared.result("losses", losses)
    shared.result("rate", rate.get_last_lr())
    shared.result("average", average.shadow_params[0])


def case_sampling(shared: Any) -> None:
    import diffusers

    model = _same_start(
        diffusers.UNet2DConditionModel(
            sample_size=8,
            layers_per_block=1,
            block_out_channels=(8, 16),
            norm_num_groups=4,
            cross_attention_dim=12,
            attention_head_dim=4,
            down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        ),
        shared,
    ).eval()
    text, start = shared.randn("text", 1, 5, 12), shared.randn("start", 1, 4, 8, 8)
    for name in ("DDIM", "EulerDiscrete", "DPMSolverMultistep", "UniPCMultistep", "PNDM", "HeunDiscrete"):
        schedule = getattr(diffusers, f"{name}Scheduler")(num_train_timesteps=100)
        schedule.set_timesteps(4, device=start.device)
        x = start * schedule.init_noise_sigma
        with torch.no_grad():
            for t in schedule.timesteps:
                noise = model(schedule.scale_model_input(x, t), t, encoder_hidden_states=text).sample
                x = schedule.step(noise, t, x).prev_sample
        shared.result(name, x)


def case_autoencoder(shared: Any) -> None:
    from diffusers import AutoencoderKL

    model = _same_start(
        AutoencoderKL(
            latent_channels=4,
            block_out_channels=(8, 16),
            norm_num_groups=4,
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
        ),
        shared,
    )
    x = shared.randn("x", 1, 3, 16, 16)
    latents = model.encode(x).latent_dist
    loss = F.mse_loss(model.decode(latents.mode()).sample, x) + 1e-3 * latents.kl().mean()
    loss.backward()
    shared.result("loss", loss)
    shared.result("latents", latents.mean)
    shared.gradients("vae", model)
    model.enable_tiling()
    model.save_pretrained(str(shared.folder / "vae"))
    read = AutoencoderKL.from_pretrained(str(shared.folder / "vae")).to(shared.device)
    shared.result("read", read.decode(latents.mode().detach()).sample)


def case_transformers(shared: Any) -> None:
    from diffusers import DiTTransformer2DModel, FluxTransformer2DModel

    dit = _same_start(
        DiTTransformer2DModel(
            num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, norm_num_groups=4
        ),
        shared,
    ).eval()
    where = shared.device
    if where.type != "cpu":
        # Flux takes the angles of its positions in double precision.
        torch.set_float64_policy("downcast")
    when, kinds = torch.tensor([3, 7], device=where), torch.tensor([1, 2], device=where)
    shared.result("dit", dit(shared.randn("latents", 2, 4, 8, 8), timestep=when, class_labels=kinds).sample)
    flux = _same_start(
        FluxTransformer2DModel(
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=12,
            pooled_projection_dim=12,
            axes_dims_rope=[4, 4, 8],
        ),
        shared,
    ).eval()
    made = flux(
        hidden_states=shared.randn("tokens", 1, 16, 4),
        encoder_hidden_states=shared.randn("text", 1, 5, 12),
        pooled_projections=shared.randn("pooled", 1, 12),
        timestep=torch.tensor([0.5], device=where),
        img_ids=torch.zeros(16, 3, device=where),
        txt_ids=torch.zeros(5, 3, device=where),
    )
    shared.result("flux", made.sample)


for _case in (case_training, case_sampling, case_autoencoder, case_transformers):
    _case.on_gpu = True  # type: ignore[attr-defined]

"""Pipeline parallelism: two stages of a network, which work on different parts of a batch at the same time.

python -m lucid.distributed.run --nproc-per-node 2 examples/distributed/pipeline.py
"""

from __future__ import annotations

import common
import lucid
import lucid.distributed as dist
from lucid import nn
from lucid.distributed.pipelining import PipelineStage, Schedule1F1B

if __name__ == "__main__":
    args = common.arguments(__doc__)
    dist.init_process_group()
    rank, n = dist.get_rank(), dist.get_world_size()
    if n != 2:
        raise SystemExit("this example has two stages: --nproc-per-node 2")
    stage = PipelineStage(
        (common.network()[:2] if rank == 0 else common.network()[2:]).to(args.device), rank, n, args.device
    )
    schedule = Schedule1F1B(stage, 4, nn.functional.cross_entropy)
    opt = common.optimizer(stage.submod.parameters())
    losses: list[lucid.Tensor] = []
    for x, y in common.batches(*common.digits(args.device), args.steps):
        opt.zero_grad()
        schedule.step(*([x] if rank == 0 else []), target=y if rank == 1 else None, losses=losses)
        opt.step()
    last = [sum(float(loss.item()) for loss in losses) / 4 if rank == 1 else 0.0]
    dist.broadcast_object_list(last, src=1)
    common.compare("pipeline", last[0], args)

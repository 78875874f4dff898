"""Sharded data parallelism: each process keeps its rows of the parameters and of the optimizer's state.

python -m lucid.distributed.run --nproc-per-node 2 examples/distributed/fsdp.py
"""

from __future__ import annotations

import common
import lucid.distributed as dist
from lucid import nn
from lucid.distributed.fsdp import fully_shard

if __name__ == "__main__":
    args = common.arguments(__doc__)
    dist.init_process_group()
    net = common.network().to(args.device)
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    loss = common.train(net, common.optimizer(net.parameters()), args, common.rank_part)
    common.compare("fsdp", common.mean(loss), args)

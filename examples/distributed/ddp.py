"""Data parallelism: copies of a network, each on its part of the batch, with the mean of all gradients.

python -m lucid.distributed.run --nproc-per-node 2 examples/distributed/ddp.py
"""

from __future__ import annotations

import common
import lucid.distributed as dist
from lucid.nn.parallel import DistributedDataParallel

if __name__ == "__main__":
    args = common.arguments(__doc__)
    dist.init_process_group()
    net = DistributedDataParallel(common.network().to(args.device))
    loss = common.train(net, common.optimizer(net.parameters()), args, common.rank_part)
    common.compare("ddp", common.mean(loss), args)

"""PyTorch's tutorial of DistributedDataParallel, its imports changed: basic use, checkpoints, a model in parts."""

import os
import sys
import tempfile

import lucid as torch
import lucid.distributed as dist
import lucid.multiprocessing as mp
import lucid.nn as nn
import lucid.optim as optim
from lucid.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "12355")
    dist.init_process_group("gloo", rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank, world_size):
    print(f"Running basic DDP example on rank {rank}.")
    setup(rank, world_size)
    model = ToyModel()
    ddp_model = DDP(model)
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    optimizer.zero_grad()
    outputs = ddp_model(torch.randn(20, 10))
    labels = torch.randn(20, 5)
    loss_fn(outputs, labels).backward()
    optimizer.step()
    cleanup()
    print(f"Finished running basic DDP example on rank {rank}.")


def demo_checkpoint(rank, world_size):
    setup(rank, world_size)
    ddp_model = DDP(ToyModel())
    path = os.path.join(tempfile.gettempdir(), f"lucid-tutorial-{os.environ['TORCHELASTIC_RUN_ID']}.checkpoint")
    if rank == 0:
        torch.save(ddp_model.state_dict(), path)
    dist.barrier()
    ddp_model.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    loss_fn = nn.MSELoss()
    optimizer = optim.SGD(ddp_model.parameters(), lr=0.001)
    optimizer.zero_grad()
    loss_fn(ddp_model(torch.randn(20, 10)), torch.randn(20, 5)).backward()
    optimizer.step()
    dist.barrier()
    if rank == 0:
        os.remove(path)
    cleanup()


def spawned(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", sys.argv[1]
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "LUCID_DISTRIBUTED_TOKEN"):
        os.environ.pop(name, None)
    demo_basic(rank, world_size)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        mp.spawn(spawned, args=(2,), nprocs=2, join=True)
    else:
        demo_basic(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        demo_checkpoint(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    print("done")

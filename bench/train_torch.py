"""PyTorch's side of train_vs_torch.sh: the model of nn/llama.cc, trained on the same weights and tokens.

  train_torch.py one WEIGHTS     one process, two threads
  train_torch.py fsdp2 WEIGHTS   two gloo processes of one thread, fully_shard of every layer and of the model
  train_torch.py peak            seconds that at::mm takes for the products of one step, two threads
  train_torch.py cuda            on a GPU, eager and torch.compile: a JSON line each, ms a step; by itself, without WEIGHTS

WEIGHTS is what `bench_train --serve WEIGHTS` wrote. Says "ready", then for every line N on standard input trains N steps
and answers with seconds, seconds of all its threads on a core, and the last loss.
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

DIM, LAYERS, HEADS, FFN, VOCAB, LENGTH, BATCH = 256, 4, 4, 768, 4096, 256, 8
WIDTH = DIM // HEADS


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return F.rms_norm(x, (DIM,), self.weight, 1e-5)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = Norm(), Norm()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(DIM, DIM, bias=False) for _ in range(4))
        self.w1, self.w3 = nn.Linear(DIM, FFN, bias=False), nn.Linear(DIM, FFN, bias=False)
        self.w2 = nn.Linear(FFN, DIM, bias=False)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def forward(self, h, cos, sin):
        def heads(x):
            return x.view(*x.shape[:2], HEADS, WIDTH).transpose(1, 2)

        x = self.norm1(h)
        q, k = (self.rotate(heads(w(x)), cos, sin) for w in (self.wq, self.wk))
        o = F.scaled_dot_product_attention(q, k, heads(self.wv(x)), is_causal=True)
        h = h + self.wo(o.transpose(1, 2).flatten(2))
        x = self.norm2(h)
        return h + self.w2(F.silu(self.w1(x)) * self.w3(x))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = Norm()
        self.head = nn.Linear(DIM, VOCAB, bias=False)
        frequency = 10000.0 ** (-torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
        angle = torch.arange(LENGTH, dtype=torch.float64)[:, None] * frequency
        self.register_buffer("cos", angle.cos().float())
        self.register_buffer("sin", angle.sin().float())

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.layers:
            h = layer(h, self.cos, self.sin)
        return self.head(self.norm(h))


def load(model, path):
    """Parameters in the order of nn::Llama: embed, norm, head, then each layer's."""
    values = torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.float32)
    parameters = [model.embed.weight, model.norm.weight, model.head.weight]
    for layer in model.layers:
        parameters += [layer.norm1.weight, layer.wq.weight, layer.wk.weight, layer.wv.weight, layer.wo.weight]
        parameters += [layer.norm2.weight, layer.w1.weight, layer.w3.weight, layer.w2.weight]
    assert values.numel() == sum(p.numel() for p in parameters), "another model's weights"
    at = 0
    with torch.no_grad():
        for p in parameters:
            p.copy_(values[at : at + p.numel()].view_as(p))
            at += p.numel()


def batch(step, rows):
    b = torch.arange(rows.start, rows.stop)[:, None]
    t = torch.arange(LENGTH + 1)[None]
    all_tokens = (b * 7919 + t * 31 + t * t * 7 + step * 101) % VOCAB
    return all_tokens[:, :-1], all_tokens[:, 1:]


class Trainer:
    def __init__(self, model, rows, device="cpu"):
        self.model, self.rows, self.device, self.done = model, rows, device, 0
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=True)

    def steps(self, count):
        start, cpu_start = time.monotonic(), time.process_time()
        for _ in range(count):
            tokens, targets = (part.to(self.device) for part in batch(self.done, self.rows))
            loss = F.cross_entropy(self.model(tokens).flatten(0, 1), targets.flatten())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.done += 1
        return time.monotonic() - start, time.process_time() - cpu_start, loss.detach()


def one(path):
    torch.set_num_threads(2)
    model = Llama()
    load(model, path)
    trainer = Trainer(model, range(BATCH))
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, cpu_seconds, loss = trainer.steps(int(line))
        print(seconds, cpu_seconds, loss.item(), flush=True)


def cuda():
    import json

    for name in ("eager", "compiled"):
        torch.manual_seed(0)
        model = Llama().to("cuda")
        trainer = Trainer(torch.compile(model) if name == "compiled" else model, range(BATCH), "cuda")
        trainer.steps(10)[2].item()
        count = 50
        start = time.monotonic()
        trainer.steps(count)[2].item()
        value = (time.monotonic() - start) / count * 1e3
        print(json.dumps({"name": f"torch.train_step.{name}", "value": value, "unit": "ms"}), flush=True)


def fsdp2_rank(rank, path, port, count):
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    model = Llama()
    load(model, path)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    trainer = Trainer(model, range(rank * BATCH // 2, (rank + 1) * BATCH // 2))
    dist.barrier()
    if rank == 0:
        print("ready", flush=True)
    while True:
        # The parent hands the number of steps to both at once, so that no rank polls while it waits.
        steps = count.get()
        if steps == 0:
            break
        seconds, cpu_seconds, loss = trainer.steps(steps)
        sums = torch.tensor([cpu_seconds, loss.item() / 2], dtype=torch.float64)
        dist.all_reduce(sums)
        if rank == 0:
            print(seconds, *sums.tolist(), flush=True)
    dist.destroy_process_group()


def fsdp2(path):
    import socket

    import torch.multiprocessing as mp

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    queues = [context.SimpleQueue() for _ in range(2)]
    ranks = [context.Process(target=fsdp2_rank, args=(r, path, port, queues[r])) for r in range(2)]
    for process in ranks:
        process.start()
    for line in sys.stdin:
        for queue in queues:
            queue.put(int(line))
    for queue in queues:
        queue.put(0)
    for process in ranks:
        process.join()


def peak():
    """(seconds, floating point operations) of the products of one step, each at its own."""
    torch.set_num_threads(2)
    rows = BATCH * LENGTH
    shapes = [(DIM, DIM)] * 4 * LAYERS + [(DIM, FFN)] * 3 * LAYERS + [(DIM, VOCAB)]
    print("ready", flush=True)
    for line in sys.stdin:
        seconds = operations = 0.0
        for inner, outer in shapes:
            x, w, g = torch.randn(rows, inner), torch.randn(outer, inner), torch.randn(rows, outer)
            for a, b in ((x, w.t()), (g, w), (g.t(), x)):
                out = torch.mm(a, b)
                start = time.monotonic()
                for _ in range(int(line)):
                    torch.mm(a, b, out=out)
                seconds += (time.monotonic() - start) / int(line)
                operations += 2.0 * rows * inner * outer
        print(seconds, operations, flush=True)


if __name__ == "__main__":
    {"one": one, "fsdp2": fsdp2, "peak": lambda *_: peak(), "cuda": cuda}[sys.argv[1]](*sys.argv[2:])

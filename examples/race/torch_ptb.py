"""PyTorch's contestant in a race: the PTB LSTM on random words.

The one argument is JSON: the sizes, and a mode. Mode "nn" is torch.nn.LSTM;
mode "batched" is an LSTM layer as one autograd function by hand, which computes
whatever does not wait for the step before in one product for all time steps.
Both use torch's own embedding, softmax, clipping and update in place.
"""
import json
import sys
import time

import torch
from torch import nn


class Cells(torch.autograd.Function):
    """A layer over all time steps: from x [steps, batch, in], kernel [in+width,
    4*width], bias, and the state before, h of each step. The gates are i, j, f, o."""

    @staticmethod
    def forward(ctx, x, kernel, bias, h0, c0):
        steps, batch, inputs = x.shape
        width = h0.shape[1]
        recurrent = kernel[inputs:]
        gates = torch.addmm(bias, x.reshape(-1, inputs), kernel[:inputs]).view(steps, batch, 4 * width)
        h = x.new_empty(steps + 1, batch, width)
        c, tanh_c = torch.empty_like(h), x.new_empty(steps, batch, width)
        h[0], c[0] = h0, c0
        for t in range(steps):
            z = gates[t].addmm_(h[t], recurrent)
            i, j, f, o = z.split(width, 1)
            i.sigmoid_()
            j.tanh_()
            z[:, 2 * width:].sigmoid_()
            torch.mul(c[t], f, out=c[t + 1])
            c[t + 1].addcmul_(i, j)
            torch.tanh(c[t + 1], out=tanh_c[t])
            torch.mul(tanh_c[t], o, out=h[t + 1])
        ctx.save_for_backward(x, kernel, gates, h, c, tanh_c)
        last = h[-1].clone(), c[-1].clone()
        ctx.mark_non_differentiable(*last)
        return (h[1:], *last)

    @staticmethod
    def backward(ctx, grad_h, *_):
        x, kernel, gates, h, c, tanh_c = ctx.saved_tensors
        steps, batch, inputs = x.shape
        width = h.shape[2]
        i, j, f, o = gates.split(width, 2)
        # Factors that need no gradient, for all steps at once; dz/dc of i, j, f and dz/dh of o.
        factors = torch.empty_like(gates)
        torch.mul(j * i, 1 - i, out=factors[..., :width])
        torch.mul(i, 1 - j * j, out=factors[..., width:2 * width])
        torch.mul(c[:-1] * f, 1 - f, out=factors[..., 2 * width:3 * width])
        torch.mul(tanh_c * o, 1 - o, out=factors[..., 3 * width:])
        through_tanh = o * (1 - tanh_c * tanh_c)
        dz = torch.empty_like(gates)
        dc, back = x.new_zeros(batch, width), x.new_zeros(batch, width)
        recurrent = kernel[inputs:].t()
        for t in reversed(range(steps)):
            dh = grad_h[t] + back
            dc.addcmul_(dh, through_tanh[t])
            z, factor = dz[t].view(batch, 4, width), factors[t].view(batch, 4, width)
            torch.mul(factor[:, :3], dc.unsqueeze(1), out=z[:, :3])
            torch.mul(factor[:, 3], dh, out=z[:, 3])
            dc.mul_(f[t])
            if t > 0:
                torch.mm(dz[t], recurrent, out=back)
        flat = dz.view(-1, 4 * width)
        d_kernel = torch.empty_like(kernel)
        torch.mm(x.reshape(-1, inputs).t(), flat, out=d_kernel[:inputs])
        torch.mm(h[:-1].view(-1, width).t(), flat, out=d_kernel[inputs:])
        return (flat @ kernel[:inputs].t()).view_as(x), d_kernel, flat.sum(0), None, None


class Batched(nn.Module):
    """Layers of Cells with dropout between them, called like nn.LSTM."""

    def __init__(self, width, layers, dropout):
        super().__init__()
        self.kernels = nn.ParameterList(nn.Parameter(torch.empty(2 * width, 4 * width)) for _ in range(layers))
        self.biases = nn.ParameterList(nn.Parameter(torch.empty(4 * width)) for _ in range(layers))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, state):
        last = []
        for layer, (kernel, bias) in enumerate(zip(self.kernels, self.biases)):
            if layer > 0:
                x = self.dropout(x)
            x, h, c = Cells.apply(x, kernel, bias, state[0][layer], state[1][layer])
            last.append((h, c))
        return x, tuple(torch.stack(s) for s in zip(*last))


class Model(nn.Module):
    def __init__(self, spec):
        super().__init__()
        vocab, width, layers, dropout = spec["vocab"], spec["hidden"], spec["layers"], 1 - spec["keep"]
        self.embedding = nn.Embedding(vocab, width)
        lstm = {"nn": lambda: nn.LSTM(width, width, layers, dropout=dropout), "batched": lambda: Batched(width, layers, dropout)}
        self.lstm = lstm[spec["mode"]]()
        self.dropout = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.projection = nn.Linear(width, vocab)
        for p in self.parameters():
            nn.init.uniform_(p, -spec["init_scale"], spec["init_scale"])

    def forward(self, x, state):
        x, state = self.lstm(self.dropout(self.embedding(x)), state)
        return self.projection(self.dropout(x).flatten(0, 1)), state


class Trainer:
    def __init__(self, spec):
        torch.manual_seed(1)
        torch.set_num_threads(spec["threads"])
        self.spec, self.model, self.steps = spec, Model(spec), 0
        self.parameters = list(self.model.parameters())
        zero = torch.zeros(spec["layers"], spec["batch"], spec["hidden"])
        self.state = (zero, zero.clone())
        self.text = torch.randint(0, spec["vocab"], (spec["batches"], spec["unroll"] + 1, spec["batch"]))

    def train(self):
        """Makes a step; the loss is summed over time and averaged over the batch."""
        text = self.text[self.steps % len(self.text)]
        self.steps += 1
        logits, state = self.model(text[:-1], self.state)
        loss = nn.functional.cross_entropy(logits, text[1:].flatten(), reduction="sum") / self.spec["batch"]
        for p in self.parameters:
            p.grad = None
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, self.spec["max_norm"])
        with torch.no_grad():
            for p in self.parameters:
                p.add_(p.grad, alpha=-self.spec["rate"])
        self.state = tuple(s.detach() for s in state)
        return loss.item()


def main():
    spec = json.loads(sys.argv[1])
    trainer = Trainer(spec)
    for _ in range(spec["warmup"]):
        trainer.train()
    print("ready", flush=True)
    for line in sys.stdin:
        words, wall, cpu = 0, time.perf_counter(), time.process_time()
        while words == 0 or time.perf_counter() - wall < float(line):
            trainer.train()
            words += spec["batch"] * spec["unroll"]
        print(words / (time.perf_counter() - wall), words / (time.process_time() - cpu), flush=True)


main()

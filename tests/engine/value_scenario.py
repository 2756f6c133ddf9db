"""PPO's value head on a world's ranks against autograd on the whole batch; `ranks_worker.py` runs it."""

from pathlib import Path

import numpy as np
import torch  # noqa: TID253  # it is all about tensors
from whole_groups import load_policy, padded, relative_error

from services.learner.batches import make_batch
from services.learner.handler import LearnerHandler
from services.learner.value_head import ValueHead

HEAD_RATE = 2.0  # of the head's learning, in multiples of the policy's
PPO = {"algorithm.name": "ppo", "algorithm.value_learning_rate_factor": HEAD_RATE}
EPSILON = 1.0  # as in ranks_worker.py


def values(scenario):
    """A step on log-probs and values together is autograd's; the head is in checkpoints and nowhere else."""
    folder = Path(scenario.spec["folder"])
    batch = make_batch(scenario.batch(6))
    ValueHead.reset_parameters = _start_at_random
    with scenario.engine(**PPO) as (engine, _):
        if engine is not None:
            result, after = _step(scenario, engine, batch)
            result["names"] = [name for name, _ in engine.named_tensors()]
            folder.mkdir(parents=True)
            engine.save(folder)
            engine.export(folder / "export")
            engine.reset_optimizer(warm_up=False)
            result["kept_by_reset"] = _outputs(engine, batch) == after
            engine.load(folder)
            result["went_on"] = _train_twice(scenario, engine, batch)
    with scenario.engine(**PPO) as (engine, _):
        if engine is None:
            return None
        engine.load(folder)
        result["loaded"] = _outputs(engine, batch) == after
        result["continued"] = _train_twice(scenario, engine, batch)
        return result


def _step(scenario, engine, batch):
    rows = np.arange(len(batch))
    weight_2N = np.random.default_rng(7).normal(size=(2, int(batch.response_tokens_B.sum()))) / len(batch)
    expected = _expected(scenario, batch, weight_2N)
    before_N = engine.logprobs(batch, rows).values_N
    in_backward_N = engine.backward(batch, rows, *weight_2N).values_N
    norm = engine.step().grad_norm
    after = _outputs(engine, batch)
    result = {
        "value_error": float(np.abs(before_N - expected["before"]).max()),
        "backward_error": float(np.abs(in_backward_N - before_N).max()),
        "moved": float(np.abs(np.array(after[1]) - before_N).max()),
    }
    if not scenario.spec.get("lora"):  # the expectation trains the whole model
        whole = {name: tensor.detach() for name, tensor in engine.named_tensors()}
        result["norm_error"] = abs(norm - expected["norm"]) / expected["norm"]
        result["weight_error"] = relative_error(whole, expected["weights"])
        result["value_error_after"] = float(np.abs(np.array(after[1]) - expected["after"]).max())
    return result, after


def _outputs(engine, batch):
    found = engine.logprobs(batch, np.arange(len(batch)))
    return [found.tokens_N.tolist(), found.values_N.tolist()]


def _train_twice(scenario, engine, batch):
    handler = LearnerHandler(scenario.config(**PPO), engine)
    for seed in (2, 3):
        handler.train(scenario.batch(seed), 1)
    return _outputs(engine, batch)


def _expected(scenario, batch, weight_2N):
    """What a step on Σ c·logp + Σ d·V does, in float64 and by AdamW's own formula."""
    settings = scenario.config().learner
    model = load_policy(scenario.spec["model"], torch.float64)
    head = _random_head(model.config.hidden_size)
    policy = dict(model.named_parameters())
    logp_N, value_N = _whole_pass(model, head, batch)
    loss = sum((torch.from_numpy(c_N) * out_N).sum() for c_N, out_N in zip(weight_2N, (logp_N, value_N), strict=True))
    trained = [*policy.values(), *head]
    gradients = torch.autograd.grad(loss, trained)
    rates = [1.0] * len(policy) + [HEAD_RATE] * len(head)
    with torch.no_grad():
        for parameter, gradient, rate in zip(trained, gradients, rates, strict=True):
            step = settings.weight_decay * parameter + gradient / (gradient.abs() + EPSILON)
            parameter -= settings.learning_rate * rate * step
        _, after_N = _whole_pass(model, head, batch)
    return {
        "before": value_N.detach().numpy(),
        "after": after_N.numpy(),
        "norm": float(torch.nn.utils.get_total_norm(gradients)),
        "weights": {name: p.detach() for name, p in policy.items()},
    }


def _whole_pass(model, head, batch):
    """Log-probs of all response tokens and the values before them, the whole batch in one pass."""
    ids_BL, inside_BL, response_BL = padded(batch, np.arange(len(batch)))
    out = model(input_ids=ids_BL, attention_mask=inside_BL.long(), output_hidden_states=True)
    logp_BL = out.logits[:, :-1].log_softmax(-1).gather(-1, ids_BL[:, 1:, None]).squeeze(-1)
    weight, bias = head
    value_BL = (out.hidden_states[-1][:, :-1] @ weight.T + bias).squeeze(-1)
    return logp_BL[response_BL[:, 1:]], value_BL[response_BL[:, 1:]]


def _random_head(hidden_size):
    """Weight and bias, not zero, so that a wrong gradient of the policy through them shows."""
    weight = torch.randn(1, hidden_size, generator=torch.Generator().manual_seed(5)) / 8
    return weight.double().requires_grad_(), torch.full((1,), 0.25, dtype=torch.float64).requires_grad_()


def _start_at_random(head):
    with torch.no_grad():
        for parameter, start in zip((head.weight, head.bias), _random_head(head.in_features), strict=True):
            parameter.copy_(start)

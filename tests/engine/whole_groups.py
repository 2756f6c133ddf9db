"""The gradient of whole groups by autograd alone: torch, transformers and the loss, none of the learner's passes."""

import numpy as np
import torch  # noqa: TID253  # what is tested is its gradient

from pacs.algo import pacs_loss
from services.learner.plans import padded_length


def load_policy(path, dtype):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(str(path), dtype=dtype)


def padded(batch, rows):
    """Token ids and a mask of the responses, padded on the right to the longest, in the learner's multiples.

    How attention rounds depends on the length where it is no such multiple.
    """
    longest = int(padded_length(batch.tokens_B[rows]).max())
    ids_bL = torch.zeros(len(rows), longest, dtype=torch.int64)
    for place, row in enumerate(rows):
        ids_bL[place, : batch.tokens_B[row]] = torch.from_numpy(batch.token_ids_B[row].astype(np.int64))
    place_L = torch.arange(longest)
    inside_bL = place_L < torch.from_numpy(batch.tokens_B[rows])[:, None]
    return ids_bL, inside_bL, inside_bL & (place_L >= torch.from_numpy(batch.prompt_tokens_B[rows])[:, None])


def token_logprobs_of(model, batch, rows):
    """Log-probs of tokens 1…L-1 of some rows, from all of their logits, and which of them are of the response.

    In float64 from the model's logits on: what log-softmax and sums round to here is not what is compared.
    """
    ids_bL, inside_bL, response_bL = padded(batch, rows)
    logits_bLV = model(input_ids=ids_bL, attention_mask=inside_bL.long()).logits[:, :-1]
    return logits_bLV.double().log_softmax(-1).gather(-1, ids_bL[:, 1:, None]).squeeze(-1), response_bL[:, 1:]


def response_logprobs(model, batch, rows):
    """Their sums over each response, nats."""
    logp_bL, response_bL = token_logprobs_of(model, batch, rows)
    return (logp_bL * response_bL).sum(-1)


def group_rows(batch):
    return np.arange(len(batch.label_B)).reshape(-1, batch.group_size)


def whole_group_gradient(model, batch, ref_logp_B=None):
    """∂L/∂θ of the PACS loss by name, the log-probs and the scores: every group in one pass, padded to its longest.

    `ref_logp_B`: log-probs under the reference; None where it is the policy itself.
    """
    model.zero_grad()
    logps, scores = [], []
    for rows in group_rows(batch):
        logp_G = response_logprobs(model, batch, rows)
        reference_G = logp_G.detach() if ref_logp_B is None else ref_logp_B[rows].to(logp_G.dtype)
        label_G, valid_G = torch.from_numpy(batch.label_B[rows]), torch.from_numpy(batch.valid_B[rows])
        count = int(batch.valid_B.sum())
        out = pacs_loss(logp_G, reference_G, label_G, valid_G, group_size=batch.group_size, count=count)
        out.loss.backward()
        logps.append(logp_G.detach())
        scores.append(out.score_PG.detach().flatten())
    gradient = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return gradient, torch.cat(logps), torch.cat(scores)


def relative_error(found, wanted):
    """‖found − wanted‖ / ‖wanted‖ over all tensors together, in float64."""
    assert found.keys() == wanted.keys()
    off = sum(float((found[name].double() - value.double()).square().sum()) for name, value in wanted.items())
    return (off / sum(float(value.double().square().sum()) for value in wanted.values())) ** 0.5
